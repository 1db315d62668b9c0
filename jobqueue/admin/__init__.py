"""The admin: look at jobs, targets, queues, schedules, webhooks, workers and duties, and act on them by verbs, each with its permission.

No form edits a row, but that of a schedule.
"""

from django.contrib import admin

from jobqueue.admin.duties import DutyAdmin
from jobqueue.admin.jobs import JobAdmin
from jobqueue.admin.queues import QueueAdmin
from jobqueue.admin.schedules import ScheduleAdmin
from jobqueue.admin.webhooks import DeliveryAdmin
from jobqueue.admin.workers import WorkerAdmin
from jobqueue.models import BackgroundJobLease, Job, Queue, Schedule, WebhookDelivery, Worker

__all__ = ["DeliveryAdmin", "DutyAdmin", "JobAdmin", "QueueAdmin", "ScheduleAdmin", "WorkerAdmin"]

admin.site.register(BackgroundJobLease, DutyAdmin)
admin.site.register(Job, JobAdmin)
admin.site.register(Queue, QueueAdmin)
admin.site.register(Schedule, ScheduleAdmin)
admin.site.register(WebhookDelivery, DeliveryAdmin)
admin.site.register(Worker, WorkerAdmin)
