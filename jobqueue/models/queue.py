"""The pauses and limits of queues, as operators have set them. A queue without a row has neither."""

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from jobqueue.core.masking import mask_text
from jobqueue.db import MomentField, Now
from jobqueue.managers.queues import QueueManager
from jobqueue.models import fields


class Queue(fields.Row):
    """The pause, the limit and the webhook of one queue, for all processes. They are stored, so that they survive restarts."""

    name = models.CharField(max_length=200, primary_key=True)
    paused = fields.flag(help_text="Workers start no job of a paused queue; running jobs continue.")
    paused_until = fields.moment(help_text="When the pause ends; empty: when the queue is resumed.")
    max_running = models.PositiveIntegerField(
        null=True, blank=True, help_text="How many of its jobs may run at once, over all workers; empty: no limit, 0: none."
    )
    webhook_url = models.TextField(
        default="", db_default="", blank=True, help_text="The URL to which events of its jobs are sent, unless a job has its own URL."
    )
    webhook_events = fields.json(list, help_text="Which events are sent; empty: job.completed, job.failed and job.canceled.")
    changed_at = MomentField(db_default=Now())

    objects: ClassVar[QueueManager["Queue"]] = QueueManager()

    class Meta:
        verbose_name = _("queue")
        verbose_name_plural = _("queues")
        ordering = ("name",)
        permissions = (
            ("pause_queue", "Can pause queues"),
            ("resume_queue", "Can resume queues"),
            ("set_webhook_queue", "Can set webhooks of queues"),
        )
        constraints = (
            models.CheckConstraint(condition=~Q(name=""), name="jobqueue_queue_name"),
            fields.time_constraint("jobqueue_queue_times", "changed_at", "paused_until"),
        )

    def __str__(self) -> str:
        return mask_text(self.name)

    @property
    def special(self) -> bool:
        """Whether the queue has a pause or a limit."""
        return self.paused or self.max_running is not None
