"""The dispatcher fills the free slots: claim, hand over, sleep until woken or due.

It claims at most the free slots plus what the pool will finish within the next 0.1 s at its measured rate. So long jobs are never
hoarded, and jobs of no length come hundreds at a time. Claimed jobs that have not begun after 1 s are handed back.

A claim starts behind the key of the last claimed row (dead index entries of claimed rows pile up before it while an old snapshot
is open), and from the head again every 0.1 s and whenever a scan finds too little: higher priorities, late commits and returned
jobs lie before the cursor.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from jobqueue.db import Claimed, Lease
from jobqueue.lifecycle import wakeup
from jobqueue.lifecycle.claim import claim
from jobqueue.lifecycle.finish import finish
from jobqueue.lifecycle.outcome import Kind, Outcome
from jobqueue.models import Job
from jobqueue.service import ErrorHandler
from jobqueue.tasks import registry
from jobqueue.worker.base import DatabaseService
from jobqueue.worker.executor import handed_back, read_result
from jobqueue.worker.finisher import Finisher
from jobqueue.worker.loop import Loop
from jobqueue.worker.pool import Pool
from jobqueue.worker.reporter import Reporter
from jobqueue.worker.run import Run, Runs

PREFETCH_SECONDS = 0.1
PREFETCH_MOST = 2000
HAND_BACK_SECONDS = 1.0
HEAD_SECONDS = 0.1
FAST_SECONDS = 0.005
# With a listener the next job tells of itself; only one that was enqueued while its notification was held back does not.
NOTIFIED_FAST_SECONDS = 1.2 * wakeup.PAUSE_SECONDS
QUIET_SECONDS = 2.0
LONGEST_POLL_SECONDS = 5.0


class Dispatcher(DatabaseService):
    """Claim jobs for one process and hand them to the pool or the event loop."""

    name = "dispatcher"

    def __init__(
        self,
        worker_id: str,
        queues: Sequence[str],
        *,
        runs: Runs,
        pool: Pool,
        loop: Loop,
        finisher: Finisher,
        reporter: Reporter,
        lease_seconds: float,
        poll_seconds: float,
        is_notified: Callable[[], bool],
        on_error: ErrorHandler,
    ) -> None:
        """Prepare the thread."""
        super().__init__(on_error)
        self._worker_id, self._queues = worker_id, queues
        self._runs, self._pool, self._loop, self._finisher, self._reporter = runs, pool, loop, finisher, reporter
        self._lease_seconds, self._poll_seconds, self._is_notified = lease_seconds, poll_seconds, is_notified
        self._cursor: tuple[int, int] | None = None
        self._head_at = 0.0
        self._worked_at = time.monotonic()
        self._pause = FAST_SECONDS
        self._seen = (0, time.monotonic())
        self._rate = 0.0
        self._last_claim = 0
        self._checked_at = 0.0
        self.saturated = False

    def turn(self) -> float | None:
        """Claim once; return how long to rest."""
        if self.failures:
            self._give_back_unknown()
        now = time.monotonic()
        if now - self._checked_at >= HAND_BACK_SECONDS / 2:
            self._checked_at = now
            self._hand_back_waiting()
        self.saturated = True  # before the look at the slots: one that becomes free from now on wakes us
        wanted = self._wanted()
        if wanted <= 0:
            return self._poll_seconds
        jobs = self._claim(wanted)
        self.saturated = len(jobs) >= wanted
        if jobs:
            self._hand_over(jobs)
            self._worked_at, self._pause = time.monotonic(), self._fast_pause()
            return 0.0 if self.saturated and self._wanted() > 0 else self._pause
        return self._idle_pause()

    # How many

    def _wanted(self) -> int:
        free = self._pool.size - len(self._runs)
        completed, now = self._pool.completed, time.monotonic()
        count, since = self._seen
        if now - since >= 0.02:
            self._rate = (completed - count) / (now - since)
            self._seen = (completed, now)
        # Growing step by step: one burst of short jobs says little about the next ones.
        ahead = min(int(self._rate * PREFETCH_SECONDS), PREFETCH_MOST, 4 * max(self._last_claim, self._pool.size))
        wanted = free + ahead
        # A crumb is not worth a statement while plenty waits.
        return wanted if wanted >= ahead // 4 else 0

    # Claim

    def _claim(self, wanted: int) -> list[Claimed]:
        now = time.monotonic()
        if now - self._head_at >= HEAD_SECONDS:
            self._cursor = None
        jobs: list[Claimed] = []
        if self._cursor is not None:
            jobs = claim(self._worker_id, self._queues, wanted, self._lease_seconds, self._cursor)
        if len(jobs) < wanted:
            if self._cursor is None or jobs:
                self._head_at = now
            jobs += claim(self._worker_id, self._queues, wanted - len(jobs), self._lease_seconds, None)
            self._head_at = now
        if jobs:
            last = max((job.claim_rank, job.id) for job in jobs)
            self._cursor = last
        self._last_claim = len(jobs)
        return jobs

    def _hand_over(self, jobs: list[Claimed]) -> None:
        runs = [Run(job, self._reporter.flush, read_result) for job in jobs]
        self._runs.add(runs)
        plain = []
        for run in runs:
            run.entry = registry.find(run.job.task)
            if run.entry is not None and run.entry.is_async:
                self._loop.submit(run)
            else:
                plain.append(run)
        self._pool.submit(plain)
        self._reporter.wake()

    # Give back

    def _hand_back_waiting(self) -> None:
        if self._pool.waiting:
            self.give_back(self._pool.take_waiting(time.monotonic() - HAND_BACK_SECONDS))

    def give_back(self, runs: list[Run]) -> None:
        """Hand claimed jobs that have not begun back to everybody."""
        for run in runs:
            run.ended = time.monotonic()
            self._finisher.put(run, handed_back(run))

    def _give_back_unknown(self) -> None:
        """Find jobs that we own and do not know: a claim was committed and its answer lost with the connection."""
        known = {run.lease for run in self._runs}
        ours = [Lease(*row) for row in Job.objects.current.owned_by(self._worker_id).values_list("pk", "lease_token")]
        finish([Outcome(lease, Kind.HANDED_BACK) for lease in ours if lease not in known])

    # Rest

    def _idle_pause(self) -> float:
        quiet = time.monotonic() - self._worked_at
        if quiet > QUIET_SECONDS and self._is_notified():
            longest = LONGEST_POLL_SECONDS
        else:
            longest = self._poll_seconds
        pause = min(self._pause, longest)
        self._pause = min(self._pause * 2, LONGEST_POLL_SECONDS)
        return pause * random.uniform(0.8, 1.2)  # noqa: S311 - a fleet must not poll in step

    def _fast_pause(self) -> float:
        return NOTIFIED_FAST_SECONDS if self._is_notified() else FAST_SECONDS

    def notified(self) -> None:
        """Look now, and closely for a while."""
        self._pause = self._fast_pause()
        self.wake()
