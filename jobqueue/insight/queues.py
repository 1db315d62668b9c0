"""The queues: the pause and the limit of each, and the jobs that are queued and run in it, at a bounded cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from jobqueue.core import states
from jobqueue.core.loads import OTHER, QUEUE, TOTAL
from jobqueue.core.targets import Target
from jobqueue.db import overview as overview_sql
from jobqueue.db.overview import MAX_QUEUES, QUEUED
from jobqueue.models import Job, Queue, Sample

MAX_COUNTED = 10_000  # jobs of a queue
BUDGET = 100_000  # index entries that a query for all queues may count
MAX_READ = 500  # jobs of each kind whose queues are read


@dataclass(frozen=True, slots=True)
class QueueState:
    """The state of one queue. `queued` is counted up to a bound; `queued_is_capped` says that the bound was reached."""

    name: str
    paused: bool
    max_running: int | None
    queued: int
    running: int
    oldest_queued_seconds: float | None
    queued_is_capped: bool = False
    paused_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Backlog:
    """The queued jobs of each queue, counted up to a bound, and for how many seconds the oldest has waited."""

    pairs: Sequence[Target]  # each tenant and queue
    numbers: dict[str, int]
    oldest_seconds: dict[str, float]
    capped: set[str]  # the queues that have more jobs than were counted


def backlog(most: int) -> Backlog:
    """Return the queued jobs of each queue, up to `most`. The cost is bounded, however many jobs wait in the queues."""
    database = Job.objects.database
    pairs = overview_sql.queues_in(database, MAX_QUEUES)
    share = BUDGET // max(len(pairs), 1)
    bound, first = min(max(share, 100), most), min(max(share // 10, 10), 1000)
    groups = overview_sql.groups(database, "queue", QUEUED, pairs, most=bound, first=first) if pairs else []
    numbers: dict[str, int] = dict.fromkeys((pair.name for pair in pairs), 0)
    oldest: dict[str, datetime] = {}
    capped = {group.name for group in groups if group.number >= bound}
    for group in groups:
        numbers[group.name] = min(numbers[group.name] + group.number, most)
        if group.oldest is not None:
            oldest[group.name] = min(group.oldest, oldest.get(group.name, group.oldest))
    now = overview_sql.clock(database) if oldest else None
    seconds = {name: max((now - since).total_seconds(), 0.0) for name, since in oldest.items()} if now else {}
    return Backlog(pairs, numbers, seconds, capped | {name for name, number in numbers.items() if number >= most})


def queue_states(more: Iterable[str] = ()) -> list[QueueState]:
    """Return every queue that has a row, a job that is queued or runs, or a name of `more`.

    Paused queues come first, then those with a limit, then busy ones. The cost is bounded, however many jobs wait in the queues.
    """
    rows = Queue.objects.current.special_first().values_list("pk", "paused", "max_running", "paused_until")[:MAX_QUEUES]
    decided = {row[0]: row[1:] for row in rows}
    running = Job.objects.current.filter(status=states.Status.RUNNING).counts_by_queue()
    queued = backlog(MAX_COUNTED)
    result = [
        QueueState(
            name,
            *decided.get(name, (False, None, None))[:2],
            queued=queued.numbers.get(name, 0),
            running=running.get(name, 0),
            oldest_queued_seconds=queued.oldest_seconds.get(name),
            queued_is_capped=name in queued.capped,
            paused_until=decided[name][2] if name in decided else None,
        )
        for name in {*decided, *running, *queued.numbers, *more}
    ]
    return sorted(
        result, key=lambda state: (not state.paused, state.max_running is None, not (state.queued or state.running), str(state.name))
    )


def queues_in_use() -> dict[int, str]:
    """Return the queue of each of the newest jobs, of those that are due next, and of those that ended in ERROR last."""
    jobs = Job.objects.current
    due = jobs.filter(status=states.Status.PENDING, waiting_for=states.WaitingFor.TIME).order_by("run_at")
    failed = jobs.filter(status=states.Status.ERROR).order_by("-finished_at")
    return {pk: name for rows in (jobs.order_by("-pk"), due, failed) for pk, name in rows.values_list("pk", "queue")[:MAX_READ]}


def sampled_names() -> list[str]:
    """Return the queues that had jobs in the last day."""
    rows = Sample.objects.using(Job.objects.database.alias).filter(kind=QUEUE, seconds=TOTAL).exclude(name=OTHER).order_by("-begins")
    return list(rows.values_list("name", flat=True)[:MAX_QUEUES])
