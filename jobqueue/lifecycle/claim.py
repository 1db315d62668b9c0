"""Claim: take jobs for a worker process, in one statement.

Where the statement fails on a constraint, one row is bad: the rows are then taken one by one, each under its own lock and
savepoint, and the bad one is set aside as ERROR with the reason, so that it never blocks the head of the line.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.db import DataError, IntegrityError
from django.db.models import F
from django.db.models.functions import Now

from jobqueue import states
from jobqueue.db import Claimed
from jobqueue.models import Job

JSON_COLUMNS = ("args", "kwargs", "options", "metadata")


def claim(owner: str, queues: Sequence[str], limit: int, lease_seconds: float, after: tuple[int, int] | None = None) -> list[Claimed]:
    """Take up to `limit` jobs, best first; `after` is the cursor to start behind."""
    try:
        return Job.objects.claim(owner, queues, limit, lease_seconds, after)
    except (IntegrityError, DataError):
        return _one_by_one(owner, queues, limit, lease_seconds)


def _one_by_one(owner: str, queues: Sequence[str], limit: int, lease_seconds: float) -> list[Claimed]:
    taken = []
    with Job.objects.database.atomic():
        queued = Job.objects.current.filter(status=states.Status.QUEUED).in_queues(queues)
        for job in queued.unlocked().order_by("claim_rank", "pk")[:limit]:
            lease = {
                "lease_owner": owner,
                "lease_token": F("lease_token") + 1,
                "lease_expires_at": Now() + timedelta(seconds=lease_seconds),
                "heartbeat_at": Now(),
                "cancel_requested": False,
                "cancel_outcome": "",
            }
            try:
                with Job.objects.database.atomic():  # the savepoint that a bad row is undone to
                    fields: dict[str, Any] = {"attempt": job.attempt + 1, "holds_target": bool(job.target), "started_at": None}
                    Job.objects.move(job, states.RUNNING, **lease, **fields, message="")
            except (IntegrityError, DataError) as error:
                Job.objects.move(job, states.ERROR, message=f"The job cannot be claimed: {error}"[:1000])
            else:
                taken.append(_claimed(job))
    return taken


def _claimed(job: Job) -> Claimed:
    values = {name: getattr(job, name) for name in Claimed._fields}
    values.update(lease_token=job.lease_token + 1, attempt=job.attempt + 1)
    values.update({name: json.dumps(values[name]) for name in JSON_COLUMNS})
    return Claimed(**values)
