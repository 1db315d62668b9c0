"""The duty of release: it releases jobs that raw SQL has left parked though their target is free."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import DatabaseError
from django.db.models import QuerySet

from jobqueue import db
from jobqueue.core import states
from jobqueue.duties.base import Duty, Report
from jobqueue.lifecycle.release import BATCH, release_parked_targets
from jobqueue.models import Job

MAX_TARGETS = 20_000


class ReleaseParkedTargets(Duty):
    """The duty that repairs the lines of targets every 5 s."""

    name = "release_parked_targets"
    interval_seconds = 5.0
    is_short = True
    releases_jobs = True

    def __init__(self) -> None:
        """Start with full batches."""
        self._batch = BATCH

    def questions(self) -> Sequence[QuerySet[Any]]:
        """Return the query of the parked jobs, in the order of their index."""
        parked = Job.objects.current.filter(status=states.Status.PENDING, waiting_for=states.WaitingFor.TARGET)
        return [parked.order_by("tenant", "target", "claim_rank", "pk").values_list("pk")]

    def run_once(self, now: datetime) -> Report:
        """Check the targets that have parked jobs, and release the next job of each target that no job holds or blocks."""
        try:
            released = release_parked_targets(MAX_TARGETS, self._batch)
        except DatabaseError as error:
            if db.was_given_up(error):  # the next run uses smaller batches
                self._batch = max(self._batch // 2, 1)
            raise
        self._batch = min(2 * self._batch, BATCH)
        return Report(released)
