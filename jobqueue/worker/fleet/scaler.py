"""The scaler sets the number of slots of the shared lane: running plus claimable jobs, between `MIN_WORKERS` and `MAX_WORKERS`.

The lane grows at once: every `SCALE_SECONDS`, and when a claim finds more jobs than free slots. It shrinks only after a quiet time, to the
highest number of slots that was needed in that time. So a varying load does not start and stop threads. A busy thread is never
stopped (see ``worker/running/pool.py``). A connection pool is a limit, too: a thread beyond its size would only wait for a connection.

The scaler sends no statement while slots are free.
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
MIN_TURNS = 3
RESCALE_SECONDS = 0.1

logger = logging.getLogger("jobqueue")


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """A change of the number of slots, with the numbers of running and claimable jobs and the reason."""

    at: float
    before: int
    after: int
    running: int
    claimable: int
    why: str


class Scaler(DatabaseService):
    """The thread that resizes the pool of the shared lane every `scale_seconds`, or sooner after `rescale_now`."""

    name = "scaler"

    def __init__(
        self,
        lanes: Lanes,
        policy: ClaimPolicy,
        *,
        least: int,
        most: int,
        scale_seconds: float,
        resized: Callable[[], None],
        on_error: ErrorHandler,
        decided: Callable[[], None] = lambda: None,
        quiet_seconds: float = QUIET_SECONDS,
    ) -> None:
        """Prepare the thread; `resized` is called when there are new slots, `decided` after each change."""
        super().__init__(on_error)
        self._lanes, self._policy = lanes, policy
        self._least, self._most, self._pause = least, most, scale_seconds
        self._resized, self._decided = resized, decided
        self._quiet = max(quiet_seconds, MIN_TURNS * scale_seconds)
        self._pooled = db.pooled_slots(pool_options())
        self._needs: deque[tuple[float, int]] = deque()  # the slots needed at each turn of the quiet time
        self._decided_at = time.monotonic()
        self._warned = False
        self.decision: ScalingDecision | None = None

    @property
    def bound(self) -> int:
        """The highest number of slots that the shared lane may have now.

        It is `MAX_WORKERS` without the slots lost to stuck runs, and at most what the connection pool serves beside the other lanes.
        """
        pool = self._lanes.shared.pool
        most = max(self._most - pool.blocked_slots, 0)
        if self._pooled is None:
            return most
        others = self._lanes.slots - pool.size + self._lanes.stuck
        return min(max(min(most, self._pooled - others), 1), most)

    def begin(self) -> None:
        """Create the first slots: `MIN_WORKERS`, or fewer if `bound` is lower."""
        self._lanes.shared.pool.resize(min(self._least, self.bound))

    def rescale_now(self) -> None:
        """Decide soon if there may be more slots, since a claim found more jobs than slots. Call it from any thread."""
        if self._lanes.shared.pool.size < self.bound and time.monotonic() - self._decided_at >= RESCALE_SECONDS:
            self.wake()

    def turn(self) -> float | None:
        """Set the number of slots once; return the seconds to the next turn, or None if the number is fixed."""
        self._decided_at = now = time.monotonic()
        lane, bound = self._lanes.shared, self.bound
        size, least = lane.pool.size, min(self._least, bound)
        if bound < self._least and not lane.pool.blocked_slots and not self._warned:
            self._warned = True
            logger.warning("The connection pool has room for %d slots, fewer than MIN_WORKERS (%d): enlarge it.", bound, self._least)
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
            self._resize(ScalingDecision(now, size, after, running, claimable, why))
        return self._pause

    def _choose(self, size: int, needed: int, bound: int) -> tuple[int, str]:
        """Return the new number of slots, and the reason for it."""
        if size > bound:
            return bound, "the connection pool has no connections left beside the other lanes"
        if needed > size:
            short = bound < self._most and needed == bound
            return needed, f"more jobs than slots{'; the connection pool has no more connections' if short else ''}"
        peak = max(need for _, need in self._needs)  # includes the turn that added the slots
        if peak < size and len(self._needs) >= MIN_TURNS:
            return peak, f"no more were needed for {self._quiet:g} s"
        return size, ""

    def _resize(self, decision: ScalingDecision) -> None:
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
        """Return the number of jobs that could be claimed now for the shared lane, up to `limit`; pauses and limits of queues count."""
        policy, others = self._policy, self._lanes.own
        if policy.is_drained:
            return 0
        limits, served = policy.served_limits, policy.served
        if not limits:
            return Job.objects.depth(served, limit, excluded_queues=policy.paused, others=others)
        running = Job.objects.current.filter(status=states.Status.RUNNING).counts_by_queue()
        if limits.max_running is not None:
            limit = min(limit, max(limits.max_running - sum(running.values()), 0))
        depth = Job.objects.depth(served, limit, excluded_queues={*policy.paused, *limits.queues}, others=others)
        for name, most in limits.queues.items():
            room = min(most - running.get(name, 0), limit - depth)
            if room > 0 and name not in policy.paused:
                depth += Job.objects.depth(ServedQueues((name,)), room, others=others)
        return depth


def pool_options() -> Mapping[str, Any]:
    """Return the options of the job database from the settings, since the dedicated connection of a service has no pool."""
    return conf.databases().get(Job.objects.database.alias, {}).get("OPTIONS") or {}


def as_json(decision: ScalingDecision | None) -> dict[str, Any]:
    """Return a decision as JSON values for the row of the worker, with its age in seconds, since clocks differ between machines."""
    if decision is None:
        return {}
    values = asdict(decision)
    return {"age": round(time.monotonic() - values.pop("at"), 1), **values}
