"""Guard the writes of a run.

A write happens only under the lease of the run, while the job's row is locked. It never waits for that lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jobqueue.core import states
from jobqueue.db import Lease
from jobqueue.exceptions import LeaseLost
from jobqueue.models import Job

LOST = "The lease was lost: another worker may run the job"

# The columns that a run's own writes and their events need, without the arguments and the result, which may be large.
COLUMNS = ("pk", "status", "waiting_for", "lease_token", "attempt", "tenant", "target", "phase", "options", "started_at")
OF_PROGRESS = ("progress", "message")
OF_EVENTS = ("queue", "task", "webhook_url")


class Locked(Exception):
    """Another transaction has locked the job's row."""


@contextmanager
def guarded(lease: Lease) -> Iterator[Job]:
    """Open a short transaction that has locked the row of a job which runs under this lease.

    Raise `LeaseLost` if the job does not run under it, and `Locked` if another transaction has locked the row. The
    caller tries again.
    """
    with Job.objects.database.atomic():
        job = Job.objects.current.unlocked().only(*COLUMNS, *OF_PROGRESS, *OF_EVENTS).filter(pk=lease.job_id).first()
        if job is None and Job.objects.still_ours([lease]):
            raise Locked
        if job is None or job.status != states.Status.RUNNING or job.lease_token != lease.token:
            raise LeaseLost(LOST)
        yield job
