"""Every query on schedules and their ticks, by name."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.db import models, router
from django.db.models import F, Q, Value
from django.db.models.functions import Cast, Coalesce, Concat

from jobqueue.core import repeats
from jobqueue.core.masking import PLAIN
from jobqueue.core.texts import exception_summary
from jobqueue.db import MomentField, is_outage

if TYPE_CHECKING:
    from jobqueue.models import Schedule, ScheduleTick  # noqa: F401 - the base classes name them

# A last time so far ahead of now says that the clock was set back: without this, nothing would be due until it has caught up.
CLOCK_WAS_AHEAD = timedelta(hours=1)


class ScheduleQuerySet(models.QuerySet["Schedule"]):
    """Name the sets of schedules that the product looks at."""

    def active(self) -> ScheduleQuerySet:
        """Return those that are enqueued when they are due."""
        return self.filter(enabled=True, retired_at__isnull=True)

    def inactive(self) -> ScheduleQuerySet:
        """Return those that are disabled or retired."""
        return self.filter(Q(enabled=False) | Q(retired_at__isnull=False))

    def failing(self) -> ScheduleQuerySet:
        """Return the active ones whose job could not be enqueued at the last try."""
        return self.active().filter(retry_at__isnull=False).exclude(last_error="")

    def due(self, now: datetime) -> ScheduleQuerySet:
        """Return those whose time has come, but for those that failed a moment ago; and those that a wrong clock has put off."""
        come = Q(next_at__lte=now) | Q(next_at__isnull=True) | Q(last_at__gt=now + CLOCK_WAS_AHEAD)
        return self.active().filter(come).ready(now)

    def ready(self, now: datetime) -> ScheduleQuerySet:
        """Return those that did not fail a moment ago."""
        return self.filter(Q(retry_at__isnull=True) | Q(retry_at__lte=now))

    def of(self, service: str) -> ScheduleQuerySet:
        """Return those of one service; "" is that of all which have no name."""
        return self.filter(service=service)

    def planned_otherwise(self, rules: str) -> ScheduleQuerySet:
        """Return those whose next time was not computed from the timing that they have, by this version of the rules of time zones."""
        interval = Coalesce(Cast("interval_seconds", models.CharField()), Value(""))
        bar = Value("|")
        return self.exclude(planned=Concat("cron", bar, interval, bar, "time_zone", Value(f"|{rules}"), output_field=models.TextField()))

    def locked(self) -> ScheduleQuerySet:
        """Lock the rows, waiting for them, so that the foreign keys of ticks do not collide."""
        return self.select_for_update(no_key=True)

    def unlocked(self) -> ScheduleQuerySet:
        """Lock the rows that nobody else has locked, and pass over the others."""
        return self.select_for_update(no_key=True, skip_locked=True)


class ScheduleManager(models.Manager.from_queryset(ScheduleQuerySet)):  # type: ignore[misc]
    """Run the queries on the database that schedules are written to, also for reading where a decision depends on it."""

    @property
    def current(self) -> ScheduleQuerySet:
        """All schedules, read where they are written."""
        return ScheduleQuerySet(self.model, using=router.db_for_write(self.model))

    def by_name(self) -> dict[str, Schedule]:
        """Return every schedule by its name; one whose row cannot be read is logged, and left out."""
        try:
            return {row.name: row for row in self.current}
        except Exception as error:
            if is_outage(error):
                raise
        found = {}
        for name in self.current.values_list("name", flat=True):
            try:
                found[name] = self.current.get(name=name)
            except Exception as error:
                if is_outage(error):
                    raise
                repeats.log(logging.ERROR, "Schedule %s: its row cannot be read: %s", name, exception_summary(error, PLAIN), kind=name)
        return found

    def next_wake(self, service: str) -> datetime | None:
        """Return when the next one of a service is due, or is tried again; None where none is ever."""
        found = (
            self.current.active()
            .of(service)
            .aggregate(
                due=models.Min("next_at", filter=Q(retry_at__isnull=True)), again=models.Min("retry_at", filter=Q(retry_at__isnull=False))
            )
        )
        return min((one for one in found.values() if one is not None), default=None)


class ScheduleTickQuerySet(models.QuerySet["ScheduleTick"]):
    """Name the sets of ticks that the product looks at."""

    def forgettable(self, now: datetime, keep: timedelta) -> ScheduleTickQuerySet:
        """Return those that no clock can bring back: older by `keep` than now and than the last tick of the same schedule."""
        last = models.ExpressionWrapper(F("schedule__last_at") - keep, output_field=MomentField())
        return self.filter(nominal_at__lt=now - keep).filter(nominal_at__lt=last)


class ScheduleTickManager(models.Manager.from_queryset(ScheduleTickQuerySet)):  # type: ignore[misc]
    """Run the queries on the database that ticks are written to."""

    @property
    def current(self) -> ScheduleTickQuerySet:
        """All ticks, read where they are written."""
        return ScheduleTickQuerySet(self.model, using=router.db_for_write(self.model))
