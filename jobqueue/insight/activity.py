"""Who did what to which object: the rows of the audit, the newest first."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet

from jobqueue.access import visible
from jobqueue.db import Now
from jobqueue.models import AuditRecord, Job

FIELDS = ("id", "actor", "name", "source", "verb", "object", "job_id", "verdict", "address", "text")


def records(user: Any) -> QuerySet[AuditRecord]:
    """Return the records that a user may see; if the user may not see all jobs, those about jobs that the user sees.

    `user` None is an operator, who sees all.
    """
    rows = AuditRecord.objects.using(Job.objects.database.alias).order_by("-pk")
    wanted = None if user is None else visible.condition(user)
    return rows if wanted is None else rows.filter(Exists(Job.objects.filter(wanted, pk=OuterRef("job_id"))))


def activity(
    user: Any,
    most: int,
    *,
    name: str = "",
    verb: str = "",
    job_id: int | None = None,
    after: int | None = None,
    since: datetime | timedelta | None = None,
    before: datetime | timedelta | None = None,
) -> tuple[list[AuditRecord], int | None]:
    """Return up to `most` records of a user or operator by name, of a verb, about a job, or of a time, and the number to continue after."""
    rows = records(user)
    if name:
        rows = rows.filter(name=name)
    if verb:
        rows = rows.filter(verb=verb)
    if job_id is not None:
        rows = rows.filter(job_id=job_id)
    for side, when in (("gte", since), ("lt", before)):
        if when is not None:
            rows = rows.filter(**{f"at__{side}": when if isinstance(when, datetime) else Now() - when})
    if after is not None:
        rows = rows.filter(pk__lt=after)
    found = list(rows[: most + 1])
    return found[:most], found[most - 1].pk if len(found) > most else None


def as_json(record: AuditRecord) -> dict[str, Any]:
    """Return a record as JSON values."""
    return {**{name: getattr(record, name) for name in FIELDS}, "at": record.at.isoformat()}
