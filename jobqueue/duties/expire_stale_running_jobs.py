"""The duty of recovery: it recovers jobs of lost workers by their option `recovery`, and cancels jobs that have not begun in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from jobqueue.duties.base import Duty, Report
from jobqueue.lifecycle.batches import Batch
from jobqueue.lifecycle.expire import MOST, Expired, JobRecovery
from jobqueue.lifecycle.lapse import Lapses
from jobqueue.models import Job


class ExpireStaleRunningJobs(Duty):
    """The duty that searches for expired leases and late jobs once a second.

    After an outage, or after this process was stopped, it waits until all workers have had time to renew their leases. Their leases ran
    out while no worker could reach the database, which is not a crash.
    """

    name = "expire_stale_running_jobs"
    interval_seconds = 1.0
    is_short = True
    releases_jobs = True

    def __init__(self, renew: Callable[[], None], announce: Callable[[Sequence[Expired]], None], not_before: Callable[[], float]) -> None:
        """Keep the functions.

        `renew` renews the leases of this process. `announce` is called with the lost jobs. No job is recovered before the monotonic time
        that `not_before` returns.
        """
        self._renew, self._announce, self._not_before = renew, announce, not_before
        self._recovery = JobRecovery()
        self._lapses = Lapses()

    def questions(self) -> Sequence[QuerySet[Any]]:
        """Return the queries of the expired leases and of the late jobs."""
        jobs = Job.objects.current
        return [jobs.expired().values_list("pk"), jobs.lapsed().order_by("expires_at").values_list("pk")]

    def run_once(self, now: datetime) -> Report:
        """Recover the jobs whose leases have run out, and cancel those that have not begun in time."""
        jobs = Job.objects.current
        canceled = self._lapses.run() if jobs.lapsed().exists() else Batch()
        if time.monotonic() < self._not_before() or not jobs.expired().exists():
            return Report(canceled.moved, canceled.set_aside, again=canceled.moved > 0)
        self._renew()
        expired, batch = self._recovery.run()
        if expired:
            self._announce(expired)
        aside = batch.set_aside + canceled.set_aside
        return Report(len(expired) + canceled.moved, aside, again=len(expired) >= MOST or canceled.moved > 0)
