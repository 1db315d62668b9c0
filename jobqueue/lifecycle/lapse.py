"""Cancel the jobs that have not begun by the time at which they expire (``expires=``).

A worker that claims such a job also cancels it, so such a job never runs. If another transaction holds the lock
of a target or of a row, the job is left for the next sweep. Nothing here waits for a lock.
"""

from __future__ import annotations

from collections.abc import Callable

from django.db.models import Q

from jobqueue.core import event_names as names
from jobqueue.core import states
from jobqueue.core.targets import Target
from jobqueue.events.record import event, record_all
from jobqueue.lifecycle import children, phases
from jobqueue.lifecycle.batches import Batch, Batches
from jobqueue.lifecycle.outcome import EXPIRED
from jobqueue.lifecycle.release import settle_safely, try_lock
from jobqueue.managers.jobs import JobQuerySet
from jobqueue.models import Job

MAX_BATCH = 500
PLAIN = Q(target="", phase="")


class Lapses:
    """The sweep of jobs that have expired; a bad row does not stop the other rows."""

    def __init__(self) -> None:
        """Start with full batches."""
        self._plain = Batches("Canceling expired jobs", MAX_BATCH)
        self._others = Batches("Canceling expired jobs with a target or phases", MAX_BATCH)

    def run(self) -> Batch:
        """Cancel one batch of plain jobs and one of jobs with a target or phases; return how many were canceled and set aside."""
        plain = self._run(self._plain, PLAIN, lambda jobs, size: _cancel(jobs.order_by("expires_at")[:size]))
        others = self._run(self._others, ~PLAIN, lambda jobs, size: sum(map(_cancel_one, _ids(jobs, size))))
        return Batch(plain.moved + others.moved, plain.set_aside + others.set_aside)

    def _run(self, batches: Batches, condition: Q, cancel: Callable[[JobQuerySet[Job], int], int]) -> Batch:
        aside = batches.set_aside
        jobs = Job.objects.current.lapsed().filter(condition)
        if aside:
            jobs = jobs.exclude(pk__in=aside)
        return batches.run(lambda size: cancel(jobs, size), lambda size: _ids(jobs, size), _cancel_one)


def cancel_lapsed() -> int:
    """Cancel every job that has expired by now; return how many."""
    lapses, moved = Lapses(), 0
    while count := lapses.run().moved:
        moved += count
    return moved


def _ids(jobs: JobQuerySet[Job], limit: int) -> list[int]:
    return list(jobs.order_by("expires_at").values_list("pk", flat=True)[:limit])


def _cancel(due: JobQuerySet[Job]) -> int:
    """Cancel jobs that have no target and no phases."""
    with Job.objects.database.atomic():
        jobs = list(due.unlocked())
        moved = Job.objects.move_alike(jobs, states.CANCELED, message=EXPIRED)
        record_all(event(job, names.CANCELED, {"message": EXPIRED}) for job in jobs)
    return moved


def _cancel_one(job_id: int) -> int:
    with Job.objects.database.atomic():
        row = Job.objects.current.filter(pk=job_id).values_list("tenant", "target").first()
        if row is None or (row[1] and not try_lock([Target(*row)])):
            return 0
        job = Job.objects.current.lapsed().unlocked().filter(pk=job_id).first()
        if job is None:
            return 0
        Job.objects.move(job, states.CANCELED, message=EXPIRED)
        phases.settle(job, states.CANCELED)
        if job.phase:
            children.forget_unended(job)
        record_all([event(job, names.CANCELED, {"message": EXPIRED})])
        if job.target:
            settle_safely([job.tenant_target])
    return 1
