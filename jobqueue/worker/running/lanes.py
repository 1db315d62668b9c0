"""Lanes: groups of tenants that share slots of this process.

A tenant with a number of its own in `TENANTS` has a lane with that many threads, in addition to `MAX_WORKERS`. All other tenants, and
jobs without a tenant, share the first lane in turns. Each lane has its own pool, so a backlog in one lane does not delay another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from jobqueue.worker.running.pool import Pool
from jobqueue.worker.running.round_robin import RoundRobin
from jobqueue.worker.running.run import Run

PREFETCH_SECONDS = 0.1
MAX_PREFETCH = 2000
RATE_SECONDS = 0.02


class Lane:
    """The slots of one tenant, or the shared slots."""

    def __init__(self, tenant: str | None, pool: Pool) -> None:
        """Create a lane; `tenant` is None for the shared lane."""
        self.tenant, self.pool = tenant, pool
        self.turns = RoundRobin()
        self.busy = self.peak = 0  # maintained by `Runs`
        self.saturated = False
        self.last_claim = 0
        self._seen = (0, 0.0, time.monotonic())
        self._rate = 0.0

    def wanted(self) -> int:
        """Return how many jobs to claim: one for each free slot, plus those that the pool will finish soon at its measured rate."""
        now = time.monotonic()
        if now - self._seen[2] >= RATE_SECONDS:
            self._measure(now)
        # Grow step by step: one burst of short jobs says little about the next jobs.
        ahead = min(int(self._rate * PREFETCH_SECONDS), MAX_PREFETCH, 4 * max(self.last_claim, self.pool.size))
        wanted = self.free + ahead
        # Do not query for a few free slots while a large batch is queued. With many slots (for coroutines), fewer jobs than slots are few.
        return wanted if wanted >= max(ahead // 4, min(ahead // 2, self.pool.size)) else 0

    def _measure(self, now: float) -> None:
        """Measure how many runs end in a second; the limit is what the slots can do at the mean duration of the last runs.

        Without the limit, long runs that end at the same moment would be taken for many short runs, and the worker would claim too much.
        """
        count, worked, since = self._seen
        self._seen = (self.pool.completed, self.pool.worked_seconds, now)
        ended = self._seen[0] - count
        ceiling = self.pool.size * ended / max(self._seen[1] - worked, 1e-6)
        self._rate = min(ended / (now - since), ceiling)

    @property
    def free(self) -> int:
        """The number of unused slots."""
        return self.pool.size - self.busy

    def take_peak(self) -> int:
        """Return the highest number of used slots since the last call."""
        peak, self.peak = max(self.peak, self.busy), self.busy
        return peak

    def take_waiting(self, claimed_before: float) -> list[Run]:
        """Remove and return the jobs that were claimed before a time and have not begun."""
        return self.pool.take_waiting(claimed_before) if self.pool.waiting else []


class Lanes:
    """The lanes of a process; the shared lane always exists."""

    def __init__(self, make_pool: Callable[[], Pool]) -> None:
        """Create the shared lane; the scaler sets the size of its pool."""
        self._make_pool = make_pool
        self.shared = Lane(None, make_pool())
        self._own: dict[str, Lane] = {}
        self._left: list[Lane] = []  # of tenants that lost their number: their runs end there

    def __iter__(self) -> Iterator[Lane]:
        """Iterate over the lanes that claim; those of single tenants first, since a delay costs their few slots more."""
        return iter([*self._own.values(), self.shared])

    def of(self, tenant: str) -> Lane:
        """Return the lane that serves a tenant; "" means jobs without a tenant."""
        return self._own.get(tenant, self.shared)

    def set_slots(self, numbers: Mapping[str, int]) -> None:
        """Create or resize the lanes of the tenants in `numbers`, and remove those of all other tenants."""
        for tenant, number in numbers.items():
            if tenant not in self._own:
                self._own[tenant] = Lane(tenant, self._make_pool())
                self._hand_turn(tenant, self.shared, self._own[tenant])
            pool = self._own[tenant].pool
            if pool.size != (size := max(number - pool.blocked_slots, 0)):
                pool.resize(size)
        removed = [tenant for tenant in self._own if tenant not in numbers]
        for tenant in removed:
            lane = self._own.pop(tenant)
            lane.pool.resize(0)
            self._hand_turn(tenant, lane, self.shared)
            self._left.append(lane)
        self._left = [lane for lane in self._left if lane.busy or lane.pool.stuck]

    def _hand_turn(self, tenant: str, before: Lane, after: Lane) -> None:
        """Move the turn of a tenant from its old lane to its new lane."""
        if before.turns.drop(tenant):
            after.turns.notified(tenant)

    @property
    def own(self) -> list[str]:
        """The tenants that have a lane of their own."""
        return list(self._own)

    @property
    def slots(self) -> int:
        """The total number of slots."""
        return sum(lane.pool.size for lane in self)

    @property
    def stuck(self) -> int:
        """The number of abandoned threads."""
        return sum(lane.pool.stuck for lane in (*self, *self._left))

    def take_waiting(self, claimed_before: float) -> list[Run]:
        """Remove and return the jobs that were claimed before a time and have not begun."""
        return [run for lane in (*self, *self._left) for run in lane.take_waiting(claimed_before)]

    def close(self) -> None:
        """Make every thread exit once it is idle."""
        for lane in self:
            lane.pool.resize(0)

    def join(self, deadline: float) -> bool:
        """Wait for all threads until a monotonic time; return whether all have ended."""
        ended = [lane.pool.join(deadline) for lane in (*self, *self._left)]
        return all(ended)
