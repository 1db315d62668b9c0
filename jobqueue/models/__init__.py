"""The tables: fields, constraints, indexes and small properties; no queries, no saves."""

from jobqueue.models.job import Job
from jobqueue.models.queue import Queue
from jobqueue.models.worker import Worker

__all__ = ["Job", "Queue", "Worker"]
