"""Promote: move due jobs to QUEUED. A job is due if it waits for a time, and that time is reached."""

from __future__ import annotations

from jobqueue.core import states
from jobqueue.lifecycle import aside, wakeup
from jobqueue.lifecycle.batches import Batch, Batches
from jobqueue.managers.jobs import JobQuerySet
from jobqueue.models import Job

BATCH = 500
CANNOT = "it cannot be promoted"


def promote_due_jobs(limit: int = BATCH, among: JobQuerySet[Job] | None = None) -> int:
    """Move at most `limit` due jobs to QUEUED and return how many; skip rows that are locked."""
    promoted = Job.objects.promote_due(limit, among)
    for queue, tenant in set(promoted):
        wakeup.work(queue, tenant)
    return len(promoted)


class Promotion:
    """Repeated promotion of due jobs, which a bad row does not stop."""

    def __init__(self) -> None:
        """Start with full batches."""
        self._batches = Batches("Promoting due jobs", BATCH)

    @property
    def set_aside(self) -> list[int]:
        """The jobs whose promotion failed and that are skipped for a while."""
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
        """End the jobs that wait for a time but have none, and return how many.

        The constraint that forbids this was not checked for such rows.
        """
        waiting = Job.objects.current.filter(status=states.Status.PENDING, waiting_for=states.WaitingFor.TIME, run_at__isnull=True)
        ids = list(waiting.order_by().values_list("pk", flat=True)[:BATCH])
        return sum(aside.end_pending(job_id, CANNOT, ValueError("it waits for its time, and run_at is empty")) for job_id in ids)
