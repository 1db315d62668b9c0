"""Claim jobs for the free slots of a worker process."""
