"""Write what came of runs: outcomes, progress, leases and signals."""
