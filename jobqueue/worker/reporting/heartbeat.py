"""The heartbeat renews the leases of this process, all in one statement, and reads their flags.

A row that did not come back is looked at once more without locking: ours and locked by somebody is fine; not ours any more means
that the lease is lost. It goes on through a drain, until the last outcome is written.
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
    """Keep the leases of `runs`, and hand those that are to stop to the interrupter."""

    name = "heartbeat"
    longest_backoff_seconds = 1.0

    def __init__(
        self, runs: Runs, interrupter: Interrupter, lease_seconds: float, heartbeat_seconds: float, on_error: ErrorHandler
    ) -> None:
        """Prepare the thread."""
        super().__init__(on_error)
        self._runs, self._interrupter = runs, interrupter
        self._lease_seconds, self._pause = lease_seconds, heartbeat_seconds
        self._look_at_all = False
        self._beaten_at = time.monotonic()

    def look(self) -> None:
        """Read the flags of all runs now: somebody has asked one of them to stop."""
        self._look_at_all = True
        self.wake()

    def keep(self) -> None:
        """Renew every lease on the calling thread's connection: whoever is about to look for expired ones must not find ours."""
        Job.objects.renew([run.lease for run in self._renewed()], self._lease_seconds)

    def turn(self) -> float | None:
        """Renew once."""
        began = time.monotonic()
        gap = began - self._beaten_at
        if gap > self._lease_seconds and len(self._runs) and not self.failures:  # an outage is told of elsewhere
            logger.warning("The heartbeat was %.1f s late; leases may be lost (a stopped process, or code that keeps the GIL).", gap)
        everything, self._look_at_all = self._look_at_all, False
        # Most runs are over before they need a renewal.
        old = began - self._pause / 2
        leases = [run.lease for run in self._renewed() if everything or run.claimed_at <= old]
        locked = 0
        for first in range(0, len(leases), BATCH):
            locked += self._renew(leases[first : first + BATCH])
        self._beaten_at = time.monotonic()
        # A lease behind somebody's lock may have run out: it is renewed as soon as the lock is gone, before a sweep finds it.
        pause = min(self._pause, LOCKED_SECONDS) if locked else self._pause
        return max(pause - (self._beaten_at - began), 0.05)

    def _renewed(self) -> list[Run]:
        """Return the runs whose leases are renewed: not those whose end could not be written for three leases, whatever the reason is."""
        since = time.monotonic() - LEASES * self._lease_seconds
        return [run for run in self._runs if run.ended is None or run.ended > since]

    def _renew(self, leases: Sequence[Lease]) -> int:
        found = Job.objects.renew(leases, self._lease_seconds)
        for row in found:
            run = self._runs.get(Lease(row.job_id, row.token))
            if run is not None:
                self._obey(run, row)
        missing = set(leases) - {Lease(row.job_id, row.token) for row in found}
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
        # A run that is closed writes its outcome or has written it, which ends the lease. It runs callbacks of `on_commit` at most.
        if run is not None and run.ended is None and not run.closed and not run.is_lost:
            repeats.log(logging.WARNING, "Job %s: the lease was lost; the run is told to stop.", lease.job_id)
            self._interrupter.interrupt(run, Reason.LOST)
