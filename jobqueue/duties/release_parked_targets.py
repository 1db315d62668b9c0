"""The duty of release: it releases jobs that raw SQL has left parked though their target is free."""

from __future__ import annotations

from datetime import datetime

from django.db import DatabaseError

from jobqueue import db
from jobqueue.duties.base import Duty, Report
from jobqueue.lifecycle.glance import Glances
from jobqueue.lifecycle.release import BATCH, release_parked_targets

MAX_TARGETS = 20_000


class ReleaseParkedTargets(Duty):
    """The duty that repairs the lines of targets every 5 s."""

    name = "release_parked_targets"
    interval_seconds = 5.0
    exact_now = False
    lets_jobs_in = True

    def __init__(self, glances: Glances | None = None) -> None:
        """Start with full batches; `glances` may report that nothing is parked, which saves queries."""
        self._batch = BATCH
        self._glances = glances if glances is not None else Glances()

    def run_once(self, now: datetime) -> Report:
        """Check the targets that have parked jobs, and release the next job of each target that no job holds or blocks."""
        glance = self._glances.fresh
        if glance is not None and not glance.parked:
            return Report()
        try:
            released = release_parked_targets(MAX_TARGETS, self._batch)
        except DatabaseError as error:
            if db.was_given_up(error):  # the next run uses smaller batches
                self._batch = max(self._batch // 2, 1)
            raise
        self._batch = min(2 * self._batch, BATCH)
        return Report(released)
