"""The schedules: one row for each schedule, and one for each of its nominal times that got a job."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from jobqueue.core.cron import MAX_CRON, MAX_ZONE, MISSED, Timing
from jobqueue.core.masking import mask_text
from jobqueue.db import MomentField, Now
from jobqueue.managers.schedules import ScheduleManager, ScheduleTickManager
from jobqueue.models import fields


class Schedule(fields.Row):
    """A job that is enqueued again and again, with its timing and its progress.

    `next_at` is the next nominal time. The transaction that advances it holds the lock of the row, and makes the job.
    """

    class Source(models.TextChoices):
        """The origin of a schedule."""

        CODE = "code", "code"
        ADMIN = "admin", "admin"

    class Missed(models.TextChoices):
        """What to do about the times that passed while no worker could enqueue."""

        SKIP = "skip", "skip them"
        ONCE = "once", "run once, late"
        ALL = "all", "run all, up to a limit"

    name = models.CharField(max_length=200, unique=True)
    source = models.CharField(max_length=16, choices=Source.choices, default=Source.ADMIN, db_default=Source.ADMIN, editable=False)
    task = models.CharField(max_length=450, help_text="Dotted path of a registered task.")
    args = fields.json(list, help_text="Positional arguments: a JSON list.")
    kwargs = fields.json(dict, help_text="Arguments by name: a JSON object.")
    queue = fields.text(200, help_text=_("Empty: the task's own."))
    priority = models.SmallIntegerField(null=True, blank=True, help_text=_("-100 to 100; empty: the task's own."))
    tenant = fields.text(200, help_text=_("Empty: the task's own."))
    target = fields.text(200, help_text=_("Empty: the task's own."))

    cron = fields.text(MAX_CRON, help_text=_("Minute, hour, day of the month, month, day of the week. Or an interval."))
    interval_seconds = models.PositiveIntegerField(null=True, blank=True, help_text=_("Counted from 1970 in UTC: 3600 is every full hour."))
    time_zone = models.CharField(
        max_length=MAX_ZONE, default=timezone.get_default_timezone_name, help_text=_("The time zone of the cron expression.")
    )
    missed = models.CharField(
        max_length=16,
        choices=Missed.choices,
        default=Missed.ONCE,
        db_default=Missed.ONCE,
        help_text=_("What to do with times that were missed during a downtime."),
    )
    missed_limit = fields.number(100, help_text=_("The maximum number of missed times that run, if all of them run."))
    enabled = models.BooleanField(default=True, db_default=True)

    retired_at = fields.moment(help_text="When a worker found that the code no longer declares it.")
    next_at = fields.moment(help_text="The next nominal time.")
    last_at = fields.moment(help_text="The last nominal time whose job was enqueued.")
    last_job_id = models.BigIntegerField(null=True, blank=True)
    last_error = models.TextField(default="", db_default="", blank=True, help_text="Why it could not be enqueued.")
    retry_at = fields.moment(help_text="When the enqueue is retried after an error.")
    planned = models.TextField(
        default="", db_default="", blank=True, editable=False, help_text="The timing from which its next time was computed."
    )
    planned_at = fields.moment(editable=False, help_text="The next time as computed.")
    counted_from = fields.moment(editable=False, help_text="The time from which the next time was computed.")
    service = fields.text(50, editable=False, help_text="The SERVICE whose workers enqueue it; empty: all workers without a SERVICE.")
    declared_in = fields.text(200, editable=False, help_text="The module that declares it.")
    conflict = models.TextField(default="", db_default="", blank=True, editable=False, help_text="The other service that declares it.")
    changed_at = MomentField(db_default=Now())

    objects: ClassVar[ScheduleManager[Schedule]] = ScheduleManager()

    class Meta:
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        ordering = ("name",)
        permissions = (
            ("enable_schedule", "Can enable schedules"),
            ("disable_schedule", "Can disable schedules"),
            ("run_now_schedule", "Can run schedules now"),
        )
        constraints = (
            models.CheckConstraint(condition=~Q(name="") & ~Q(task=""), name="jobqueue_schedule_name"),
            models.CheckConstraint(condition=Q(missed__in=MISSED), name="jobqueue_schedule_missed"),
            models.CheckConstraint(
                condition=Q(cron="", interval_seconds__isnull=False, interval_seconds__gte=1)
                | Q(interval_seconds__isnull=True) & ~Q(cron=""),
                name="jobqueue_schedule_timing",
            ),
            fields.time_constraint(
                "jobqueue_schedule_times", "retired_at", "next_at", "planned_at", "counted_from", "last_at", "retry_at", "changed_at"
            ),
        )
        indexes = (models.Index(fields=("next_at",), condition=Q(enabled=True, retired_at__isnull=True), name="jobqueue_schedule_due"),)

    def __str__(self) -> str:
        return mask_text(self.name)

    @property
    def timing(self) -> Timing:
        """The rule that determines when the schedule is due."""
        return Timing(self.cron, self.interval_seconds, self.time_zone)

    @property
    def active(self) -> bool:
        """Whether it is enqueued when it is due."""
        return self.enabled and self.retired_at is None

    @property
    def options(self) -> dict[str, Any]:
        """The options of ``.using()`` in which its jobs differ from the task."""
        given = {"queue_name": self.queue, "priority": self.priority, "tenant": self.tenant, "target": self.target}
        return {name: value for name, value in given.items() if value not in ("", None)}


class ScheduleTick(models.Model):
    """The record that a nominal time got its job. The row outlives the job."""

    schedule = models.ForeignKey(Schedule, models.CASCADE, related_name="ticks", db_index=False)
    nominal_at = MomentField()
    job_id = models.BigIntegerField(null=True)
    created_at = MomentField(db_default=Now())

    objects: ClassVar[ScheduleTickManager[ScheduleTick]] = ScheduleTickManager()

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("schedule", "nominal_at"), name="jobqueue_tick_once"),
            fields.time_constraint("jobqueue_tick_times", "nominal_at", "created_at"),
        )
        indexes = (models.Index(fields=("nominal_at",), name="jobqueue_tick_age"),)

    def __str__(self) -> str:
        return f"{self.schedule_id} at {self.nominal_at:%Y-%m-%d %H:%M:%S}"
