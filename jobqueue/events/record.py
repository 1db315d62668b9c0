"""Record events of a job in the event log.

The caller has locked the row of the job, and the events are written in the transaction of the move.

The most frequent moves (enqueue, the start and the success of runs) write their events in their own statements (see
``db/events.py``). All other moves call this module, which sends one statement per call, even for a batch.

Events contain only what users may see: texts are masked and cut, and there are no arguments, results or
tracebacks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from jobqueue.core import event_names as names
from jobqueue.core.masking import PLAIN
from jobqueue.core.texts import clean
from jobqueue.db import Event
from jobqueue.db import events as events_sql
from jobqueue.models import Job

MAX_TEXT_BYTES = 2000


def record(job: Job, name: str, data: dict[str, Any] | None = None, *, attempt: int | None = None) -> None:
    """Write one event of a job that the caller has changed in this transaction, and the webhook deliveries for it."""
    record_all([event(job, name, data, attempt=attempt)])


def record_all(events: Iterable[Event]) -> None:
    """Write events; those of one job keep this order."""
    events_sql.write(Job.objects.database, events)


def event(
    job: Job,
    name: str,
    data: Mapping[str, Any] | None = None,
    *,
    attempt: int | None = None,
    at: datetime | None = None,
    status: str = "",
) -> Event:
    """Return an event of a job as it was read, to be recorded.

    The attempt is that of the run, unless it is given. `status` is the status of the job, if the name of the event
    does not imply it.
    """
    shown_data = shown(data)
    return Event(
        job.pk,
        name,
        at,
        job.attempt if attempt is None else attempt,
        job.tenant,
        job.target,
        json.dumps(shown_data) if shown_data else None,
        job.queue,
        job.task,
        status or names.STATUS_AFTER.get(name, job.status),
        job.webhook_url,
    )


def shown(data: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the parts of an event's data that users may see; None if there are none."""
    return {key: _shown(value) for key, value in data.items()} if data else None


def last_progress(job: Job, progress: int, message: str | None) -> Event | None:
    """Return the event of a run's last progress; None if the job's row, as it was read, has that progress already."""
    text = job.message if message is None else message
    if (progress, text) == (job.progress, job.message):
        return None
    return event(job, names.PROGRESS, {"progress": progress, "message": text})


def record_of(ids: Sequence[int], name: str) -> None:
    """Write the same event for each of the jobs, which the caller has locked."""
    if ids:
        events_sql.write_for_each(Job.objects.database, ids, name)


def _shown(value: Any) -> Any:
    return PLAIN.cut(clean(value), MAX_TEXT_BYTES) if isinstance(value, str) else value
