"""A worker process, from its start to its exit status."""
