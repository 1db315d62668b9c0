"""Limits: how many jobs may run at the same time, in all and per queue, over all processes.

Each limit has a lock. A claim under a limit holds its lock from the count to the commit, so that no two claims count
at the same time. Leases that have run out are recovered in the same transaction, so that they do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jobqueue.core import states
from jobqueue.core.queue_rules import limit_of
from jobqueue.core.targets import Target
from jobqueue.db import Scope
from jobqueue.lifecycle.expire import Expired, expire_jobs
from jobqueue.models import Job, Queue

ALL = ""  # among names of queues, the name for all jobs together


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a claim: of all jobs together (None: no limit), and of queues."""

    max_running: int | None = None
    queues: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether there is a limit."""
        return self.max_running is not None or bool(self.queues)

    def of(self, queues: tuple[str, ...]) -> Limits:
        """Return the limits that apply to a claim in these queues (empty: all queues)."""
        if not queues:
            return self
        return Limits(self.max_running, {name: most for name, most in self.queues.items() if name in queues})


def room(limits: Limits, scope: Scope, limit: int) -> tuple[int, Scope, list[Expired]]:
    """Take the locks of the limits and count the running jobs.

    Return how many jobs may start in all, and the scope with the number for each queue. Jobs whose leases have
    run out are recovered first, and are returned as well. Call it first in a transaction, before any other lock
    is taken. The rows of the queues are read again under the lock, because a worker's copy may be a second old.
    """
    database = Job.objects.database
    names = ([ALL] if limits.max_running is not None else []) + sorted(limits.queues)
    # Locks of limits and of targets share a space of keys. No target has an empty name, so no target has the key
    # of a limit.
    database.wait_for_locks(sorted(Target(f"limit:{name}", "").key for name in names))
    running = Job.objects.current.filter(status=states.Status.RUNNING)
    if limits.max_running is None:
        running = running.filter(queue__in=limits.queues)
    lost = expire_jobs(running.expired())
    counts = running.counts_by_queue()
    rows = Queue.objects.current.filter(pk__in=limits.queues).values_list("pk", "max_running")
    free = limit if limits.max_running is None else min(limit, limits.max_running - sum(counts.values()))
    remaining = {name: max(limit_of(most) - counts.get(name, 0), 0) for name, most in rows if most is not None}
    if limits.max_running is not None:
        remaining[ALL] = max(free, 0)
    open_queues = tuple(name for name in scope.queues if remaining.get(name, 1) > 0)
    if scope.queues and not open_queues:
        return 0, scope._replace(most=remaining), lost
    return free, scope._replace(queues=open_queues, most=remaining), lost
