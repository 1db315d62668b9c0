"""The queries on schedules and their ticks."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Generic, Self

from django.db import models, router
from django.db.models import F, Q, Value
from django.db.models.functions import Cast, Coalesce, Concat

from jobqueue.core import repeats
from jobqueue.core.masking import PLAIN
from jobqueue.core.texts import exception_summary
from jobqueue.db import MomentField, is_outage
from jobqueue.managers import Row

# If a schedule was planned, or had its last time, further in the future than this, the clock was set back. Without
# this rule, the schedule would not be due until the clock has reached that time again.
CLOCK_WAS_AHEAD = timedelta(hours=1)


class ScheduleQuerySet(models.QuerySet[Row]):
    """Sets of schedules."""

    def active(self) -> Self:
        """Return the schedules that are enqueued when they are due."""
        return self.filter(enabled=True, retired_at__isnull=True)

    def inactive(self) -> Self:
        """Return the schedules that are disabled or retired."""
        return self.filter(Q(enabled=False) | Q(retired_at__isnull=False))

    def failing(self) -> Self:
        """Return the active schedules whose job could not be enqueued at the last try."""
        return self.active().filter(retry_at__isnull=False).exclude(last_error="")

    def due(self, now: datetime) -> Self:
        """Return the schedules that are due, also those that a wrong clock has postponed, but not those that failed a moment ago."""
        was_ahead = Q(last_at__gt=now + CLOCK_WAS_AHEAD) | Q(counted_from__gt=now + CLOCK_WAS_AHEAD)
        return self.active().filter(Q(next_at__lte=now) | Q(next_at__isnull=True) | was_ahead).ready(now)

    def ready(self, now: datetime) -> Self:
        """Return the schedules that did not fail, or whose next try is due."""
        return self.filter(Q(retry_at__isnull=True) | Q(retry_at__lte=now))

    def of(self, service: str) -> Self:
        """Return the schedules of one service; "" is the service of all workers without a name."""
        return self.filter(service=service)

    def planned_otherwise(self, rules: str) -> Self:
        """Return the schedules whose next time was computed from another timing, or with another version of the time zone rules."""
        interval = Coalesce(Cast("interval_seconds", models.CharField()), Value(""))
        bar = Value("|")
        return self.exclude(planned=Concat("cron", bar, interval, bar, "time_zone", Value(f"|{rules}"), output_field=models.TextField()))

    def locked(self) -> Self:
        """Lock the rows, and wait for their locks, in a mode that does not conflict with the foreign keys of ticks."""
        return self.select_for_update(no_key=True)

    def unlocked(self) -> Self:
        """Lock the rows that are not locked, and skip the rest."""
        return self.select_for_update(no_key=True, skip_locked=True)


class ScheduleManager(models.Manager.from_queryset(ScheduleQuerySet), Generic[Row]):  # type: ignore[misc]
    """The queries on schedules, on the database that they are written to. Reads use it if a decision depends on them."""

    @property
    def current(self) -> ScheduleQuerySet[Row]:
        """All schedules, read from the database that they are written to."""
        return ScheduleQuerySet(self.model, using=router.db_for_write(self.model))

    def by_name(self) -> dict[str, Row]:
        """Return every schedule by its name. A schedule whose row cannot be read is logged and omitted."""
        rows: Iterable[Any] = self.current
        try:
            return {row.name: row for row in rows}
        except Exception as error:
            if is_outage(error):
                raise
        schedules = {}
        for name in self.current.values_list("name", flat=True):
            try:
                schedules[name] = self.current.get(name=name)
            except Exception as error:
                if is_outage(error):
                    raise
                repeats.log(logging.ERROR, "Schedule %s: its row cannot be read: %s", name, exception_summary(error, PLAIN), kind=name)
        return schedules

    def next_wake(self, service: str) -> datetime | None:
        """Return when the next schedule of a service is due, or is tried again; None if there is none."""
        next_times = (
            self.current.active()
            .of(service)
            .aggregate(
                due=models.Min("next_at", filter=Q(retry_at__isnull=True)), again=models.Min("retry_at", filter=Q(retry_at__isnull=False))
            )
        )
        return min((time for time in next_times.values() if time is not None), default=None)


class ScheduleTickQuerySet(models.QuerySet[Row]):
    """Sets of ticks."""

    def forgettable(self, now: datetime, keep: timedelta) -> Self:
        """Return the ticks that can be deleted, because no change of the clock makes them due again.

        They are older by `keep` than now and than the last tick of their schedule.
        """
        last = models.ExpressionWrapper(F("schedule__last_at") - keep, output_field=MomentField())
        return self.filter(nominal_at__lt=now - keep).filter(nominal_at__lt=last)


class ScheduleTickManager(models.Manager.from_queryset(ScheduleTickQuerySet), Generic[Row]):  # type: ignore[misc]
    """The queries on ticks, on the database that they are written to."""

    @property
    def current(self) -> ScheduleTickQuerySet[Row]:
        """All ticks, read from the database that they are written to."""
        return ScheduleTickQuerySet(self.model, using=router.db_for_write(self.model))
