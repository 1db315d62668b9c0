"""The duty of recovery: it recovers jobs of lost workers by their option `recovery`, and cancels jobs that have not begun in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime

from jobqueue.duties.base import Duty, Report
from jobqueue.lifecycle.batches import Batch
from jobqueue.lifecycle.expire import MOST, Expired, Recovery
from jobqueue.lifecycle.glance import Glances
from jobqueue.lifecycle.lapse import Lapses
from jobqueue.models import Job


class ExpireStaleRunningJobs(Duty):
    """The duty that searches for expired leases and late jobs once a second.

    After an outage, or after this process was stopped, it waits until all workers have had time to renew their leases. Their leases ran
    out while no worker could reach the database, which is not a crash.
    """

    name = "expire_stale_running_jobs"
    interval_seconds = 1.0
    exact_now = False
    lets_jobs_in = True

    def __init__(
        self,
        keep: Callable[[], None],
        tell: Callable[[Sequence[Expired]], None],
        not_before: Callable[[], float],
        glances: Glances | None = None,
    ) -> None:
        """Keep the functions and the glances.

        `keep` renews the leases of this process. `tell` is called with the lost jobs. No job is recovered before the monotonic time that
        `not_before` returns. `glances` gets the results of each query, for the other duties.
        """
        self._keep, self._tell, self._not_before = keep, tell, not_before
        self._glances = glances if glances is not None else Glances()
        self._recovery = Recovery()
        self._lapses = Lapses()

    def run_once(self, now: datetime) -> Report:
        """Recover the jobs whose leases have run out, and cancel those that have not begun in time."""
        lost, lapsed = self._any()
        canceled = self._lapses.run() if lapsed else Batch()
        if not lost or time.monotonic() < self._not_before():
            return Report(canceled.moved, canceled.set_aside, again=canceled.moved > 0)
        self._keep()
        found, batch = self._recovery.run()
        if found:
            self._tell(found)
        aside = batch.set_aside + canceled.set_aside
        return Report(len(found) + canceled.moved, aside, again=len(found) >= MOST or canceled.moved > 0)

    def _any(self) -> tuple[bool, bool]:
        glance, jobs = self._glances.look(self.name), Job.objects.current
        return (jobs.expired().exists(), jobs.lapsed().exists()) if glance is None else (glance.expired, glance.lapsed)
