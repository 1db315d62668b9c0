"""The heartbeat renews all leases of this worker in one statement, and reads the flags of the jobs.

If the statement does not return a row, the heartbeat reads that row again without locking. If the worker still owns the job, another
session has locked the row. If not, the lease is lost. The heartbeat continues during a drain, until the last outcome is written.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from jobqueue.core import repeats
from jobqueue.core.service import ErrorHandler
from jobqueue.db import Lease, Renewed
from jobqueue.models import Job
from jobqueue.worker.base import DatabaseService
from jobqueue.worker.running.interrupter import Interrupter
from jobqueue.worker.running.run import Reason, Run, Runs

BATCH = 1000
LOCKED_SECONDS = 0.1
LEASES = 3

logger = logging.getLogger("jobqueue")


class Heartbeat(DatabaseService):
    """The thread that renews the leases of `runs`, and gives runs that must stop to the interrupter."""

    name = "heartbeat"
    longest_backoff_seconds = 1.0

    def __init__(
        self, runs: Runs, interrupter: Interrupter, lease_seconds: float, heartbeat_seconds: float, on_error: ErrorHandler
    ) -> None:
        """Prepare the thread."""
        super().__init__(on_error)
        self._runs, self._interrupter = runs, interrupter
        self._lease_seconds, self._pause = lease_seconds, heartbeat_seconds
        self._reads_all_flags = False
        self._beaten_at = time.monotonic()
        self.renewed = self.lost = 0

    def read_flags(self) -> None:
        """Read the flags of all runs now, since a request to stop one of them has arrived."""
        self._reads_all_flags = True
        self.wake()

    def renew_all(self) -> None:
        """Renew all leases on the connection of the calling thread, which then searches for expired leases and must not find these."""
        Job.objects.renew([run.lease for run in self._renewed()], self._lease_seconds)

    def turn(self) -> float | None:
        """Renew the leases once; return the seconds to the next renewal."""
        began = time.monotonic()
        gap = began - self._beaten_at
        if gap > self._lease_seconds and len(self._runs) and not self.failures:  # the error handler reports an outage
            logger.warning("The heartbeat was %.1f s late; leases may be lost (a stopped process, or code that keeps the GIL).", gap)
        read_all, self._reads_all_flags = self._reads_all_flags, False
        # New leases need no renewal yet, and most runs end before they do.
        old = began - self._pause / 2
        leases = [run.lease for run in self._renewed() if read_all or run.claimed_at <= old]
        locked = 0
        for first in range(0, len(leases), BATCH):
            locked += self._renew(leases[first : first + BATCH])
        self._beaten_at = time.monotonic()
        # A lease whose row is locked may have run out: renew it soon after the lock is gone, before the leader recovers the job.
        pause = min(self._pause, LOCKED_SECONDS) if locked else self._pause
        return max(pause - (self._beaten_at - began), 0.05)

    def _renewed(self) -> list[Run]:
        """Return the runs whose leases are renewed: all but those that ended more than `LEASES` lease times ago and are not written."""
        since = time.monotonic() - LEASES * self._lease_seconds
        return [run for run in self._runs if run.ended is None or run.ended > since]

    def _renew(self, leases: Sequence[Lease]) -> int:
        renewed = Job.objects.renew(leases, self._lease_seconds)
        self.renewed += len(renewed)
        for row in renewed:
            run = self._runs.get(Lease(row.job_id, row.token))
            if run is not None:
                self._obey(run, row)
        missing = set(leases) - {Lease(row.job_id, row.token) for row in renewed}
        locked = Job.objects.still_ours(missing) if missing else set()
        for lease in missing - locked:
            self._lost(lease)
        return len(locked)

    def _obey(self, run: Run, row: Renewed) -> None:
        if row.cancel_requested:
            self._interrupter.interrupt(run, Reason.USER)
        elif run.reason is Reason.USER:
            run.withdraw()

    def _lost(self, lease: Lease) -> None:
        run = self._runs.get(lease)
        # A closed run writes its outcome or has written it, which ends the lease. It only runs callbacks of `on_commit` now.
        if run is not None and run.ended is None and not run.closed and not run.is_lost:
            self.lost += 1
            repeats.log(logging.WARNING, "Job %s: the lease was lost; the run is asked to stop.", lease.job_id)
            self._interrupter.interrupt(run, Reason.LOST)
