"""The duty of bulk actions: it does them in small batches (see ``bulk/work.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from jobqueue.bulk.actions import rows
from jobqueue.bulk.work import BulkWork
from jobqueue.duties.base import Duty, Report
from jobqueue.models import BulkAction


class RunBulkActions(Duty):
    """The duty that changes the jobs of bulk actions, a fraction of a second at a time."""

    name = "run_bulk_actions"
    interval_seconds = 1.0
    is_short = True
    releases_jobs = True

    def __init__(self) -> None:
        """Start with whole batches."""
        self._work = BulkWork()

    def questions(self) -> Sequence[QuerySet[Any]]:
        """Return the query of the open bulk actions."""
        return [rows().filter(state=BulkAction.State.OPEN).order_by("pk").values_list("pk")]

    def run_once(self, now: datetime) -> Report:
        """Do some batches, and continue at once if there is more to do."""
        changed, more = self._work.run()
        return Report(items=changed, again=more)
