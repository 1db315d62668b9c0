"""The admin: look at jobs, targets, queues and workers, and act on them by verbs, each with its permission. No form edits a row."""

from django.contrib import admin

from jobqueue.admin.jobs import JobAdmin
from jobqueue.admin.queues import QueueAdmin
from jobqueue.admin.workers import WorkerAdmin
from jobqueue.models import Job, Queue, Worker

__all__ = ["JobAdmin", "QueueAdmin", "WorkerAdmin"]

admin.site.register(Job, JobAdmin)
admin.site.register(Queue, QueueAdmin)
admin.site.register(Worker, WorkerAdmin)
