"""The scaler sets the number of slots from the depth of the queues, between the least and the most.

It grows at once and shrinks only idle slots. Nothing is asked of the database while slots are free.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from jobqueue.models import Job
from jobqueue.service import ErrorHandler
from jobqueue.worker.base import DatabaseService
from jobqueue.worker.pool import Pool
from jobqueue.worker.run import Runs

logger = logging.getLogger("jobqueue")


class Scaler(DatabaseService):
    """Resize the pool every `scale_seconds`."""

    name = "scaler"

    def __init__(
        self,
        pool: Pool,
        runs: Runs,
        queues: Sequence[str],
        *,
        least: int,
        most: int,
        scale_seconds: float,
        is_saturated: Callable[[], bool],
        resized: Callable[[], None],
        on_error: ErrorHandler,
    ) -> None:
        """Prepare the thread."""
        super().__init__(on_error)
        self._pool, self._runs, self._queues = pool, runs, queues
        self._least, self._most, self._pause = least, most, scale_seconds
        self._is_saturated, self._resized = is_saturated, resized

    def turn(self) -> float | None:
        """Decide once."""
        if self._least == self._most:
            return None
        running = len(self._runs)
        depth = Job.objects.depth(self._queues, self._most) if self._is_saturated() else 0
        desired = max(self._least, min(running + depth, self._most))
        if desired != self._pool.size:
            logger.debug("Slots: %d to %d (running %d, claimable %d).", self._pool.size, desired, running, depth)
            grows = desired > self._pool.size
            self._pool.resize(desired)
            if grows:
                self._resized()
        return self._pause
