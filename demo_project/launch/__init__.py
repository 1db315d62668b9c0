"""The parts of the demo's program: prepare, compose a batch, run workers, watch them, serve the site."""
