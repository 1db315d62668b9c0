"""Record: write an event of a job in the transaction of the move that it tells of, while the job's row is locked."""

from __future__ import annotations

from typing import Any

from jobqueue import conf
from jobqueue.models import Job, JobEvent

PROGRESS = "job.progress"


def is_kept(name: str) -> bool:
    """Return whether the project keeps events of this name (`EVENT_LOG`)."""
    kept = getattr(conf.current(), "event_log", "lifecycle")
    return bool(kept == "all" or (kept == "lifecycle" and name != PROGRESS))


def record(job: Job, name: str, data: dict[str, Any] | None = None, *, attempt: int | None = None) -> None:
    """Write one event of a job."""
    if is_kept(name):
        JobEvent.objects.using(Job.objects.database.alias).create(
            job_id=job.pk,
            name=name,
            attempt=job.attempt if attempt is None else attempt,
            tenant=job.tenant,
            target=job.target,
            data=data,
        )
