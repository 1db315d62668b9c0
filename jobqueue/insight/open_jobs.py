"""The first jobs in line of a queue, and the running jobs of a queue or task: a bounded number, found by their indexes."""

from __future__ import annotations

import heapq
from typing import Any

from jobqueue.access import visible
from jobqueue.core import states
from jobqueue.db import Now
from jobqueue.db import overview as overview_sql
from jobqueue.db.overview import MAX_QUEUES
from jobqueue.models import Job

MAX_TENANTS = 20  # of a queue, whose first jobs are read
BIG_COLUMNS = ("args", "kwargs", "options", "metadata", "result", "history", "message", "webhook_url")


def first_in_line(queue: str, user: Any, most: int) -> list[Job]:
    """Return the QUEUED jobs of a queue that are claimed first if the tenants take turns equally, among those that the user may see."""
    tenants = [pair.tenant for pair in overview_sql.queues_in(Job.objects.database, MAX_QUEUES) if pair.name == queue][:MAX_TENANTS]
    found = []
    for tenant in tenants:  # the index begins with the tenant
        jobs = _jobs(user).filter(status=states.Status.QUEUED, tenant=tenant, queue=queue)
        found.append([*jobs.order_by("claim_rank", "pk")[:most]])
    return [*heapq.merge(*found, key=lambda job: (job.claim_rank, job.pk))][:most]


def running(filters: dict[str, str], user: Any, most: int) -> list[Job]:
    """Return the RUNNING jobs that `filters` select and the user may see, the ones that run longest first."""
    return [*_jobs(user).filter(status=states.Status.RUNNING, **filters).order_by("started_at")[:most]]


def _jobs(user: Any) -> Any:
    return visible.narrow(user, Job.objects.current.all()).annotate(now=Now()).defer(*BIG_COLUMNS)
