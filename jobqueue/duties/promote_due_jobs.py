"""Promote: jobs whose time has come, or whose children have ended, are let into the queue, on time."""

from __future__ import annotations

import time
from datetime import datetime

from jobqueue import conf
from jobqueue.duties.base import Duty, Report
from jobqueue.lifecycle.children import Parents
from jobqueue.lifecycle.glance import Glances
from jobqueue.lifecycle.promote import Promotion
from jobqueue.models import Job

# With notifications, whoever makes a job that is soon due tells the leader of it; without them it looks for itself.
MAX_SECONDS = 1.0
UNTOLD_SECONDS = 0.25
# Notifications of one process come sparingly: after the first, others may be due as soon.
CLOSELY_SECONDS = 2.0
# Where none was seen to wait for others; who begins to, tells of it like one that is due.
PARENTS_SECONDS = 2.0
# What another duty's look tells of this time is for a look of our own.
CLOSE_SECONDS = 0.1
# Rows that wait for a time and have none: constraints refuse them.
WITHOUT_TIME_SECONDS = 10.0


class PromoteDueJobs(Duty):
    """Sleep to the next due time, and promote what is due in batches; look after the jobs that wait for others, too."""

    name = "promote_due_jobs"
    interval_seconds = MAX_SECONDS
    exact_now = False
    lets_jobs_in = True

    def __init__(self, glances: Glances | None = None) -> None:
        """Begin with full batches; `glances` may tell that nothing is due."""
        self._glances = glances if glances is not None else Glances()
        self._promotion = Promotion()
        self._parents = Parents()
        self._closely_until = 0.0
        self._parents_at = self._complete_at = 0.0

    def hear(self) -> None:
        """Look closely for a while."""
        self._closely_until = time.monotonic() + CLOSELY_SECONDS

    def run_once(self, now: datetime) -> Report:
        """Promote one batch where something is due; tell when the next is."""
        moment, database = time.monotonic(), Job.objects.database
        if moment >= self._complete_at:
            self._promotion.set_aside_without_time()
            self._complete_at = moment + WITHOUT_TIME_SECONDS
        told = database.can_notify and conf.current().notify and not database.behind_pooler and moment > self._closely_until
        parents = None
        if told and (pause := self._pause_by_glance(moment)) is not None:
            return Report(pause_seconds=pause)
        seen = (glance := self._glances.fresh) is not None and glance.waits
        if not told or seen or self._parents.any or self._parents.busy or moment >= self._parents_at:
            parents, self._parents_at = self._parents.run(), moment + PARENTS_SECONDS
        items, aside = (parents.moved, parents.set_aside) if parents is not None else (0, 0)
        longest = MAX_SECONDS if told and not self._parents.any else UNTOLD_SECONDS
        due_in = Job.objects.next_due_seconds(self._promotion.set_aside)
        if due_in is None or due_in > 0:
            return Report(items, aside, again=parents is not None, pause_seconds=longest if due_in is None else min(due_in, longest))
        batch = self._promotion.run()
        # Where nothing moved though something is due, somebody has locked it just now.
        again = batch.moved > 0 or parents is not None
        return Report(items + batch.moved, aside + batch.set_aside, again=again, pause_seconds=UNTOLD_SECONDS)

    def _pause_by_glance(self, moment: float) -> float | None:
        """Return how long to rest by what another duty saw; None where a look of our own is to tell."""
        glance = self._glances.fresh
        if glance is None or glance.waits or self._parents.any or self._parents.busy or self._promotion.set_aside:
            return None
        if glance.promote_at is None:
            return MAX_SECONDS
        left = glance.promote_at - moment - CLOSE_SECONDS
        return min(left, MAX_SECONDS) if left > 0 else None
