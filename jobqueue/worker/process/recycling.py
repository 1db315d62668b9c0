"""The decision when a worker process is replaced by a new one: by jobs done, by memory, or because of a stuck run."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from jobqueue.worker.process.memory import rss_mb
from jobqueue.worker.running.run import Run

JITTER = 0.1
MIN_AGE_SECONDS = 5.0


class Recycling:
    """The limits of this process in jobs and memory, and the run that does not react to its time limit, if there is one."""

    def __init__(self, request_stop: Callable[[], None], max_jobs: int | None = None, max_rss_mb: int | None = None) -> None:
        """Set the limits; `request_stop` is called when one is reached.

        `max_jobs` is lowered by up to 10 % at random, so that the workers of a fleet do not end at once.
        """
        self._max_jobs = None if max_jobs is None else max_jobs - random.randint(0, int(max_jobs * JITTER))  # noqa: S311
        self._max_rss_mb = max_rss_mb
        self._began = time.monotonic()
        self._hung: Run | None = None
        self._request_stop = request_stop

    def check_job_count(self, done: int) -> None:
        """Request a stop if the number of jobs done has reached the limit."""
        if self._max_jobs is not None and done >= self._max_jobs:
            self._request_stop()

    def request_replacement(self, run: Run) -> bool:
        """Request the replacement of this process, since nothing else ends this run; return True."""
        self._hung = self._hung or run
        self._request_stop()
        return True

    def reason(self, done: int) -> str:
        """Return why this process must be replaced now, or "" if it need not be."""
        if self._hung is not None:
            return f"job {self._hung.job.id} does not react to its time limit"
        if self._max_jobs is not None and done >= self._max_jobs:
            return f"{done} jobs done"
        # Replace a process only after it has done a job. Otherwise, a limit below the size of an idle process
        # would stop all work.
        may_check_memory = self._max_rss_mb is not None and done and time.monotonic() - self._began > MIN_AGE_SECONDS
        if may_check_memory and (rss := rss_mb()) > (self._max_rss_mb or 0):
            return f"{rss:.0f} MB of memory"
        return ""
