"""Glance: one statement a second that reports to several duties and to the dispatcher whether there is work.

The sweep of expired leases must run a query each second in any case. Its statement also asks for the work of the
other duties, and keeps the answers for those that this process leads. An answer is valid for two seconds. If another
process leads the sweep, or the sweep hangs or fails, each duty runs its own query. A duty also does so when it is
notified. Threads that rest for long are notified when the statement finds work that the one before did not find.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import QuerySet, Subquery

from jobqueue.core import states
from jobqueue.db import Now
from jobqueue.managers.jobs import JobQuerySet
from jobqueue.models import BackgroundJobLease, Job, Schedule, WebhookDelivery

FRESH_SECONDS = 2.0


class Glance(NamedTuple):
    """What work there may be at the monotonic time `at`. Due times are monotonic, and None if nothing is due."""

    at: float
    promote_at: float | None
    deliver_at: float | None
    expired: bool
    waits: bool
    parked: bool
    schedules: bool
    queued: bool
    lapsed: bool


class Glances:
    """The last glance of a process, which its threads write and read."""

    def __init__(self) -> None:
        """Start without a glance."""
        self._last: Glance | None = None
        self.tell_of_queued: Callable[[], object] = _nobody  # called if a job is QUEUED and the last glance saw none
        self.tell_of_delivery: Callable[[], object] = _nobody  # called if a webhook waits to be sent and the last glance saw none
        self._statement: tuple[str, tuple[Any, ...]] | None = None

    @property
    def fresh(self) -> Glance | None:
        """The last glance, or None if it is too old."""
        last = self._last
        return last if last is not None and time.monotonic() - last.at < FRESH_SECONDS else None

    def look(self, lease: str) -> Glance | None:
        """Run the statement and keep the answers, which come with the row of this lease; return None if there is no such row."""
        at = time.monotonic()
        database = Job.objects.database
        if self._statement is None:
            self._statement = _compiled(lease)
        rows = database.rows(*self._statement)
        if not rows:
            self._last = None
            return None
        now, run_at, next_attempt = (None if value is None else database.moment(value) for value in rows[0][:3])
        found = [value is not None for value in rows[0][3:]]
        before, self._last = self._last, (seen := Glance(at, _moment(run_at, now, at), _moment(next_attempt, now, at), *found))
        if seen.queued and not (before and before.queued):
            self.tell_of_queued()
        if seen.deliver_at is not None and not (before and before.deliver_at is not None):
            self.tell_of_delivery()
        return seen


def _nobody() -> None:
    """Do nothing."""


def _compiled(lease: str) -> tuple[str, tuple[Any, ...]]:
    """Return the statement and its parameters. Compiling it costs more than sending it, and it never changes."""
    wanted = _wanted()
    rows = BackgroundJobLease.objects.current.filter(pk=lease).order_by().annotate(now=Now(), **wanted).values_list("now", *wanted)
    sql, params = rows.query.get_compiler(using=rows.db).as_sql()
    return sql, tuple(params)


def _moment(when: datetime | None, now: datetime | None, at: float) -> float | None:
    """Return a time of the database as a monotonic time. It is early by the duration of the query."""
    return None if when is None or now is None else at + (when - now).total_seconds()


def _wanted() -> dict[str, Subquery]:
    # Each subquery uses the order of its own index and a limit, so it reads one entry whatever row count the planner
    # expects.
    jobs = Job.objects.current
    return {
        "run_at": _first(_pending(jobs, states.WaitingFor.TIME).filter(run_at__isnull=False).order_by("run_at"), "run_at"),
        "next_attempt": _first(
            WebhookDelivery.objects.current.filter(status=WebhookDelivery.Status.PENDING).order_by("next_attempt_at"), "next_attempt_at"
        ),
        "expired": _first(jobs.expired(), "pk"),
        "waits": _first(_pending(jobs, states.WaitingFor.CHILDREN).order_by("pk"), "pk"),
        "parked": _first(_pending(jobs, states.WaitingFor.TARGET).order_by("tenant", "target", "claim_rank", "pk"), "pk"),
        "schedules": _first(Schedule.objects.current.active(), "pk"),
        "queued": _first(jobs.queued(), "pk"),
        "lapsed": _first(jobs.lapsed().order_by("expires_at"), "pk"),
    }


def _pending(jobs: JobQuerySet[Job], waiting_for: str) -> JobQuerySet[Job]:
    return jobs.filter(status=states.Status.PENDING, waiting_for=waiting_for)


def _first(rows: QuerySet[Any], column: str) -> Subquery:
    return Subquery(rows.values(column)[:1])
