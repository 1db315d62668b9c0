"""The samples from which charts, metrics and the autoscaling signal are computed."""

from django.db import models

from jobqueue.models import fields


class Sample(fields.Row):
    """The load of one queue or task (`kind`, `name`) in the span of `seconds` that begins at `begins`.

    The lengths of the spans are those of ``core/loads.py``; `slot` is the position in the ring of this length, which is overwritten. With
    the length 0, the row is the sum since the first sample, and `begins` is the last span that was added. There is no row for a span in
    which nothing waited, ran, came or ended.
    """

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=8)
    name = models.CharField(max_length=500)
    seconds = models.IntegerField()
    slot = models.IntegerField()
    begins = models.BigIntegerField(help_text="In seconds since 1970.")
    queued = fields.number(help_text="The most jobs that could be claimed.")
    running = fields.number(help_text="The most jobs that ran.")
    oldest_seconds = models.FloatField(default=0.0, db_default=0.0, help_text="The longest time that a queued job had waited.")
    enqueued = fields.number(field=models.BigIntegerField, help_text="Jobs that were created.")
    succeeded = fields.number(field=models.BigIntegerField)
    failed = fields.number(field=models.BigIntegerField, help_text="Jobs that ended in ERROR.")
    canceled = fields.number(field=models.BigIntegerField)
    wait_seconds = models.FloatField(default=0.0, db_default=0.0, help_text="The sum of the waits before the last runs.")
    run_seconds = models.FloatField(default=0.0, db_default=0.0, help_text="The sum of the durations of the last runs.")
    waits = models.TextField(default="", db_default="", blank=True, help_text="The histogram of the waits.")
    runs = models.TextField(default="", db_default="", blank=True, help_text="The histogram of the runs.")

    class Meta:
        ordering = ("kind", "name", "seconds", "begins")
        constraints = (models.UniqueConstraint(fields=["kind", "name", "seconds", "slot"], name="jobqueue_sample_slot"),)
        indexes = (models.Index(fields=["seconds", "begins"], name="jobqueue_sample_age"),)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.seconds} s from {self.begins}"
