"""The duty that deletes the rows of dead workers. For `FORGET_AFTER`, operators can see on the Workers page that one died, and where."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from jobqueue.db import Now
from jobqueue.duties.base import Duty, Report
from jobqueue.lifecycle.workers import record_left
from jobqueue.models import Job, LeftWorker, Worker

FORGET_AFTER = timedelta(days=1)
BATCH = 500


class ForgetDeadWorkers(Duty):
    """The duty that deletes rows of workers whose last heartbeat is older than `FORGET_AFTER`."""

    name = "forget_dead_workers"
    interval_seconds = 60.0
    is_short = True

    def questions(self) -> Sequence[QuerySet[Any]]:
        """Return the query of the dead workers."""
        return [_dead().values_list("pk")]

    def run_once(self, now: datetime) -> Report:
        """Delete a batch of rows; leave rows that another session has locked to the next run."""
        with Job.objects.database.atomic():
            keys = list(_dead().select_for_update(skip_locked=True).values_list("pk", flat=True)[:BATCH])
            deleted = record_left(keys, LeftWorker.How.SILENT)
        return Report(items=deleted, again=deleted == BATCH)


def _dead() -> QuerySet[Worker]:
    workers = Worker.objects.using(Job.objects.database.alias)
    return workers.filter(heartbeat_at__lt=Now() - FORGET_AFTER).order_by("heartbeat_at")
