"""The duty of promotion: it moves jobs to QUEUED when their time has come or their children have ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from jobqueue import conf
from jobqueue.core import states
from jobqueue.duties.base import Duty, Report
from jobqueue.lifecycle.children import Parents
from jobqueue.lifecycle.promote import Promotion
from jobqueue.models import Job

# With notifications, the process that enqueues a job that is due soon notifies the leader. Without them, the leader polls more often.
MAX_SECONDS = 1.0
CLOSE_PAUSE_SECONDS = 0.25
# A process limits the rate of its notifications, so after one, poll closely for this long.
CLOSELY_SECONDS = 2.0


class PromoteDueJobs(Duty):
    """The duty that promotes due jobs in batches and jobs whose children have ended; it pauses until the next due time."""

    name = "promote_due_jobs"
    interval_seconds = MAX_SECONDS
    is_short = True
    releases_jobs = True

    def __init__(self) -> None:
        """Start with full batches."""
        self._promotion = Promotion()
        self._parents = Parents()
        self._closely_until = 0.0

    def notify(self) -> None:
        """Poll closely for `CLOSELY_SECONDS`."""
        self._closely_until = time.monotonic() + CLOSELY_SECONDS

    @property
    def pause_seconds(self) -> float:
        """The pause between polls: shorter without notifications, after one, and while a job waits for children."""
        database = Job.objects.database
        is_notified = database.can_notify and conf.current().notify and not database.behind_pooler
        closely = not is_notified or self._parents.any or time.monotonic() <= self._closely_until
        return CLOSE_PAUSE_SECONDS if closely else MAX_SECONDS

    def questions(self) -> Sequence[QuerySet[Any]]:
        """Return the queries of the next due time, of jobs that wait for a time and have none, and of jobs that wait for children."""
        pending = Job.objects.current.filter(status=states.Status.PENDING)
        timed = pending.filter(waiting_for=states.WaitingFor.TIME)
        return [
            # SQLite would return rows without a time first.
            timed.filter(run_at__isnull=False).order_by("run_at").values_list("run_at"),
            timed.filter(run_at__isnull=True).order_by().values_list("pk"),
            pending.filter(waiting_for=states.WaitingFor.CHILDREN).order_by("pk").values_list("pk"),
        ]

    def seconds_to_work(self, now: datetime, answers: Sequence[Any]) -> float | None:
        """Return 0 if a job must be checked at each run, else the seconds to the next due time."""
        run_at, without_time, waiting = answers
        if without_time is not None or waiting is not None or self._parents.any:
            return 0.0
        return None if run_at is None else (Job.objects.database.moment(run_at) - now) / timedelta(seconds=1)

    def run_once(self, now: datetime) -> Report:
        """Promote one batch of due jobs, and resume the jobs of one batch whose children have ended."""
        set_aside = self._promotion.set_aside_without_time()
        parents = self._parents.run()
        batch = self._promotion.run()
        moved, aside = batch.moved, batch.set_aside + set_aside
        if parents is not None:
            moved, aside = moved + parents.moved, aside + parents.set_aside
        # If nothing moved though a job is due, another session holds a lock on it, or the job is set aside.
        pause = None if self._promotion.set_aside else CLOSE_PAUSE_SECONDS
        return Report(moved, aside, again=batch.moved > 0 or parents is not None, pause_seconds=pause)
