"""The jobs. All values that change often are in one row.

`lease_expires_at` and `heartbeat_at` are in no index, so that a heartbeat stays a heap-only update. The indexes
that a claim reads are partial, and each has the order in which it is read. So a claim does not read jobs that
have ended, wait or are parked.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from types import ModuleType
from typing import Any, ClassVar, Self

from django.db import models
from django.db.models import Case, F, Q, When
from django.utils.translation import gettext_lazy as _

from jobqueue.core import states
from jobqueue.core.answers import Answer
from jobqueue.core.json_columns import SLEEPS_UNTIL, as_dict
from jobqueue.core.moments import moment_of
from jobqueue.core.targets import Target
from jobqueue.db import MomentField, Now, aside
from jobqueue.exceptions import JobIsRunning
from jobqueue.managers.jobs import JobManager
from jobqueue.models import fields

TIMES = (*aside.TIMES, "finished_at", "lease_expires_at", "heartbeat_at")
TARGETED = ~Q(target="")
HELD = Q(holds_target=True) | Q(status__in=[states.Status.PAUSED, states.Status.ERROR])

NUMBERS = frozenset({"priority", "claim_rank", "attempt", "max_attempts", "failures", "crashes", "progress"})
UNBEGUN = Q(first_started_at__isnull=True, finished_at__isnull=True)


class Job(models.Model):
    """One call of a task: what to run and when, its state, the worker that runs it, and the result."""

    Status = states.Status
    WaitingFor = states.WaitingFor

    id = models.BigAutoField(primary_key=True)
    tenant = fields.text(200)
    queue = models.CharField(max_length=200, default="default", db_default="default")
    # At most 450 characters, because an entry of an index with the queue and the task must have at most 2,704 bytes.
    task = models.CharField(max_length=450, help_text="Dotted path of the task.")
    args = fields.json(list)
    kwargs = fields.json(dict)
    options = fields.json(dict)
    metadata = fields.json(dict)
    priority = fields.number(field=models.SmallIntegerField, help_text="-100 to 100; higher runs first.")
    claim_rank = models.GeneratedField(
        expression=F("priority") * -1,
        output_field=models.SmallIntegerField(),
        db_persist=True,
        help_text="Jobs are claimed in ascending order of this number.",
    )

    # Text, because the type varchar makes each check and each condition of an index longer.
    status = models.TextField(choices=Status.choices, default=Status.QUEUED, db_default=Status.QUEUED)
    waiting_for = models.TextField(choices=WaitingFor.choices, default="", db_default="", blank=True)
    run_at = fields.moment(help_text="The job is not queued before this time.")
    expires_at = fields.moment(help_text="The job is canceled if it has not started by then.")
    created_at = MomentField(db_default=Now())
    enqueued_at = MomentField(db_default=Now(), help_text="When it last became claimable.")
    first_started_at = fields.moment()
    started_at = fields.moment(help_text="When the current or last run started.")
    finished_at = fields.moment()
    stale_at = fields.moment()

    target = fields.text(200)
    holds_target = fields.flag()
    unique_key = fields.text(200)

    attempt = fields.number(help_text="The number of runs that have started.")
    max_attempts = fields.number(1)
    failures = fields.number(help_text="Runs that failed; limited by max_attempts.")
    crashes = fields.number(help_text="Runs whose worker was lost; limited by MAX_CRASHES.")
    recovery = models.CharField(
        max_length=16, choices=states.Recovery.choices, default=states.Recovery.REQUEUE, db_default=states.Recovery.REQUEUE
    )

    lease_owner = fields.text(64, help_text="The worker process that runs it.")
    lease_token = models.BigIntegerField(
        db_default=fields.Token(), help_text="The fence: starts at a random number and increases with each claim."
    )
    lease_expires_at = fields.moment()
    heartbeat_at = fields.moment()

    cancel_requested = fields.flag()
    cancel_outcome = fields.text(16)
    message = models.TextField(default="", db_default="", blank=True)
    error_key = fields.text(16, help_text="The kind of the error with which the job last ended in ERROR.")

    progress = fields.number(field=models.SmallIntegerField)
    phase = fields.text(200)
    result = fields.any_json(null=True, blank=True)
    history = fields.json(list, help_text="One entry for each run that did not succeed.")
    worker_ids = fields.json(list, help_text="The worker of each run.")
    webhook_url = models.TextField(default="", db_default="", blank=True)
    webhook_sent = fields.flag()
    backend = models.TextField(
        default="default", db_default="default", blank=True, help_text="The alias in TASKS of the backend that stored the job."
    )

    objects: ClassVar[JobManager[Job]] = JobManager()
    # `lifecycle.control` and `insight.report` are in layers above the models, so the app sets these attributes
    # when it is ready.
    control: ClassVar[ModuleType]
    reports: ClassVar[ModuleType]

    class Meta:
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        ordering = ("-id",)
        permissions = (
            ("cancel_job", "Can cancel jobs"),
            ("pause_job", "Can pause jobs"),
            ("resume_job", "Can resume jobs"),
            ("run_now_job", "Can run scheduled jobs now"),
            ("requeue_job", "Can run ended jobs again"),
            ("view_job_log", "Can view what jobs have logged"),
        )
        constraints = (
            # PostgreSQL parses the checks again for each statement, so they are short.
            models.CheckConstraint(
                condition=(
                    Q(fields.OneOf("status", "QUEUED", "RUNNING", "PAUSED", "ERROR", "SUCCESS", "CANCELED"), waiting_for="")
                    | Q(status="PENDING")
                    & (fields.OneOf("waiting_for", "children", "target") | Q(waiting_for="time", run_at__isnull=False))
                ),
                name="jobqueue_job_status",
            ),
            models.CheckConstraint(
                condition=fields.AllOrNone(
                    ~Q(status="RUNNING"), Q(lease_owner=""), Q(lease_expires_at__isnull=True), Q(heartbeat_at__isnull=True)
                ),
                name="jobqueue_job_lease",
            ),
            models.CheckConstraint(condition=Q(progress__gte=0, progress__lte=100), name="jobqueue_job_progress"),
            models.CheckConstraint(
                condition=Case(
                    When(target="", then=Q(holds_target=False)),
                    When(status="RUNNING", then=Q(holds_target=True)),
                    default=Q(holds_target=False) | ~Q(fields.OneOf("status", *states.FINAL)),
                    output_field=models.BooleanField(),
                ),
                name="jobqueue_job_holds_target",
            ),
            fields.time_constraint("jobqueue_job_times", *TIMES),
            models.UniqueConstraint(fields=["tenant", "target"], condition=Q(holds_target=True), name="jobqueue_job_one_holder"),
            models.UniqueConstraint(
                fields=["tenant", "unique_key"],
                condition=~Q(unique_key="") & Q(status__in=list(states.LIVE)),
                name="jobqueue_job_unique_key",
            ),
        )
        indexes = (
            # The tenant comes first, because a claim reads one tenant. So the backlog of another tenant does not
            # delay it.
            models.Index(fields=["tenant", "claim_rank", "id"], condition=Q(status="QUEUED"), name="jobqueue_job_next"),
            models.Index(fields=["tenant", "queue", "claim_rank", "id"], condition=Q(status="QUEUED"), name="jobqueue_job_next_in_queue"),
            # With the queue and the task, so that a list of one of them need not read the rows of all jobs in the index.
            models.Index(
                fields=["run_at", "id", "queue", "task"], condition=Q(status="PENDING", waiting_for="time"), name="jobqueue_job_due"
            ),
            models.Index(fields=["id"], condition=Q(status="PENDING", waiting_for="children"), name="jobqueue_job_parents"),
            # Two indexes for the line of a target, because a query for the best job of one part must not read the
            # other part.
            models.Index(
                fields=["tenant", "target", "claim_rank", "id"], condition=TARGETED & Q(status="QUEUED"), name="jobqueue_job_line_queued"
            ),
            models.Index(
                fields=["tenant", "target", "claim_rank", "id"],
                condition=Q(status="PENDING", waiting_for="target"),
                name="jobqueue_job_line_parked",
            ),
            models.Index(fields=["tenant", "target"], condition=TARGETED & HELD, name="jobqueue_job_held"),
            models.Index(fields=["lease_owner"], condition=Q(status="RUNNING"), name="jobqueue_job_running"),
            # With the id, so that retention can continue among many jobs that ended at the same time.
            models.Index(fields=["finished_at", "id"], condition=Q(status__in=list(states.ENDED)), name="jobqueue_job_ended"),
            # The status comes first, because a query for the few jobs in ERROR would otherwise read all canceled
            # jobs. The queue and the task are there for lists, as above.
            models.Index(
                fields=["status", "id", "queue", "task"],
                condition=Q(status__in=["PAUSED", "ERROR", "CANCELED"]),
                name="jobqueue_job_attention",
            ),
            models.Index(fields=["expires_at"], condition=UNBEGUN & Q(expires_at__isnull=False), name="jobqueue_job_expires"),
            models.Index(fields=["finished_at"], condition=Q(status="ERROR"), name="jobqueue_job_failed"),
            models.Index(fields=["error_key", "finished_at", "id"], condition=Q(status="ERROR"), name="jobqueue_job_error_kind"),
        )

    def __str__(self) -> str:
        return f"{self.task} #{self.pk}"

    @classmethod
    def from_db(cls, db: str | None, field_names: Collection[str], values: Collection[Any], **options: Any) -> Self:
        """Return the job of a row.

        SQLite stores any value in any column, so bytes are read as text, and a text in a number column as 0.
        """
        if not Job.objects.database.is_sqlite:
            return super().from_db(db, field_names, values, **options)
        row = [*values]
        for index, (name, value) in enumerate(zip(field_names, row, strict=True)):
            if name in NUMBERS and isinstance(value, str | bytes):
                row[index] = 0
            elif isinstance(value, bytes):
                row[index] = str(value)
        return super().from_db(db, field_names, row, **options)

    @property
    def place(self) -> states.Place:
        """The job's state in the table of moves."""
        return states.place(self.status, self.waiting_for)

    @property
    def tenant_target(self) -> Target:
        """The job's target; its name is empty if the job has none."""
        return Target(self.tenant, self.target)

    @property
    def assigned(self) -> bool:
        """Whether a worker has claimed the job but has not started to execute it."""
        return self.status == states.Status.RUNNING and self.started_at is None

    def sleeps(self, now: datetime) -> bool:
        """Return whether the sleep that the job has requested is not over. The job can be paused in the meantime."""
        until = moment_of(as_dict(self.options).get(SLEEPS_UNTIL))
        return until is not None and self.run_at is not None and self.run_at > now and self.run_at == until

    def pause(self) -> Answer:
        """Stop the job so that it can be resumed; see `jobqueue.pause`."""
        answer: Answer = self.control.pause(self.pk)
        return answer

    def cancel(self) -> Answer:
        """Stop the job for good; see `jobqueue.cancel`."""
        answer: Answer = self.control.cancel(self.pk)
        return answer

    def resume(self) -> Answer:
        """Run the job again; see `jobqueue.resume`."""
        answer: Answer = self.control.resume(self.pk)
        return answer

    def delete(self, using: Any = None, keep_parents: bool = False) -> tuple[int, dict[str, int]]:
        """Delete the job and release the next job of its target; raise `JobIsRunning` if it runs."""
        answer: Answer = self.control.delete(self.pk)
        if not answer:
            raise JobIsRunning(f"Job {self.pk}: {answer.reason}.")
        return 1, {self._meta.label: 1}

    def report(self, *, tracebacks: bool = False) -> dict[str, Any]:
        """Return all that operators may see of the job as JSON values, with secrets masked, and with tracebacks if requested."""
        values: dict[str, Any] = self.reports.report(self, tracebacks=tracebacks)
        return values

    @property
    def last_error(self) -> dict[str, Any] | None:
        """The newest entry of the history, or None."""
        return self.history[-1] if self.history else None
