"""A fleet of worker processes: the parent process, its connection to each worker, and the number of slots of a worker."""
