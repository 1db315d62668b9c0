"""Promote: let jobs whose time has come be taken."""

from __future__ import annotations

from jobqueue.lifecycle import wakeup
from jobqueue.models import Job


def promote_due_jobs(limit: int = 500) -> int:
    """Move at most `limit` due jobs to QUEUED, passing over rows that somebody has locked; return how many."""
    queues = Job.objects.promote_due(limit)
    for queue in set(queues):
        wakeup.work(queue)
    return len(queues)
