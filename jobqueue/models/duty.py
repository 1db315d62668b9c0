"""The leaders of duties: one row for each duty, which one worker at a time leads."""

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from jobqueue.managers.duties import LeaseManager
from jobqueue.models import fields


class BackgroundJobLease(models.Model):
    """The lease of one duty.

    The holder of a term and the time at which it was acquired identify the term. A row is free if it has no holder
    and no heartbeat. It can be taken if its heartbeat is older than `DUTY_LEASE_SECONDS`, by the database's clock.
    """

    job_name = models.CharField(max_length=200, primary_key=True, help_text="The name of the duty.")
    held_by_worker_id = fields.text(64, help_text="The worker process that leads it; empty: none.")
    lease_acquired_at = fields.moment()
    heartbeat_at = fields.moment()
    metadata = fields.json(dict, help_text="Its last run: duration, number of items, error.")

    objects: ClassVar[LeaseManager["BackgroundJobLease"]] = LeaseManager()

    class Meta:
        ordering = ("job_name",)
        verbose_name = _("duty")
        verbose_name_plural = _("duties")
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
