"""The bulk actions: one verb on all jobs that a search finds."""

from django.db import models

from jobqueue.db import MomentField, Now
from jobqueue.models import fields


class BulkAction(models.Model):
    """A verb, a search, and how far the leader of the duty has come.

    Jobs are changed in the order of their numbers. `cursor` is the last number that was considered. It advances in
    the transaction that changes the jobs, so a leader that takes over changes no job twice and misses none.
    """

    class State(models.TextChoices):
        """The states of a bulk action; the stored value is the name."""

        OPEN = "OPEN", "Open"
        DONE = "DONE", "Done"
        STOPPED = "STOPPED", "Stopped"
        FAILED = "FAILED", "Failed"

    id = models.BigAutoField(primary_key=True)
    user = fields.text(200, help_text="The primary key of the user; empty: an operator of the command line.")
    actor = fields.text(300, help_text="The name of the user or operator, for the audit.")
    source = fields.text(16, help_text="Where it was requested: admin, rest or command.")
    verb = models.CharField(max_length=16)
    query = models.TextField(help_text="The search that selects the jobs.")
    upto_id = models.BigIntegerField(help_text="The newest job when it was requested; later jobs are not changed.")
    cursor = models.BigIntegerField(default=0, db_default=0)
    counted = fields.number(help_text="The jobs that the search found when it was requested, up to a limit.")
    done = fields.number(help_text="The jobs that were changed, or were requested to stop.")
    refused = fields.number()
    refusals = fields.json(dict, help_text="The number of refused jobs by reason.")
    stop = fields.flag()
    state = models.CharField(max_length=16, choices=State.choices, default=State.OPEN, db_default=State.OPEN)
    message = models.TextField(default="", db_default="", blank=True, help_text="Why it failed.")
    created_at = MomentField(db_default=Now())
    finished_at = fields.moment()

    class Meta:
        ordering = ("-id",)
        default_permissions = ()
        constraints = (fields.time_constraint("jobqueue_bulk_times", "created_at", "finished_at"),)
        indexes = (models.Index(fields=["id"], condition=models.Q(state="OPEN"), name="jobqueue_bulk_open"),)

    def __str__(self) -> str:
        return f"{self.verb} jobs: {self.query}"
