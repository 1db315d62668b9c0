"""The newest events of one job, up to a maximum number, with masked texts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jobqueue.core.capping import capped
from jobqueue.core.masking import PLAIN, Mask
from jobqueue.db import eventlog
from jobqueue.models import Job

MAX_EVENTS = 50


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """An event; `seconds` is the time since the event before it, or None for the first event that is shown."""

    id: int
    name: str
    at: datetime
    attempt: int
    data: dict[str, Any]
    seconds: float | None

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"id": self.id, "name": self.name, "at": self.at.isoformat(), "attempt": self.attempt, "data": self.data}


def timeline(job: Job, limit: int = MAX_EVENTS, *, mask: Mask = PLAIN) -> tuple[list[TimelineEvent], bool]:
    """Return the newest events of a job, the oldest of these first, and whether there are older ones."""
    rows = eventlog.events_of(Job.objects.database, job.pk, limit + 1)
    events: list[TimelineEvent] = []
    before: datetime | None = None
    for row in rows[-limit:]:
        data = mask.value(capped(row.data, mask=mask))
        seconds = (row.at - before).total_seconds() if before is not None else None
        events.append(TimelineEvent(row.id, row.name, row.at, row.attempt, data if isinstance(data, dict) else {}, seconds))
        before = row.at
    return events, len(rows) > limit
