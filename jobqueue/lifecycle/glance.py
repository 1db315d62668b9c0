"""Glance: one statement a second that tells several duties, and the dispatcher beside them, whether there is anything to do.

The sweep of expired leases must look each second whatever happens. So its statement asks for the others, too, and keeps what it saw where
those find it that this process leads beside it. An answer counts for two seconds: where the sweep is led elsewhere, hangs or
fails, each duty asks for itself, as it does when it was told of something. Those who rest for long are told of what is seen for the first
time.
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
    """Tell what there may be to do, as it was at the monotonic time `at`; monotonic times of what is due, None where nothing is."""

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
    """Keep the last glance of a process; its threads look and read."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._last: Glance | None = None
        self.tell_of_queued: Callable[[], object] = _nobody  # a job is QUEUED, where the look before saw none
        self.tell_of_delivery: Callable[[], object] = _nobody  # and so with a webhook that waits to be sent
        self._statement: tuple[str, tuple[Any, ...]] | None = None

    @property
    def fresh(self) -> Glance | None:
        """The last glance, where it is still true enough."""
        last = self._last
        return last if last is not None and time.monotonic() - last.at < FRESH_SECONDS else None

    def look(self, lease: str) -> Glance | None:
        """Look now; the row of this lease carries the answers, without it there are none (None)."""
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
    """Tell nobody."""


def _compiled(lease: str) -> tuple[str, tuple[Any, ...]]:
    """Return the statement and its parameters: to put it together costs more than to send it, and it is always the same."""
    wanted = _wanted()
    rows = BackgroundJobLease.objects.current.filter(pk=lease).order_by().annotate(now=Now(), **wanted).values_list("now", *wanted)
    sql, params = rows.query.get_compiler(using=rows.db).as_sql()
    return sql, tuple(params)


def _moment(when: datetime | None, now: datetime | None, at: float) -> float | None:
    """Return a time of the database as a monotonic one, early by how long the answer took."""
    return None if when is None or now is None else at + (when - now).total_seconds()


def _wanted() -> dict[str, Subquery]:
    # Each in the order of its own index and with a limit: whatever the planner believes of how many there are, it reads one entry.
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


def _pending(jobs: JobQuerySet, waiting_for: str) -> JobQuerySet:
    return jobs.filter(status=states.Status.PENDING, waiting_for=waiting_for)


def _first(rows: QuerySet[Any], column: str) -> Subquery:
    return Subquery(rows.values(column)[:1])
