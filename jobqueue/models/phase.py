"""The phases of pipelines, and the children of jobs."""

from django.db import models
from django.db.models import Q

from jobqueue.db import MomentField, Now
from jobqueue.models import fields
from jobqueue.models.job import Job


class JobPhase(fields.Row):
    """One phase of one job: its progress, its result, and its checkpoint.

    The database does not check the foreign key, because a check would lock the job's row at each write and slow
    each deletion down.
    """

    class Status(models.TextChoices):
        """The states of a phase; the stored value is the name."""

        PENDING = "PENDING", "Pending"
        RUNNING = "RUNNING", "Running"
        SUCCESS = "SUCCESS", "Success"
        ERROR = "ERROR", "Error"
        CANCELED = "CANCELED", "Canceled"

    id = models.BigAutoField(primary_key=True)
    job = models.ForeignKey(Job, models.CASCADE, related_name="phases", db_constraint=False, db_index=False)
    position = models.PositiveSmallIntegerField(help_text="Starts at 0.")
    name = models.CharField(max_length=200)
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.PENDING, db_default=Status.PENDING)
    progress = fields.number(field=models.SmallIntegerField, help_text="0 to 100.")
    message = models.TextField(default="", db_default="", blank=True)
    result = fields.any_json(null=True, blank=True)
    checkpoint = fields.any_json(null=True, blank=True, help_text="The checkpoint at which the next run of the phase continues.")
    attempts = fields.number(help_text="The number of its runs.")
    started_at = fields.moment(help_text="When its last run started.")
    finished_at = fields.moment()

    class Meta:
        ordering = ("job", "position")
        constraints = (
            models.CheckConstraint(
                condition=Q(status__in=["PENDING", "RUNNING", "SUCCESS", "ERROR", "CANCELED"]), name="jobqueue_phase_status"
            ),
            models.CheckConstraint(condition=Q(progress__gte=0, progress__lte=100), name="jobqueue_phase_progress"),
            fields.time_constraint("jobqueue_phase_times", "started_at", "finished_at"),
            models.UniqueConstraint(fields=["job", "name"], name="jobqueue_phase_name"),
        )

    def __str__(self) -> str:
        return f"{self.name} of job {self.job_id}"


class JobDependency(models.Model):
    """The wait of a job for a child; `ended` is set when a poll finds that the child has ended. A deleted child counts as ended."""

    id = models.BigAutoField(primary_key=True)
    parent = models.ForeignKey(Job, models.CASCADE, related_name="children", db_constraint=False, db_index=False)
    child = models.ForeignKey(Job, models.DO_NOTHING, related_name="parents", db_constraint=False, db_index=False)
    ended = fields.flag()
    created_at = MomentField(db_default=Now())

    class Meta:
        verbose_name_plural = "job dependencies"
        constraints = (
            fields.time_constraint("jobqueue_dependency_times", "created_at"),
            models.UniqueConstraint(fields=["parent", "child"], name="jobqueue_dependency_once"),
        )
        indexes = (
            models.Index(fields=["parent", "child"], condition=Q(ended=False), name="jobqueue_dependency_open"),
            models.Index(fields=["child"], name="jobqueue_dependency_child"),
        )

    def __str__(self) -> str:
        return f"job {self.parent_id} waits for job {self.child_id}"
