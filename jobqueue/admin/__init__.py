"""The admin: look at jobs and workers, and cancel, pause, resume or hurry jobs. Nothing can be added, edited or deleted here."""

from django.contrib import admin

from jobqueue.admin.jobs import JobAdmin
from jobqueue.admin.workers import WorkerAdmin
from jobqueue.models import Job, Worker

__all__ = ["JobAdmin", "WorkerAdmin"]

admin.site.register(Job, JobAdmin)
admin.site.register(Worker, WorkerAdmin)
