"""The queries on jobs.

Only this module and the statements of ``db`` write `status`. A move is one guarded UPDATE. Its condition names
the state that the caller has read and the `lease_token`. It returns how many rows it moved. 0 means that another
transaction has changed the job before. The claim and the ends of runs are statements of ``db``. All other moves
go through `move` and the methods beside it, which check the table of states first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Self

from django.db import models, router
from django.db.models import F, Q, Value
from django.db.models.functions import Left
from django.db.models.lookups import Exact

from jobqueue.core import states
from jobqueue.core.event_names import DELETED
from jobqueue.db import NO_LEASE, Database, Event, Lease, Now, Renewed, events, for_alias
from jobqueue.db import leases as leases_sql
from jobqueue.db import overview as overview_sql
from jobqueue.db.overview import MAX_QUEUES
from jobqueue.exceptions import MAX_DELAY_SECONDS, JobIsRunning
from jobqueue.managers import Row

if TYPE_CHECKING:
    from jobqueue.core.queue_rules import ServedQueues
    from jobqueue.core.targets import Target

ERASED_AT_ONCE = 1000
MAX_LEASE = timedelta(seconds=MAX_DELAY_SECONDS) + timedelta(days=1)  # the longest possible lease, for any LEASE_SECONDS


class JobQuerySet(models.QuerySet[Row]):
    """Sets of jobs."""

    def numbered(self, stored: object) -> Self:
        """Return the job with a number that another row holds, or none: SQLite stores any value in any column."""
        return self.filter(pk=stored) if isinstance(stored, int) else self.none()

    def in_queues(self, queues: Sequence[str]) -> Self:
        """Return the jobs of these queues (empty: of all queues)."""
        return self.filter(queue__in=queues) if queues else self

    def served_by(self, served: ServedQueues) -> Self:
        """Return the jobs of the queues that a rule serves."""
        included = Q(queue__in=served.names) if served.names else Q()
        for prefix in served.prefixes:
            included |= _begins(prefix)
        excluded = [~Q(queue__in=served.without)] if served.without else []
        return self.filter(included, *excluded, *(~_begins(prefix) for prefix in served.without_prefixes))

    def due(self) -> Self:
        """Return the jobs that wait for a time, if that time is reached."""
        return self.filter(status=states.Status.PENDING, waiting_for=states.WaitingFor.TIME, run_at__lte=Now())

    def lapsed(self) -> Self:
        """Return the jobs that wait and have never started, if the time by which they had to start has passed."""
        unbegun = self.filter(first_started_at__isnull=True, finished_at__isnull=True, expires_at__lte=Now())
        return unbegun.filter(status__in=[states.Status.QUEUED, states.Status.PENDING])

    def expired(self) -> Self:
        """Return the running jobs whose lease has run out, or has no end, or an end that no worker can have set."""
        wrong = Q(lease_expires_at__isnull=True) | Q(lease_expires_at__gt=Now() + MAX_LEASE)
        return self.filter(Q(lease_expires_at__lt=Now()) | wrong, status=states.Status.RUNNING)

    def queued(self) -> Self:
        """Return the jobs that are QUEUED, in the order of their index."""
        return self.filter(status=states.Status.QUEUED).order_by("tenant", "claim_rank", "pk")

    def any_queued(self) -> bool:
        """Return whether a job is QUEUED. This reads the first entry of the index."""
        return self.queued().values_list("pk").first() is not None

    def owned_by(self, owner: str) -> Self:
        """Return the running jobs of one worker process."""
        return self.filter(status=states.Status.RUNNING, lease_owner=owner)

    def unfinished(self, excluded_queues: Collection[str] = ()) -> Self:
        """Return the jobs for which ``runworkers --once`` waits.

        These are the running jobs and, outside of `excluded_queues`, those that are queued or wait for a retry.
        """
        retry = Q(status=states.Status.PENDING, waiting_for=states.WaitingFor.TIME) & (Q(failures__gt=0) | Q(crashes__gt=0))
        waiting = Q(status=states.Status.QUEUED) | retry
        return self.filter(Q(status=states.Status.RUNNING) | (waiting & ~Q(queue__in=excluded_queues) if excluded_queues else waiting))

    def blocking(self, target: Target) -> Self:
        """Return the jobs that hold a target or block it, the holder first."""
        holds_or_blocks = Q(holds_target=True) | Q(status__in=[states.Status.PAUSED, states.Status.ERROR])
        jobs = self.filter(holds_or_blocks, ~Q(target=""), tenant=target.tenant, target=target.name)
        return jobs.order_by("-holds_target", "claim_rank", "pk")

    def counts_by_queue(self) -> dict[str, int]:
        """Return the number of these jobs in each queue."""
        return dict(self.order_by().values_list("queue").annotate(models.Count("pk")))

    def erase(self) -> tuple[int, dict[str, int]]:
        """Delete the jobs, whatever their state, and record this as events.

        The callers hold the locks of the targets, and settle the targets.
        """
        database, total = for_alias(self.db, self.model._meta.db_table), Counter[str]()
        with database.atomic():
            columns = ("pk", "attempt", "tenant", "target", "queue", "task", "status", "webhook_url")
            # Lock the rows, so that exactly those jobs are deleted whose deletion is recorded.
            same_jobs: JobQuerySet[Row] = JobQuerySet(self.model, using=self.db).filter(pk__in=self.order_by().values("pk"))
            rows = list(same_jobs.order_by("pk").select_for_update(of=("self",)).values_list(*columns))
            for first in range(0, len(rows), ERASED_AT_ONCE):
                part = rows[first : first + ERASED_AT_ONCE]
                jobs: JobQuerySet[Row] = JobQuerySet(self.model, using=self.db).filter(pk__in=[row[0] for row in part]).only("pk")
                total.update(models.QuerySet.delete(jobs)[1])
                # After the deletion, because it deletes the events of the jobs, too.
                events.write(database, (Event._make((row[0], DELETED, None, *row[1:4], None, *row[4:])) for row in part))
        return total.total(), dict(total)

    def delete(self) -> tuple[int, dict[str, int]]:
        """Delete the jobs and settle their targets. If one of them runs, delete nothing and raise `JobIsRunning`.

        Jobs without a target, and jobs in SUCCESS or CANCELED, are deleted together. Each other job is deleted in
        a separate transaction.
        """
        running = list(self.filter(status=states.Status.RUNNING).order_by("pk").values_list("pk", flat=True)[:10])
        if running:
            raise JobIsRunning(f"Running jobs cannot be deleted: cancel them first ({', '.join(map(str, running))}).")
        waited_for = list(self.exclude(target="").exclude(status__in=states.FINAL).values_list("pk", flat=True))
        count, details = self.filter(Q(target="") | Q(status__in=states.FINAL)).exclude(status=states.Status.RUNNING).erase()
        for job_id in waited_for:
            self.model(pk=job_id).delete()
        return count + len(waited_for), {**details, self.model._meta.label: details.get(self.model._meta.label, 0) + len(waited_for)}

    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]

    def locked(self) -> Self:
        """Lock the rows, and wait for their locks, in a mode that does not conflict with foreign keys."""
        return self.select_for_update(no_key=True)

    def unlocked(self) -> Self:
        """Lock the rows that are not locked, and skip the rest."""
        return self.select_for_update(no_key=True, skip_locked=True)


class JobManager(models.Manager.from_queryset(JobQuerySet), Generic[Row]):  # type: ignore[misc]
    """The queries on jobs, on the database that jobs are written to. Reads also use that database, because a replica can be behind."""

    use_in_migrations = False

    def get_queryset(self) -> JobQuerySet[Row]:
        """Return all jobs, for the admin and for users' projects. A router can send these reads to a replica."""
        return JobQuerySet(self.model, using=self._db, hints=self._hints)

    @property
    def database(self) -> Database:
        """The statements of the job database."""
        return for_alias(router.db_for_write(self.model), self.model._meta.db_table)

    @property
    def current(self) -> JobQuerySet[Row]:
        """All jobs, read from the database that they are written to."""
        return JobQuerySet(self.model, using=router.db_for_write(self.model))

    def any_in_queue(self, name: str) -> bool:
        """Return whether jobs of a queue are QUEUED or RUNNING."""
        if any(pair.name == name for pair in overview_sql.queues_in(self.database, MAX_QUEUES)):
            return True
        return bool(self.current.filter(status=states.Status.RUNNING, queue=name).exists())

    # Claim and lease

    def renew(self, leases: Sequence[Lease], lease_seconds: float) -> list[Renewed]:
        """Renew leases in one statement. Rows that are locked are skipped, and are not in the result."""
        return leases_sql.renew(self.database, leases, lease_seconds) if leases else []

    def still_ours(self, leases: Iterable[Lease]) -> set[Lease]:
        """Return which of the leases are still held, without locking a row."""
        wanted = set(leases)
        rows = self.current.filter(pk__in=[lease.job_id for lease in wanted], status=states.Status.RUNNING)
        return {lease for lease in (Lease(*row) for row in rows.values_list("pk", "lease_token")) if lease in wanted}

    # Moves

    def move(self, job: Any, destination: states.Place, **fields: Any) -> int:
        """Move a job that the caller has read; return the number of rows moved.

        If other statements depend on the move, the caller has locked the row.
        """
        return self._guarded(job).update(**_changes(job, destination, fields))

    def move_alike(self, jobs: Collection[Any], destination: states.Place, **fields: Any) -> int:
        """Move jobs that the caller has locked, all with the same columns, in one statement per state; return the number of rows moved."""
        moved = 0
        for place in {job.place for job in jobs}:
            alike = [job for job in jobs if job.place == place]
            rows = self.current.filter(pk__in=[job.pk for job in alike], status=place[0], waiting_for=place[1])
            moved += rows.update(**_changes(alike[0], destination, fields))
        return moved

    def _guarded(self, job: Any) -> JobQuerySet[Row]:
        return self.current.filter(pk=job.pk, status=job.status, waiting_for=job.waiting_for, lease_token=job.lease_token)

    def flag(self, job: Any, outcome: str, message: str = "") -> int:
        """Write a request to stop to a running job, or withdraw it if `outcome` is empty. Return the number of rows changed."""
        guard = self.current.filter(pk=job.pk, status=states.Status.RUNNING, lease_token=job.lease_token)
        return guard.update(cancel_requested=bool(outcome), cancel_outcome=outcome)

    def promote_due(self, limit: int, among: JobQuerySet[Row] | None = None) -> list[tuple[str, str]]:
        """Move at most `limit` due jobs to QUEUED, and skip locked rows. Return the queue and the tenant of each."""
        states.check(states.PENDING_TIME, states.QUEUED)
        with self.database.atomic():
            jobs = (self.current if among is None else among).due().unlocked().order_by("run_at")[:limit]
            due = {pk: (queue, tenant) for pk, queue, tenant in jobs.values_list("pk", "queue", "tenant")}
            if due:
                self.current.filter(pk__in=due, status=states.Status.PENDING).update(
                    status=states.Status.QUEUED,
                    waiting_for="",
                    enqueued_at=Now(),
                    priority=F("priority"),  # see `Database.updating`
                )
        return list(due.values())

    def depth(self, served: ServedQueues, limit: int, excluded_queues: Collection[str] = (), others: Collection[str] = ()) -> int:
        """Return how many jobs could be claimed now, up to `limit`, except those in `excluded_queues` and of the tenants `others`."""
        queued = self.current.filter(status=states.Status.QUEUED).served_by(served)
        if excluded_queues:
            queued = queued.exclude(queue__in=excluded_queues)
        if others:
            queued = queued.exclude(tenant__in=others)
        return len(queued.order_by()[:limit].values_list("pk"))


def _begins(prefix: str) -> Q:
    """Return the condition that a queue's name begins with a prefix; on SQLite, `startswith` would ignore case."""
    return Q(Exact(Left("queue", len(prefix)), Value(prefix)))


def _changes(job: Any, destination: states.Place, fields: dict[str, Any]) -> dict[str, Any]:
    """Return all columns that a move writes."""
    states.check(job.place, destination)
    status, waiting_for = destination
    changes: dict[str, Any] = {"status": status, "waiting_for": waiting_for, **_consequences(status), **fields}
    if job.status == states.Status.RUNNING:
        changes = {**NO_LEASE, **changes}
    if job.status == states.Status.ERROR:
        changes["stale_at"] = None  # no longer stale, because an operator has resumed or canceled the job
    return changes


def _consequences(status: str) -> dict[str, Any]:
    """Return the columns that follow from the new status alone."""
    changes: dict[str, Any] = {}
    if status in states.ENDED:
        changes["finished_at"] = Now()
    elif status != states.Status.PAUSED:
        changes["finished_at"] = None
    if status in states.FINAL:
        changes["holds_target"] = False
    if status == states.Status.QUEUED:
        changes["enqueued_at"] = Now()
    return changes
