"""When a worker process has worked for long enough, or can no longer be trusted, and is to be replaced by a new one."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from jobqueue.worker.process.memory import rss_mb
from jobqueue.worker.running.run import Run

SPREAD = 0.1
YOUNG_SECONDS = 5.0


class Recycling:
    """Judge this process by the jobs that it has done, by its memory, and by a task that does not react to its time limit."""

    def __init__(self, max_jobs: int | None = None, max_rss_mb: int | None = None) -> None:
        """Prepare; a process of many jobs ends a little before their number, so that those of a fleet do not all end at once."""
        self._most = None if max_jobs is None else max_jobs - random.randint(0, int(max_jobs * SPREAD))  # noqa: S311
        self._max_rss_mb = max_rss_mb
        self._began = time.monotonic()
        self._hung: Run | None = None
        self.hurry: Callable[[], None] = lambda: None

    def counted(self, done: int) -> None:
        """Take notice of how many jobs are done."""
        if self._most is not None and done >= self._most:
            self.hurry()

    def replace(self, run: Run) -> bool:
        """Have this process replaced, since nothing else ends a run."""
        self._hung = self._hung or run
        self.hurry()
        return True

    def reason(self, done: int) -> str:
        """Return why this process is to be replaced now; "" where it need not be."""
        if self._hung is not None:
            return f"job {self._hung.job.id} does not react to its time limit"
        if self._most is not None and done >= self._most:
            return f"{done} jobs done"
        # Not a young one that has done nothing: a limit below what an empty process takes must not keep all jobs from running.
        grown = self._max_rss_mb is not None and done and time.monotonic() - self._began > YOUNG_SECONDS
        if grown and (rss := rss_mb()) > (self._max_rss_mb or 0):
            return f"{rss:.0f} MB of memory"
        return ""
