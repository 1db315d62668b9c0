"""Claiming of jobs for the free slots of a worker process."""
