"""The scaler sets the number of slots of the shared lane: what runs and what could be claimed now, between the least and the most.

It grows at once: each `SCALE_SECONDS`, and as soon as a claim finds more than there are slots for. It shrinks only after a quiet
time in which so many slots were never needed, and down to what was needed at most in that time, so that a load that comes and goes
starts and stops no threads. A busy thread is never stopped (see ``worker/running/pool.py``).
A connection pool is a limit of its own, whatever the settings say: one more thread than it serves would only wait for a connection.

Nothing is asked of the database while slots are free.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from jobqueue import conf, db
from jobqueue.core import states
from jobqueue.core.queue_rules import ServedQueues
from jobqueue.core.service import ErrorHandler
from jobqueue.models import Job
from jobqueue.worker.base import DatabaseService
from jobqueue.worker.claim_policy import ClaimPolicy
from jobqueue.worker.running.lanes import Lanes

QUIET_SECONDS = 10.0
LOOKS = 3
HURRY_SECONDS = 0.1

logger = logging.getLogger("jobqueue")


@dataclass(frozen=True, slots=True)
class Decision:
    """Tell of a change: the slots before and after, what ran and what could be claimed, and why."""

    at: float
    before: int
    after: int
    running: int
    claimable: int
    why: str


class Scaler(DatabaseService):
    """Resize the pool of the shared lane every `scale_seconds`, or sooner when it is hurried."""

    name = "scaler"

    def __init__(
        self,
        lanes: Lanes,
        gate: ClaimPolicy,
        *,
        least: int,
        most: int,
        scale_seconds: float,
        resized: Callable[[], None],
        on_error: ErrorHandler,
        decided: Callable[[], None] = lambda: None,
        quiet_seconds: float = QUIET_SECONDS,
    ) -> None:
        """Prepare the thread; `resized` is told of new slots, `decided` of each decision."""
        super().__init__(on_error)
        self._lanes, self._gate = lanes, gate
        self._least, self._most, self._pause = least, most, scale_seconds
        self._resized, self._decided = resized, decided
        self._quiet = max(quiet_seconds, LOOKS * scale_seconds)
        self._pooled = db.pooled_slots(pool_options())
        self._needs: deque[tuple[float, int]] = deque()  # what each look of the quiet time found needed
        self._looked_at = time.monotonic()
        self._warned = False
        self.decision: Decision | None = None

    @property
    def bound(self) -> int:
        """The most slots that the shared lane may have now: `MAX_WORKERS`, and what a pool of connections serves beside other lanes.

        Less those that are lost to runs that do not react.
        """
        pool = self._lanes.shared.pool
        most = max(self._most - pool.lost, 0)
        if self._pooled is None:
            return most
        others = self._lanes.slots - pool.size + self._lanes.stuck
        return min(max(min(most, self._pooled - others), 1), most)

    def begin(self) -> None:
        """Make the slots that are always there."""
        self._lanes.shared.pool.resize(min(self._least, self.bound))

    def hurry(self) -> None:
        """Look soon, if there may be more slots: a claim found more than it had slots for; from any thread."""
        if self._lanes.shared.pool.size < self.bound and time.monotonic() - self._looked_at >= HURRY_SECONDS:
            self.wake()

    def turn(self) -> float | None:
        """Decide once."""
        self._looked_at = now = time.monotonic()
        lane, bound = self._lanes.shared, self.bound
        size, least = lane.pool.size, min(self._least, bound)
        if bound < self._least and not lane.pool.lost and not self._warned:
            self._warned = True
            logger.warning("The pool of connections serves %d slots, fewer than MIN_WORKERS, %d: make it larger.", bound, self._least)
        if size == least == bound:
            return None if self._pooled is None else self._pause
        running = lane.busy
        claimable = self._claimable(bound) if lane.saturated else 0
        needed = min(max(running + claimable, least), bound)
        self._needs.append((now, min(max(needed, lane.take_peak()), bound)))
        while self._needs[0][0] < now - self._quiet:
            self._needs.popleft()
        after, why = self._choose(size, needed, bound)
        if after != size:
            self._resize(Decision(now, size, after, running, claimable, why))
        return self._pause

    def _choose(self, size: int, needed: int, bound: int) -> tuple[int, str]:
        """Return how many slots there shall be, and why."""
        if size > bound:
            return bound, "the pool of connections serves no more beside the other lanes"
        if needed > size:
            short = bound < self._most and needed == bound
            return needed, f"more jobs than slots{'; the pool of connections serves no more' if short else ''}"
        peak = max(need for _, need in self._needs)  # also of the moment in which the slots were made
        if peak < size and len(self._needs) >= LOOKS:
            return peak, f"no more were needed for {self._quiet:g} s"
        return size, ""

    def _resize(self, decision: Decision) -> None:
        self._lanes.shared.pool.resize(decision.after)
        self.decision = decision
        logger.info(
            "Slots: %d to %d (%d running, %d claimable, between %d and %d): %s.",
            decision.before,
            decision.after,
            decision.running,
            decision.claimable,
            self._least,
            self._most,
            decision.why,
        )
        if decision.after > decision.before:
            self._resized()
        self._decided()

    def _claimable(self, limit: int) -> int:
        """Return how many jobs could be claimed now, counting up to `limit`: not in paused queues, within limits, not for other lanes."""
        gate, others = self._gate, self._lanes.own
        limits, served = gate.served_limits, gate.served
        if not limits:
            return Job.objects.depth(served, limit, closed=gate.paused, others=others)
        running = Job.objects.current.filter(status=states.Status.RUNNING).counts_by_queue()
        if limits.max_running is not None:
            limit = min(limit, max(limits.max_running - sum(running.values()), 0))
        found = Job.objects.depth(served, limit, closed={*gate.paused, *limits.queues}, others=others)
        for name, most in limits.queues.items():
            room = min(most - running.get(name, 0), limit - found)
            if room > 0 and name not in gate.paused:
                found += Job.objects.depth(ServedQueues((name,)), room, others=others)
        return found


def pool_options() -> Mapping[str, Any]:
    """Return the options of the job database as the project has written them: a service's own connection knows no pool."""
    return conf.databases().get(Job.objects.database.alias, {}).get("OPTIONS") or {}


def told(decision: Decision | None) -> dict[str, Any]:
    """Return a decision as JSON values for the process's row; its time as seconds ago, since clocks differ."""
    if decision is None:
        return {}
    values = asdict(decision)
    return {"age": round(time.monotonic() - values.pop("at"), 1), **values}
