"""Expire: jobs whose worker was lost come back, by their `recovery`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime

from jobqueue.duties.base import Duty, Report
from jobqueue.lifecycle.expire import MOST, Expired, Recovery
from jobqueue.lifecycle.glance import Glances
from jobqueue.models import Job


class ExpireStaleRunningJobs(Duty):
    """Sweep once a second.

    After an outage, or after this process stood still, the sweep waits until the heartbeats of all workers had time to renew: their
    leases ran out while nobody could reach the database, and that is nobody's crash.
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
        """Take what renews this process's own leases, whom to tell of lost jobs, and before which monotonic time none is looked for.

        `glances` are where each look is kept for other duties.
        """
        self._keep, self._tell, self._not_before = keep, tell, not_before
        self._glances = glances if glances is not None else Glances()
        self._recovery = Recovery()

    def run_once(self, now: datetime) -> Report:
        """Recover the jobs whose leases have run out."""
        if time.monotonic() < self._not_before() or not self._any():
            return Report()
        self._keep()
        lost, batch = self._recovery.run()
        if lost:
            self._tell(lost)
        return Report(len(lost), batch.set_aside, again=len(lost) >= MOST)

    def _any(self) -> bool:
        glance = self._glances.look(self.name)
        return Job.objects.current.expired().exists() if glance is None else glance.expired
