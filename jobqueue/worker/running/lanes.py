"""Lanes: the slots of this process that some tenants share.

A tenant with a number of its own in `TENANTS` has a lane with so many threads, beside `MAX_WORKERS`; all other tenants, and jobs
without one, share the first lane by turns. A lane has its own pool, so that no flood in another one can fill the line before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from jobqueue.worker.running.pool import Pool
from jobqueue.worker.running.probation import Probation
from jobqueue.worker.running.round_robin import RoundRobin
from jobqueue.worker.running.run import Run, Runs

PREFETCH_SECONDS = 0.1
PREFETCH_MOST = 2000
RATE_SECONDS = 0.02


class Lane:
    """Be the slots of one tenant, or the shared ones."""

    def __init__(self, tenant: str | None, pool: Pool, probation: Probation) -> None:
        """Prepare; `tenant` is None for the shared lane."""
        self.tenant, self.pool, self.probation = tenant, pool, probation
        self.turns = RoundRobin()
        self.busy = self.peak = 0  # kept by the register of runs
        self.saturated = False
        self.last_claim = 0
        self._seen = (0, 0.0, time.monotonic())
        self._rate = 0.0

    def wanted(self) -> int:
        """Return how many jobs to claim: the free slots, and what the pool will finish soon at its measured rate."""
        now = time.monotonic()
        if now - self._seen[2] >= RATE_SECONDS:
            self._measure(now)
        # Growing step by step: one burst of short jobs says little about the next ones.
        ahead = min(int(self._rate * PREFETCH_SECONDS), PREFETCH_MOST, 4 * max(self.last_claim, self.pool.size))
        wanted = self.free + ahead
        # A crumb is not worth a statement while plenty waits; with many slots, for coroutines, less than they are is one.
        return wanted if wanted >= max(ahead // 4, min(ahead // 2, self.pool.size)) else 0

    def _measure(self, now: float) -> None:
        """Measure how many runs end in a second: no more than the slots can do, as long as each of the last ones took.

        Else long runs that end at the same moment would look like a flood of short ones, and as many would be hoarded.
        """
        count, worked, since = self._seen
        self._seen = (self.pool.completed, self.pool.worked_seconds, now)
        ended = self._seen[0] - count
        ceiling = self.pool.size * ended / max(self._seen[1] - worked, 1e-6)
        self._rate = min(ended / (now - since), ceiling)

    @property
    def free(self) -> int:
        """How many slots nobody uses."""
        return self.pool.size - self.busy

    def take_peak(self) -> int:
        """Return how many slots were used at most since the last look."""
        peak, self.peak = max(self.peak, self.busy), self.busy
        return peak

    def take_waiting(self, claimed_before: float) -> list[Run]:
        """Take out the jobs that were claimed before a time and have not begun."""
        if not self.pool.waiting and not len(self.probation):
            return []
        return [*self.pool.take_waiting(claimed_before), *self.probation.take_waiting(claimed_before)]


class Lanes:
    """Hold the lanes of a process; the shared one is always there."""

    def __init__(self, make_pool: Callable[[], Pool], runs: Runs, max_crashes: int) -> None:
        """Prepare the shared lane; its pool is sized by the scaler."""
        self._make_pool, self._runs, self._max_crashes = make_pool, runs, max_crashes
        self._suspects: list[Run] = []  # of all lanes: the jobs under probation that run
        self.shared = self._make(None)
        self._own: dict[str, Lane] = {}
        self._left: list[Lane] = []  # of tenants that lost their number: their runs end in it

    def _make(self, tenant: str | None) -> Lane:
        return Lane(tenant, self._make_pool(), Probation(self._runs, self._max_crashes, self._suspects))

    def __iter__(self) -> Iterator[Lane]:
        """Walk over the lanes that claim; those of one tenant first, since they have fewer slots to lose a moment in."""
        return iter([*self._own.values(), self.shared])

    def of(self, tenant: str) -> Lane:
        """Return the lane that serves a tenant ("" stands for jobs without one)."""
        return self._own.get(tenant, self.shared)

    def set_slots(self, numbers: Mapping[str, int]) -> None:
        """Give tenants lanes of their own, with so many slots each, and take away those of others."""
        for tenant, number in numbers.items():
            if tenant not in self._own:
                self._own[tenant] = self._make(tenant)
                self._hand_turn(tenant, self.shared, self._own[tenant])
            pool = self._own[tenant].pool
            if pool.size != (size := max(number - pool.lost, 0)):
                pool.resize(size)
        gone = [tenant for tenant in self._own if tenant not in numbers]
        for tenant in gone:
            lane = self._own.pop(tenant)
            lane.pool.resize(0)
            self._hand_turn(tenant, lane, self.shared)
            self._left.append(lane)
        self._left = [lane for lane in self._left if lane.busy or lane.pool.stuck]

    def _hand_turn(self, tenant: str, before: Lane, after: Lane) -> None:
        """Let what a tenant has queued be claimed for its new lane, and for the old one no more."""
        if before.turns.drop(tenant):
            after.turns.hear(tenant)

    @property
    def own(self) -> list[str]:
        """The tenants that have a lane of their own."""
        return list(self._own)

    @property
    def slots(self) -> int:
        """How many slots there are in all."""
        return sum(lane.pool.size for lane in self)

    @property
    def stuck(self) -> int:
        """How many threads were given up on."""
        return sum(lane.pool.stuck for lane in (*self, *self._left))

    def take_waiting(self, claimed_before: float) -> list[Run]:
        """Take out the jobs that were claimed before a time and have not begun."""
        return [run for lane in (*self, *self._left) for run in lane.take_waiting(claimed_before)]

    def close(self) -> None:
        """Let every thread end once it is idle."""
        for lane in self:
            lane.pool.resize(0)

    def join(self, deadline: float) -> bool:
        """Wait for all threads until a monotonic time; return whether all have ended."""
        ended = [lane.pool.join(deadline) for lane in (*self, *self._left)]
        return all(ended)
