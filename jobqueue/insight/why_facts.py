"""What decides why jobs wait, read for several jobs at once: each kind of facts is one statement, sent when it is first needed."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property
from typing import Any

from jobqueue.core import states
from jobqueue.core.targets import Target
from jobqueue.db import Now, overview
from jobqueue.db.overview import TargetHead
from jobqueue.insight.workers import Serving, live_with_counts, serving_among
from jobqueue.models import Job, Queue, Worker

COLUMNS = (
    *("pk", "tenant", "queue", "task", "status", "waiting_for", "claim_rank", "target", "holds_target", "run_at", "attempt", "failures"),
    *("crashes", "max_attempts", "options", "enqueued_at", "started_at", "finished_at", "first_started_at", "expires_at"),
    *("lease_expires_at", "cancel_requested", "cancel_outcome"),
)


def read(ids: Iterable[int]) -> list[Any]:
    """Return jobs with the columns that the gates need, and with the time of the database."""
    return list(Job.objects.current.only(*COLUMNS).annotate(now=Now()).filter(pk__in=[*ids]))


class Facts:
    """The queues, targets, workers and running jobs on which some jobs depend."""

    def __init__(self, jobs: Collection[Any]) -> None:
        """Read nothing yet."""
        self._jobs = jobs

    @cached_property
    def heads(self) -> dict[Target, TargetHead]:
        """The jobs at the front of the lines of the jobs' targets."""
        targets = {job.tenant_target for job in self._jobs if job.target}
        return {Target(head.tenant, head.target): head for head in overview.target_heads(Job.objects.database, targets)}

    @cached_property
    def ahead(self) -> dict[int, Any]:
        """These jobs at the front, by their numbers."""
        return {job.pk: job for job in read({job_id for head in self.heads.values() for job_id in head.job_ids})}

    @cached_property
    def queues(self) -> dict[str, Queue]:
        """The rows of the queues of the jobs and of those at the front of their lines."""
        names = {job.queue for job in (*self._jobs, *self.ahead.values())}
        return {row.pk: row for row in Queue.objects.current.filter(pk__in=names)}

    @cached_property
    def running(self) -> dict[str, int]:
        """The number of running jobs of each queue whose leases are valid."""
        rows = Job.objects.current.filter(status=states.Status.RUNNING, lease_expires_at__gte=Now())
        numbers: dict[str, int] = rows.counts_by_queue()
        return numbers

    @cached_property
    def _workers(self) -> list[Worker]:
        return live_with_counts()

    def serving(self, queue: str | None) -> Serving:
        """Count the live workers as `insight.workers.serving` does."""
        return serving_among(self._workers, queue)
