"""The worker processes, for display.

Decisions about jobs depend on leases, not on this table. There is one exception: if a worker was lost while it
was stopping, this does not count as a crash of its jobs.
"""

from django.db import models
from django.utils.translation import gettext_lazy as _

from jobqueue.db import MomentField, Now, UUIDField
from jobqueue.models import fields


class Worker(fields.Row):
    """A worker process: where it runs, what it serves, and its last heartbeat."""

    class State(models.TextChoices):
        """The states of a worker."""

        RUNNING = "RUNNING", "running"
        DRAINING = "DRAINING", "draining"

    id = UUIDField(primary_key=True, editable=False)
    host = fields.text(255)
    pid = fields.number()
    queues = fields.json(list, help_text="The queues it serves; empty: all.")
    state = models.CharField(max_length=16, choices=State.choices, default=State.RUNNING, db_default=State.RUNNING)
    drain_requested = fields.flag(help_text="An operator has asked it to start no more jobs.")
    slots = fields.number(verbose_name=_("slots"), help_text="Jobs that it can run at once now.")
    running = fields.number(help_text="Jobs that it runs now.")
    stuck = fields.number(help_text="Threads that did not react to an interrupt and were abandoned.")
    services = fields.json(
        dict, help_text="For each service: seconds since its last successful turn, seconds in its current turn, failures in a row."
    )
    scaling = fields.json(
        dict, help_text="The last change of its slots: before, after, running jobs, claimable jobs, reason, age in seconds."
    )
    memory_mb = fields.number(help_text="The resident memory of the process, in MB.")
    stuck_runs = fields.json(list, help_text="The runs that do not stop: job, task, and the line where the thread is.")
    failed_modules = fields.json(dict, help_text="Modules of tasks and duties that it could not import, with the error of each.")
    version = fields.text(32, verbose_name=_("version"))
    release = fields.text(200, verbose_name=_("release"), help_text="The release of the project (setting RELEASE).")
    started_at = MomentField(db_default=Now())
    heartbeat_at = MomentField(db_default=Now())

    class Meta:
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        ordering = ("-heartbeat_at",)
        permissions = (("drain_worker", "Can drain workers"),)
        constraints = (fields.time_constraint("jobqueue_worker_times", "started_at", "heartbeat_at"),)

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"

    @property
    def shown_state(self) -> str:
        """Its state for operators: RUNNING, DRAINED (an operator has asked it to start no more jobs), or DRAINING (it ends)."""
        return "DRAINED" if self.drain_requested and self.state == self.State.RUNNING else str(self.state)

    @property
    def takes_jobs(self) -> bool:
        """Whether it starts jobs: it neither ends nor is drained."""
        return self.shown_state == self.State.RUNNING


class LeftWorker(fields.Row):
    """A worker process that has left, and how; only the newest are kept."""

    class How(models.TextChoices):
        """How a worker left."""

        STOPPED = "stopped", "stopped"
        DRAINED = "drained", "drained, then stopped"
        FAILED = "failed", "failed"
        KILLED = "killed", "killed"
        SILENT = "silent", "silent for a day"

    id = models.BigAutoField(primary_key=True)
    worker = UUIDField(editable=False)
    host = fields.text(255)
    pid = fields.number()
    version = fields.text(32)
    release = fields.text(200)
    how = models.CharField(max_length=16, choices=How.choices)
    reason = fields.text(200, help_text="Why it ended, if it knew.")
    started_at = MomentField(db_default=Now())
    left_at = MomentField(db_default=Now())

    class Meta:
        ordering = ("-id",)
        default_permissions = ()
        constraints = (fields.time_constraint("jobqueue_left_worker_times", "started_at", "left_at"),)

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"
