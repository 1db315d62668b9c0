"""The admin: pages for jobs, targets, queues, schedules, workers, duties and webhooks, and verbs with a permission each.

Only two forms edit a row: that of a schedule, and that of a queue's webhook.
"""

from django.contrib import admin

from jobqueue.admin.activity import ActivityAdmin
from jobqueue.admin.deliveries import DeliveryAdmin
from jobqueue.admin.duties import DutyAdmin
from jobqueue.admin.jobs import JobAdmin
from jobqueue.admin.queues import QueueAdmin
from jobqueue.admin.schedules import ScheduleAdmin
from jobqueue.admin.workers import WorkerAdmin
from jobqueue.models import AuditRecord, BackgroundJobLease, Job, Queue, Schedule, WebhookDelivery, Worker

__all__ = ["ActivityAdmin", "DeliveryAdmin", "DutyAdmin", "JobAdmin", "QueueAdmin", "ScheduleAdmin", "WorkerAdmin"]

admin.site.register(AuditRecord, ActivityAdmin)
admin.site.register(BackgroundJobLease, DutyAdmin)
admin.site.register(Job, JobAdmin)
admin.site.register(Queue, QueueAdmin)
admin.site.register(Schedule, ScheduleAdmin)
admin.site.register(WebhookDelivery, DeliveryAdmin)
admin.site.register(Worker, WorkerAdmin)
