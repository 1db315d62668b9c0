"""What tasks have written to the log."""

from django.db import models

from jobqueue.db import MomentField, Now
from jobqueue.models import fields
from jobqueue.models.job import Job


class JobLog(fields.Row):
    """Some lines of the log of one run, masked: those that were written together.

    One row for many lines, because most jobs log a few lines and are written once, and ten rows cost the database about as much as five
    jobs. The lines of a run are numbered from 1 on. Old rows are deleted when a run logs more than the limit, so the number of the first
    line says how many lines are missing. The database does not check the foreign key, as for events.
    """

    id = models.BigAutoField(primary_key=True)
    job = models.ForeignKey(Job, models.CASCADE, related_name="log", db_constraint=False, db_index=False)
    attempt = fields.number()
    at = MomentField(db_default=Now(), help_text="The time of the first line.")
    first = fields.number(help_text="The number of the first line in its run.")
    last = fields.number(help_text="The number of the last line in its run.")
    level = fields.number(field=models.SmallIntegerField, help_text="The highest level of the lines, for example 30 for WARNING.")
    lines = models.TextField(help_text="A JSON list; for each line the milliseconds since `at`, the level, the logger, and the text.")

    class Meta:
        ordering = ("id",)
        default_permissions = ()
        constraints = (fields.time_constraint("jobqueue_log_times", "at"),)
        indexes = (models.Index(fields=["job", "id"], name="jobqueue_log_of_job"),)

    def __str__(self) -> str:
        return f"lines {self.first} to {self.last} of run {self.attempt} of job {self.job_id}"
