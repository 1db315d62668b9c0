"""Drop the rows of worker processes that were not heard for a day; until then people can see that one died, and where."""

from __future__ import annotations

from datetime import datetime, timedelta

from jobqueue.db import Now
from jobqueue.duties.base import Duty, Report
from jobqueue.models import Job, Worker

FORGET_AFTER = timedelta(days=1)
BATCH = 500


class ForgetDeadWorkers(Duty):
    """Delete rows of workers that were not heard for a day."""

    name = "forget_dead_workers"
    interval_seconds = 60.0
    exact_now = False

    def run_once(self, now: datetime) -> Report:
        """Delete a batch; rows that somebody has locked wait for the next run."""
        workers = Worker.objects.using(Job.objects.database.alias)
        dead = workers.filter(heartbeat_at__lt=Now() - FORGET_AFTER).order_by("heartbeat_at")
        with Job.objects.database.atomic():
            keys = list(dead.select_for_update(skip_locked=True).values_list("pk", flat=True)[:BATCH])
            if keys:
                workers.filter(pk__in=keys).delete()
        return Report(items=len(keys), again=len(keys) == BATCH)
