"""Promote: let jobs whose time has come be taken."""

from __future__ import annotations

from jobqueue.core import states
from jobqueue.lifecycle import aside, wakeup
from jobqueue.lifecycle.batches import Batch, Batches
from jobqueue.managers.jobs import JobQuerySet
from jobqueue.models import Job

BATCH = 500
CANNOT = "it cannot be promoted"


def promote_due_jobs(limit: int = BATCH, among: JobQuerySet | None = None) -> int:
    """Move at most `limit` due jobs to QUEUED, passing over rows that somebody has locked; return how many."""
    promoted = Job.objects.promote_due(limit, among)
    for queue, tenant in set(promoted):
        wakeup.work(queue, tenant)
    return len(promoted)


class Promotion:
    """Promote again and again, whatever single rows do."""

    def __init__(self) -> None:
        """Begin with full batches."""
        self._batches = Batches("Promoting due jobs", BATCH)

    @property
    def set_aside(self) -> list[int]:
        """The jobs that could not be promoted a while ago, and are not tried again yet."""
        return self._batches.set_aside

    def run(self) -> Batch:
        """Promote one batch."""
        jobs = Job.objects.current.exclude(pk__in=self.set_aside) if self.set_aside else Job.objects.current
        return self._batches.run(
            lambda size: promote_due_jobs(size, jobs),
            lambda size: list(jobs.due().order_by("run_at").values_list("pk", flat=True)[:size]),
            lambda job_id: promote_due_jobs(1, Job.objects.current.filter(pk=job_id)),
            lambda job_id, error: aside.end_pending(job_id, CANNOT, error),
        )

    def set_aside_without_time(self) -> int:
        """End the jobs that wait for a time and have none: no constraint has checked them. Return how many."""
        waiting = Job.objects.current.filter(status=states.Status.PENDING, waiting_for=states.WaitingFor.TIME, run_at__isnull=True)
        ids = list(waiting.order_by().values_list("pk", flat=True)[:BATCH])
        return sum(aside.end_pending(job_id, CANNOT, ValueError("it waits for its time, and run_at is empty")) for job_id in ids)
