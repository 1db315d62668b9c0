"""The duty of promotion: it moves jobs to QUEUED when their time has come or their children have ended."""

from __future__ import annotations

import time
from datetime import datetime

from jobqueue import conf
from jobqueue.duties.base import Duty, Report
from jobqueue.lifecycle.children import Parents
from jobqueue.lifecycle.glance import Glances
from jobqueue.lifecycle.promote import Promotion
from jobqueue.models import Job

# With notifications, the process that enqueues a job that is due soon notifies the leader. Without them, the leader polls more often.
MAX_SECONDS = 1.0
UNTOLD_SECONDS = 0.25
# A process limits the rate of its notifications, so after one, poll closely for this long.
CLOSELY_SECONDS = 2.0
# The pause between checks for waiting parents if none was found. A job that begins to wait sends a notification, like one that is due.
PARENTS_SECONDS = 2.0
# The due time in a glance is not exact: from this many seconds before it on, the duty runs its own query.
CLOSE_SECONDS = 0.1
# The pause between searches for rows that wait for a time and have none, which constraints refuse.
WITHOUT_TIME_SECONDS = 10.0


class PromoteDueJobs(Duty):
    """The duty that promotes due jobs in batches and jobs whose children have ended; it rests until the next due time."""

    name = "promote_due_jobs"
    interval_seconds = MAX_SECONDS
    exact_now = False
    lets_jobs_in = True

    def __init__(self, glances: Glances | None = None) -> None:
        """Start with full batches; `glances` may report that nothing is due, which saves queries."""
        self._glances = glances if glances is not None else Glances()
        self._promotion = Promotion()
        self._parents = Parents()
        self._closely_until = 0.0
        self._parents_at = self._complete_at = 0.0

    def hear(self) -> None:
        """Poll closely for `CLOSELY_SECONDS`."""
        self._closely_until = time.monotonic() + CLOSELY_SECONDS

    def run_once(self, now: datetime) -> Report:
        """Promote one batch if jobs are due; report when the next one is due."""
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
        # If nothing moved though a job is due, another session holds a lock on it.
        again = batch.moved > 0 or parents is not None
        return Report(items + batch.moved, aside + batch.set_aside, again=again, pause_seconds=UNTOLD_SECONDS)

    def _pause_by_glance(self, moment: float) -> float | None:
        """Return the seconds to rest by the last glance; None if this duty must run its own query."""
        glance = self._glances.fresh
        if glance is None or glance.waits or self._parents.any or self._parents.busy or self._promotion.set_aside:
            return None
        if glance.promote_at is None:
            return MAX_SECONDS
        left = glance.promote_at - moment - CLOSE_SECONDS
        return min(left, MAX_SECONDS) if left > 0 else None
