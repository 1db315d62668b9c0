"""Delete what the log and the outbox of webhooks have kept for long enough, also of jobs that are still there or long gone.

Each batch is found by the primary key, from the oldest row on, deleted by it, and committed by itself. The ids of a table rise with time,
so a batch without an old row ends the walk. The walk remembers how far it came, since the index is full of dead entries behind it; now and
then it starts anew, for what was not ready to go. Messages that are still to be sent stay, whatever their age.
"""

from __future__ import annotations

import time

from jobqueue.models import Job, JobEvent, WebhookDelivery

BATCH = 1000
ANEW_SECONDS = 3600.0
TABLES = {JobEvent._meta.db_table: "at", WebhookDelivery._meta.db_table: "finished_at"}


class OldEvents:
    """Delete events, and messages that were sent or given up, that are so many seconds old."""

    def __init__(self, age: float | None) -> None:
        """Prepare; without an age nothing is ever deleted."""
        self._age = age
        self._after = dict.fromkeys(TABLES, 0)
        self._began = time.monotonic()

    def run(self, budget_seconds: float, batch: int = BATCH) -> tuple[int, bool]:
        """Delete for about so long; return how many rows went, and whether there may be more."""
        if self._age is None:
            return 0, False
        if time.monotonic() - self._began >= ANEW_SECONDS:
            self._began, self._after = time.monotonic(), dict.fromkeys(TABLES, 0)
        deleted, until, left = 0, time.monotonic() + budget_seconds, [*TABLES]
        while left and (not deleted or time.monotonic() < until):
            table = left[0]
            gone, last = Job.objects.database.delete_old(table, TABLES[table], self._age, self._after[table], batch)
            deleted += gone
            if last is None:
                left.pop(0)
            else:
                self._after[table] = last
        return deleted, bool(left)
