"""The tables: fields, constraints, indexes and small properties; no queries, no saves."""

from jobqueue.models.duty import BackgroundJobLease
from jobqueue.models.job import Job
from jobqueue.models.queue import Queue
from jobqueue.models.sample import QueueSample
from jobqueue.models.schedule import Schedule, ScheduleTick
from jobqueue.models.worker import Worker

__all__ = ["BackgroundJobLease", "Job", "Queue", "QueueSample", "Schedule", "ScheduleTick", "Worker"]
