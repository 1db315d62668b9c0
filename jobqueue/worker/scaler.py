"""The scaler sets the number of slots of the shared lane from the depth of the queues, between the least and the most.

It grows at once and shrinks only idle slots. Nothing is asked of the database while slots are free.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from jobqueue.models import Job
from jobqueue.service import ErrorHandler
from jobqueue.worker.base import DatabaseService
from jobqueue.worker.gate import Gate
from jobqueue.worker.lanes import Lanes

logger = logging.getLogger("jobqueue")


class Scaler(DatabaseService):
    """Resize the pool every `scale_seconds`."""

    name = "scaler"

    def __init__(
        self,
        lanes: Lanes,
        gate: Gate,
        *,
        least: int,
        most: int,
        scale_seconds: float,
        resized: Callable[[], None],
        on_error: ErrorHandler,
    ) -> None:
        """Prepare the thread."""
        super().__init__(on_error)
        self._lanes, self._gate = lanes, gate
        self._least, self._most, self._pause = least, most, scale_seconds
        self._resized = resized

    def turn(self) -> float | None:
        """Decide once."""
        if self._least == self._most:
            return None
        lane = self._lanes.shared
        running = lane.busy
        depth = self._depth() if lane.saturated else 0
        desired = max(self._least, min(running + depth, self._most))
        if desired != lane.pool.size:
            logger.debug("Slots: %d to %d (running %d, claimable %d).", lane.pool.size, desired, running, depth)
            grows = desired > lane.pool.size
            lane.pool.resize(desired)
            if grows:
                self._resized()
        return self._pause

    def _depth(self) -> int:
        gate = self._gate
        return Job.objects.depth(gate.queues, self._most, closed=gate.paused, others=self._lanes.own)
