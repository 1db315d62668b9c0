"""The parts of the worker process, each in this process."""
