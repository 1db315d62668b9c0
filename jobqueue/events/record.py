"""Record: what happened to a job goes into its log in the transaction of the move, while its row is locked.

The moves that happen to very many jobs (enqueue, the start and the success of runs) write their events in their own statements (see
``db/events.py``). All others come here: one statement for each call, whatever it records, so that a batch is recorded at once.

What is recorded is what people may see: texts are masked and cut, and no arguments, results or tracebacks are among them.
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
from jobqueue.models import Job

MAX_TEXT_BYTES = 2000


def record(job: Job, name: str, data: dict[str, Any] | None = None, *, attempt: int | None = None) -> None:
    """Write one event of a job that the caller has moved or changed in this transaction, and what webhooks are to tell of it."""
    record_all([event(job, name, data, attempt=attempt)])


def record_all(events: Iterable[Event]) -> None:
    """Write events, those of one job in this order."""
    Job.objects.database.tell(events)


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

    Its attempt is that of the run, unless it is named; `status` is the job's now, where the name does not tell.
    """
    told = shown(data)
    return Event(
        job.pk,
        name,
        at,
        job.attempt if attempt is None else attempt,
        job.tenant,
        job.target,
        json.dumps(told) if told else None,
        job.queue,
        job.task,
        status or names.STATUS_AFTER.get(name, job.status),
        job.webhook_url,
    )


def shown(data: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return what people may see of an event's data; None where there is nothing."""
    return {key: _shown(value) for key, value in data.items()} if data else None


def last_progress(job: Job, progress: int, message: str | None) -> Event | None:
    """Return the event of the last progress that a run has told of; None where the job's row, as it was read, has it already."""
    text = job.message if message is None else message
    if (progress, text) == (job.progress, job.message):
        return None
    return event(job, names.PROGRESS, {"progress": progress, "message": text})


def record_of(ids: Sequence[int], name: str) -> None:
    """Write the same event of each of the jobs, which the caller has locked."""
    if ids:
        Job.objects.database.tell_of(ids, name)


def _shown(value: Any) -> Any:
    return PLAIN.cut(clean(value), MAX_TEXT_BYTES) if isinstance(value, str) else value
