"""The samples from which graphs are drawn: a row per queue for every ten seconds of the last hour, in a ring."""

from django.db import models

from jobqueue.db import MomentField, Now
from jobqueue.models import fields


class QueueSample(models.Model):
    """The numbers of one queue at one moment; `slot` is the position in the ring, which is overwritten after an hour."""

    id = models.BigAutoField(primary_key=True)
    queue = models.CharField(max_length=200)
    slot = models.SmallIntegerField()
    at = MomentField(db_default=Now())
    queued = fields.number(help_text="Jobs that could be claimed.")
    running = fields.number()
    oldest_seconds = models.FloatField(null=True, blank=True, help_text="How long the oldest QUEUED job had waited.")
    enqueued_per_second = models.FloatField(null=True, blank=True, help_text="Empty: there is no earlier sample.")
    finished_per_second = models.FloatField(null=True, blank=True, help_text="All jobs that ended.")
    failed_per_second = models.FloatField(null=True, blank=True, help_text="The jobs that ended in ERROR.")

    class Meta:
        ordering = ("queue", "at")
        constraints = (
            models.UniqueConstraint(fields=["queue", "slot"], name="jobqueue_sample_slot"),
            fields.time_constraint("jobqueue_sample_times", "at"),
        )

    def __str__(self) -> str:
        return f"{self.queue} at {self.at:%H:%M:%S}"
