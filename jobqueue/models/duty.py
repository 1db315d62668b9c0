"""Who does what for all: one row for each duty that one worker at a time leads."""

from django.db import models

from jobqueue.managers.duties import LeaseManager
from jobqueue.models import fields


class BackgroundJobLease(models.Model):
    """Hold the lease of one duty.

    A term of leadership is named by its holder and the time it was acquired. A row is free where it has no holder and no heartbeat, and
    for the taking where its heartbeat is older than 10 s by the database's clock.
    """

    job_name = models.CharField(max_length=200, primary_key=True, help_text="The name of the duty.")
    held_by_worker_id = fields.text(64, help_text="The worker process that leads it; empty: nobody.")
    lease_acquired_at = fields.moment()
    heartbeat_at = fields.moment()
    metadata = fields.json(dict, help_text="Its last run, how long it took, what it did, what went wrong.")

    objects = LeaseManager()

    class Meta:
        ordering = ("job_name",)
        verbose_name = "duty"
        verbose_name_plural = "duties"
        permissions = (("release_backgroundjoblease", "Can release the leaders of duties"),)
        constraints = (
            models.CheckConstraint(condition=~models.Q(job_name=""), name="jobqueue_duty_name"),
            models.CheckConstraint(
                condition=(
                    models.Q(held_by_worker_id="", lease_acquired_at__isnull=True, heartbeat_at__isnull=True)
                    | models.Q(lease_acquired_at__isnull=False, heartbeat_at__isnull=False) & ~models.Q(held_by_worker_id="")
                ),
                name="jobqueue_duty_lease",
            ),
            fields.time_constraint("jobqueue_duty_times", "lease_acquired_at", "heartbeat_at"),
        )

    def __str__(self) -> str:
        return self.job_name
