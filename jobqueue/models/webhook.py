"""The outbox of webhooks: one row for each message, written in the transaction of the event that it reports."""

from typing import Any, ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from jobqueue.core.webhook_rules import shown_url
from jobqueue.db import MomentField, Now, UUIDField
from jobqueue.managers.webhooks import DeliveryManager
from jobqueue.models import fields
from jobqueue.models.job import Job


def keep_pending(collector: Any, field: Any, sub_objs: Any, using: Any) -> None:
    """Delete the deliveries of a deleted job, except those that are still to be sent."""
    models.CASCADE(collector, field, sub_objs.exclude(status="PENDING"), using)


# Django need not read the rows before.
keep_pending.lazy_sub_objs = True  # type: ignore[attr-defined]


class WebhookDelivery(fields.Row):
    """One message to one receiver, kept until it is delivered or given up.

    `message_id` and `body` are the same at each attempt, because the body is made at the first attempt and then
    stored. While an attempt is in flight, `next_attempt_at` is in the future: if the sender dies, the next
    attempt follows at that time.
    """

    class Status(models.TextChoices):
        """The states of a delivery; the stored value is the name."""

        PENDING = "PENDING", "Pending"
        DELIVERED = "DELIVERED", "Delivered"
        FAILED = "FAILED", "Failed"

    id = models.BigAutoField(primary_key=True)
    message_id = UUIDField(editable=False)
    job = models.ForeignKey(Job, keep_pending, related_name="deliveries", db_constraint=False, db_index=False)
    event = models.CharField(max_length=40, help_text="For example job.completed.")
    queue = models.CharField(max_length=200)
    url = models.TextField()
    facts = fields.json(dict, help_text="The facts about the job at the time of the event, from which the message is built.")
    body = models.TextField(default="", db_default="", blank=True, help_text="The message as it is sent; empty before the first attempt.")
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.PENDING, db_default=Status.PENDING)
    attempts = fields.number()
    created_at = MomentField(db_default=Now())
    next_attempt_at = MomentField(db_default=Now())
    finished_at = fields.moment()
    response_status = models.PositiveSmallIntegerField(null=True, blank=True)
    error = models.TextField(default="", db_default="", blank=True, help_text="The error of the last attempt.")
    history = fields.json(list, help_text="The newest attempts: number, time, URL, status, duration, error, first bytes of the response.")

    objects: ClassVar[DeliveryManager["WebhookDelivery"]] = DeliveryManager()

    class Meta:
        ordering = ("-id",)
        verbose_name = _("webhook delivery")
        verbose_name_plural = _("webhook deliveries")
        permissions = (("redeliver_webhookdelivery", "Can redeliver webhooks"), ("give_up_webhookdelivery", "Can give up webhooks"))
        constraints = (
            models.CheckConstraint(condition=Q(status__in=["PENDING", "DELIVERED", "FAILED"]), name="jobqueue_delivery_status"),
            models.CheckConstraint(condition=~Q(url=""), name="jobqueue_delivery_url"),
            fields.time_constraint("jobqueue_delivery_times", "created_at", "next_attempt_at", "finished_at"),
        )
        indexes = (
            models.Index(fields=["next_attempt_at"], condition=Q(status="PENDING"), name="jobqueue_delivery_due"),
            models.Index(fields=["job"], name="jobqueue_delivery_of_job"),
            # The deliveries that are reported to operators. Those that succeeded are in neither index.
            models.Index(fields=["finished_at"], condition=Q(status="FAILED"), name="jobqueue_delivery_failed"),
            models.Index(fields=["id"], condition=Q(status="PENDING", attempts__gt=0) & ~Q(error=""), name="jobqueue_delivery_retried"),
        )

    def __str__(self) -> str:
        return f"{self.event} of job {self.job_id} to {shown_url(self.url)}"
