"""Delete old rows of the logs of events, of runs and of the audit, and of the outbox of webhooks, whether their jobs exist or not.

Each batch is found by the primary key, from the oldest row, deleted by it, and committed alone. The ids of a table
rise with time, so a batch without an old row ends the walk. The walk stores its position, because the index before
it is full of dead entries. From time to time it starts again, for rows that could not be deleted before. Unsent
messages stay at any age.
"""

from __future__ import annotations

import time

from jobqueue.db import eventlog
from jobqueue.models import AuditRecord, Job, JobEvent, JobLog, WebhookDelivery

BATCH = 1000
ANEW_SECONDS = 3600.0
TABLES = {
    JobEvent._meta.db_table: "at",
    JobLog._meta.db_table: "at",
    AuditRecord._meta.db_table: "at",
    WebhookDelivery._meta.db_table: "finished_at",
}


class OldEvents:
    """The deletion of events, of log lines, of records of the audit, and of ended messages, that have reached an age in seconds."""

    def __init__(self, age: float | None) -> None:
        """Create it; without an age, nothing is deleted."""
        self._age = age
        self._after = dict.fromkeys(TABLES, 0)
        self._began = time.monotonic()

    def run(self, budget_seconds: float, batch: int = BATCH) -> tuple[int, bool]:
        """Delete for about `budget_seconds`; return how many rows were deleted, and whether there may be more."""
        if self._age is None:
            return 0, False
        if time.monotonic() - self._began >= ANEW_SECONDS:
            self._began, self._after = time.monotonic(), dict.fromkeys(TABLES, 0)
        deleted, until, tables = 0, time.monotonic() + budget_seconds, [*TABLES]
        while tables and (not deleted or time.monotonic() < until):
            table = tables[0]
            count, last = eventlog.delete_old(Job.objects.database, table, TABLES[table], self._age, self._after[table], batch)
            deleted += count
            if last is None:
                tables.pop(0)
            else:
                self._after[table] = last
        return deleted, bool(tables)
