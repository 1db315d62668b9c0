"""The load of the queues over the last hour, from the samples that the duty `collect_metrics` writes.

The oldest sample is overwritten.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from jobqueue.db import Now
from jobqueue.models import Job, QueueSample

SLOT_SECONDS = 10
SLOTS = 360
VALUES = ("queued", "running", "oldest_seconds", "enqueued_per_second", "finished_per_second", "failed_per_second")


@dataclass(frozen=True, slots=True)
class Sample:
    """The load of one queue at one moment; a rate is None if there was no sample before."""

    queue: str
    at: datetime
    queued: int
    running: int
    oldest_seconds: float | None
    enqueued_per_second: float | None
    finished_per_second: float | None
    failed_per_second: float | None


def samples(queue: str | None = None, seconds: float = SLOTS * SLOT_SECONDS) -> list[Sample]:
    """Return the samples of a queue (None: of all) from the last `seconds`, at most an hour, oldest first."""
    found = ring().filter(at__gt=Now() - timedelta(seconds=min(seconds, SLOTS * SLOT_SECONDS)))
    if queue is not None:
        found = found.filter(queue=queue)
    return [Sample(*row) for row in found.order_by("at", "queue").values_list("queue", "at", *VALUES)]


def ring() -> Any:
    """Return the stored samples."""
    return QueueSample.objects.using(Job.objects.database.alias)
