"""The tables: fields, constraints, indexes and small properties, without queries and writes."""

from jobqueue.models.audit import AuditRecord
from jobqueue.models.bulk import BulkAction
from jobqueue.models.duty import BackgroundJobLease
from jobqueue.models.event import JobEvent
from jobqueue.models.job import Job
from jobqueue.models.log import JobLog
from jobqueue.models.phase import JobDependency, JobPhase
from jobqueue.models.queue import Queue
from jobqueue.models.rerun import JobRerun
from jobqueue.models.sample import Sample
from jobqueue.models.schedule import Schedule, ScheduleTick
from jobqueue.models.webhook import WebhookDelivery
from jobqueue.models.worker import LeftWorker, Worker

__all__ = [
    "AuditRecord",
    "BackgroundJobLease",
    "BulkAction",
    "Job",
    "JobDependency",
    "JobEvent",
    "JobLog",
    "JobPhase",
    "JobRerun",
    "LeftWorker",
    "Queue",
    "Sample",
    "Schedule",
    "ScheduleTick",
    "WebhookDelivery",
    "Worker",
]
