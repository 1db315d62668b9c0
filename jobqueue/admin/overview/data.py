"""What the Overview reads. A process keeps each result for a while, so fifty open pages cost the database what one costs.

The key of a result contains the database, its schema, and the condition of `VISIBLE_JOBS` if the user may not see all jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

from jobqueue.access import visible
from jobqueue.core import recent
from jobqueue.core.loads import QUEUE, TASK
from jobqueue.db import Now
from jobqueue.insight import error_kinds, narrowed
from jobqueue.insight.error_kinds import ErrorKind
from jobqueue.insight.fleet import Member, fleet
from jobqueue.insight.histories import Histories, History, add_histograms, histories, totals
from jobqueue.insight.problems import Problem, problems
from jobqueue.insight.queues import QueueState
from jobqueue.models import Job, Queue, Schedule

T = TypeVar("T")
SECONDS: Final = 10.0  # samples come every 10 s
SLOW_SECONDS: Final = 30.0  # of what changes seldom
PROBLEM_SECONDS: Final = 45.0  # about fifty statements
RANGE_SECONDS: Final = {"1h": SECONDS, "24h": 60.0, "14d": 60.0}
MAX_TASKS = 8
MAX_SCHEDULES = 8
MAX_CHARTED = 20  # queues whose quantiles are read


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks with the most run time, and the run time of all tasks."""

    longest: list[History]
    run_seconds: float


def _kept(name: str, seconds: float, function: Callable[[], T], *, more: Any = "", user: Any = None) -> T:
    sight = visible.sight(user) if user is not None else None
    return recent.kept((name, Job.objects.database.scope, more, sight), seconds, function)


def queue_loads(period: str) -> Histories:
    """Return the loads of all queues over a range, with the histograms of the waits of the busiest."""

    def read() -> Histories:
        found = histories(QUEUE, period)
        busiest = sorted(found.by_name.values(), key=lambda history: -history.total.weight)[:MAX_CHARTED]
        add_histograms(QUEUE, period, busiest, ["waits"], end=found.end)
        return found

    return _kept("queue_loads", RANGE_SECONDS[period], read, more=period)


def task_loads(period: str) -> Tasks:
    """Return the tasks that took the most run time in a range, with the histograms of their runs."""

    def read() -> Tasks:
        loads = totals(TASK, period)
        every = loads.by_name.values()
        longest = sorted(every, key=lambda history: (-history.total.run_seconds, history.name))[:MAX_TASKS]
        add_histograms(TASK, period, longest, ["runs"], end=loads.end)
        return Tasks([history for history in longest if history.total.run_seconds], sum(history.total.run_seconds for history in every))

    return _kept("task_loads", max(RANGE_SECONDS[period], SLOW_SECONDS), read, more=period)


def queue_states(user: Any) -> list[QueueState]:
    """Return the queues with the jobs that the user may see."""
    return _kept("queue_states", SECONDS, lambda: narrowed.queue_states_for(user, idle=False), user=user)


def current_problems() -> list[Problem]:
    """Return the problems of the installation."""
    return _kept("problems", PROBLEM_SECONDS, problems)


def kinds(user: Any) -> list[ErrorKind]:
    """Return the kinds of errors of the jobs that the user may see."""
    return _kept("kinds", SLOW_SECONDS, lambda: error_kinds.error_kinds_for(user), user=user)


def members() -> list[Member]:
    """Return the workers."""
    return _kept("members", SECONDS, fleet)


def next_schedules() -> list[Schedule]:
    """Return the schedules that are due next; `now` of each is the time of the database."""
    rows: Any = Schedule.objects.current.active().exclude(next_at=None).annotate(now=Now()).order_by("next_at")
    return _kept("schedules", SLOW_SECONDS, lambda: [*rows[:MAX_SCHEDULES]])


def pauses() -> list[tuple[str, datetime]]:
    """Return the queues that are paused, and when that changed."""
    rows = Queue.objects.current.filter(paused=True).order_by("-changed_at").values_list("pk", "changed_at")
    return _kept("pauses", SLOW_SECONDS, lambda: [*rows[:MAX_TASKS]])
