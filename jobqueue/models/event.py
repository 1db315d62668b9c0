"""The event log: one row for each event of a job, written in the transaction of the move that it reports."""

from django.db import models
from django.db.models import Q

from jobqueue.db import MomentField, Now
from jobqueue.models import fields
from jobqueue.models.job import Job


class JobEvent(models.Model):
    """An event of a job.

    The events of a job are written while its row is locked, so their ids rise in the order in which they happened.
    Across jobs, the order of ids is not the order of commits. Readers therefore use `xid`, the transaction that wrote
    the row (see ``events/stream.py``). The database does not check the foreign key `job`: the last event of a deleted
    job outlives it, and a check would lock the job's row at each insert.
    """

    id = models.BigAutoField(primary_key=True)
    job = models.ForeignKey(Job, models.CASCADE, related_name="events", db_constraint=False, db_index=False)
    name = models.CharField(max_length=40, help_text="For example job.started.")
    at = MomentField(db_default=Now())
    attempt = fields.number()
    tenant = fields.text(200)
    target = fields.text(200)
    data = fields.any_json(null=True, blank=True, help_text="The data of this kind of event: a JSON object, or nothing.")
    xid = models.BigIntegerField(
        null=True, editable=False, db_default=fields.CurrentTransaction(), help_text="The transaction that wrote it (PostgreSQL)."
    )

    class Meta:
        ordering = ("id",)
        constraints = (fields.time_constraint("jobqueue_event_times", "at"),)
        indexes = (
            models.Index(fields=["job", "id"], name="jobqueue_event_of_job"),
            models.Index(fields=["xid"], name="jobqueue_event_xid"),
            models.Index(fields=["tenant", "target", "id"], condition=~Q(target=""), name="jobqueue_event_of_target"),
        )

    def __str__(self) -> str:
        return f"{self.name} of job {self.job_id}"
