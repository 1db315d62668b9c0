"""The base classes of duties: objects whose `run_once` is called again and again, does what is due, and returns a report.

A duty knows neither threads nor leadership; the worker that calls `run_once` handles both. A duty that one worker at a time leads runs
with a fence (see ``duties/leadership.py``). Each write transaction that it opens with ``Job.objects.database.atomic()`` first checks that
the worker still leads, and raises `LeadershipLost` if it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from django.db.models import QuerySet

from jobqueue.core import duty_rules

Strategy = Literal["lease", "everyone"]
# The names of the built-in duties (see ``duties/builtin.py``). A duty of the project must not use one of them.
RESERVED = duty_rules.BUILTIN


@dataclass(frozen=True, slots=True)
class Report:
    """The report of one run of a duty.

    `items` counts the rows that were moved, deleted or created. `set_aside` counts those that could not be, each with a reason in the log.
    `again` requests the next run at once, since there is more to do. Otherwise it follows after `pause_seconds`, or after the interval of
    the duty if that is None.
    """

    items: int = 0
    set_aside: int = 0
    again: bool = False
    pause_seconds: float | None = None


class Duty:
    """The base class of duties; one instance lives for one term of leadership, so it may remember its progress."""

    name: str
    interval_seconds: float = 1.0
    strategy: Strategy = "lease"
    rotate_after_seconds: float | None = None
    first_pause_seconds = 0.0  # how long a worker that becomes the leader waits before the first run
    is_short = False  # whether it shares a thread and a connection with the other short duties of the worker
    releases_jobs = False  # whether its items are jobs that can be claimed now, so that the dispatcher of this process is woken
    longest_run_seconds: float | None = 30.0  # then its connection is cut; after twice this time, the worker gives up the duty

    def can_run(self) -> bool:
        """Return whether this process can run the duty; a process that cannot never leads it."""
        return True

    def run_once(self, now: datetime) -> Report:
        """Do what is due at `now`, the time of the database, in short transactions; raise the error if it cannot be done."""
        raise NotImplementedError

    @property
    def pause_seconds(self) -> float:
        """The pause after a run whose report names none, and after a check that found nothing due."""
        return self.interval_seconds

    def questions(self) -> Sequence[QuerySet[Any]]:
        """Return queries of one column, whose first rows show whether a run would find work.

        The worker sends the questions of all of its duties in one statement. A duty without questions runs at each interval.
        """
        return ()

    def seconds_to_work(self, now: datetime, answers: Sequence[Any]) -> float | None:
        """Return in how many seconds a run would find work, or None if nothing waits.

        `answers` has the first row of each question, or None. `now` is the time of the database in the same statement.
        """
        return 0.0 if any(answer is not None for answer in answers) else None

    def notify(self) -> None:
        """Record before the next run that there may be new work. Any thread may call this."""

    def end(self) -> list[str]:
        """End the operations in flight after the last run; return the names of those that did not end."""
        return []

    @property
    def end_seconds(self) -> float:
        """The seconds that the current run and `end` may take when the worker stops."""
        return 0.5

    def stop_waiting(self) -> None:
        """Make `end` return without waiting any longer. Another thread calls this."""


class FunctionDuty(Duty):
    """A duty of the project, made by ``@duty`` from a function."""

    longest_run_seconds = None  # only the project knows how long it may take

    def __init__(
        self, name: str, function: Callable[[], object], interval_seconds: float, strategy: Strategy, rotate_after_seconds: float | None
    ) -> None:
        """Keep the arguments of the decorator."""
        self.name = name
        self.function = function
        self.interval_seconds = interval_seconds
        self.strategy = strategy
        self.rotate_after_seconds = rotate_after_seconds

    def run_once(self, now: datetime) -> Report:
        """Call the function; return its `Report`, or a report whose `items` is the whole number that it returned, or 0."""
        done = self.function()
        if isinstance(done, Report):
            return done
        return Report(items=done if isinstance(done, int) and not isinstance(done, bool) else 0)
