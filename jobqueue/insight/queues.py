"""The queues: the pause and the limit of each, and the jobs that are queued and run in it, at a bounded cost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from jobqueue.core import states
from jobqueue.db import overview as overview_sql
from jobqueue.db.overview import MAX_QUEUES, QUEUED
from jobqueue.models import Job, Queue

MAX_COUNTED = 10_000  # jobs of a queue
BUDGET = 100_000  # index entries that a query for all queues may count


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


def queue_states(*, at_rest: bool = False) -> list[QueueState]:
    """Return every queue that has a row, or a job that is queued or runs: paused ones first, then those with a limit, then busy ones.

    The cost is bounded, however many jobs wait in the queues. A caller that knows that no job is queued or runs sets
    `at_rest`, which skips the queries for such jobs.
    """
    database = Job.objects.database
    rows = Queue.objects.current.special_first().values_list("pk", "paused", "max_running", "paused_until")[:MAX_QUEUES]
    decided = {row[0]: row[1:] for row in rows}
    running = {} if at_rest else Job.objects.current.filter(status=states.Status.RUNNING).counts_by_queue()
    pairs = [] if at_rest else overview_sql.queues_in(database, MAX_QUEUES)
    share = BUDGET // max(len(pairs), 1)
    most, first = min(max(share, 100), MAX_COUNTED), min(max(share // 10, 10), 1000)
    groups = overview_sql.groups(database, "queue", QUEUED, pairs, most=most, first=first) if pairs else []
    queued: dict[str, int] = dict.fromkeys((pair.name for pair in pairs), 0)
    oldest: dict[str, datetime] = {}
    capped = {group.name for group in groups if group.number >= most}
    for group in groups:
        queued[group.name] = min(queued[group.name] + group.number, MAX_COUNTED)
        if group.oldest is not None:
            oldest[group.name] = min(group.oldest, oldest.get(group.name, group.oldest))
    now = overview_sql.clock(database) if oldest else None
    found = [
        QueueState(
            name,
            *decided.get(name, (False, None, None))[:2],
            queued=queued.get(name, 0),
            running=running.get(name, 0),
            oldest_queued_seconds=max((now - oldest[name]).total_seconds(), 0.0) if now and name in oldest else None,
            queued_is_capped=name in capped or queued.get(name, 0) >= MAX_COUNTED,
            paused_until=decided[name][2] if name in decided else None,
        )
        for name in {*decided, *running, *queued}
    ]
    return sorted(found, key=lambda one: (not one.paused, one.max_running is None, not (one.queued or one.running), str(one.name)))
