"""Expire: recover running jobs whose leases have run out.

Only the values in the job's row decide. If the row has a flag, the job becomes PAUSED or CANCELED, whatever its
`recovery` and its crashes are. Otherwise ``recovery="hold"`` gives ERROR immediately. ``"requeue"`` gives QUEUED
at the old place after the first crash, PENDING for 2, 4, 8 s after later crashes, and ERROR after `MAX_CRASHES`.
Crashes never count towards `max_attempts`. Locked rows are skipped, so any number of sweeps can run at the same
time.

A job that has crashed before begins only after its start was written (see ``worker/running/probation.py``). If no
start was written, the job was still waiting for its turn when the process was lost. That is not a crash, and the
job returns to the queue as if it had been handed back. It is not a crash either if the worker was stopping,
because a container platform may have killed it, or if the worker was ended because of another job. Such a job
becomes QUEUED again, up to `MAX_UNBLAMED` times. After that, each loss counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from jobqueue import conf, db
from jobqueue.core import states
from jobqueue.core.error_kinds import error_key
from jobqueue.core.json_columns import as_dict, as_list
from jobqueue.db import Event, Lease, Now
from jobqueue.events.record import record_all
from jobqueue.lifecycle import aside, children, history, phases, wakeup
from jobqueue.lifecycle.batches import Batch, Batches
from jobqueue.lifecycle.endings import lease_lost
from jobqueue.lifecycle.outcome import INTERRUPTED_BY_USER, Failure
from jobqueue.lifecycle.release import settle_safely, try_lock
from jobqueue.managers.jobs import JobQuerySet
from jobqueue.models import Job, Worker

BATCH = 100
MOST = 500
WORKER_LOST = "jobqueue.exceptions.WorkerLost"
UNREAD = ("args", "kwargs", "options", "metadata", "result", "created_at", "enqueued_at", "lease_expires_at", "heartbeat_at")
STOPPING = "worker lost while it was stopping"
NEIGHBOR = "worker ended because of another job"
MAX_UNBLAMED = 10
NOT_BEGUN = "worker lost before the job had started"


@dataclass(frozen=True, slots=True)
class Expired:
    """A job whose worker was lost, and the status that it has now."""

    job_id: int
    task: str
    tenant: str
    owner: str
    status: str


def expire_stale_running_jobs(limit: int | None = None) -> list[Expired]:
    """Recover every job whose lease has run out, at most `limit` jobs. This is safe at any time and from any process."""
    return expire_jobs(Job.objects.current.expired(), limit)


def expire_owner(owner: str, culprit: int | None = None) -> list[Expired]:
    """Recover the jobs of a worker process that is known to be dead, without waiting for their leases.

    If the worker was ended because of one job, the `culprit`, its loss does not count as a crash of the other jobs.
    """
    jobs = Job.objects.current.owned_by(owner)
    if culprit is None or not jobs.filter(pk=culprit).exists():  # the culprit has already ended, so another job hung the process
        return expire_jobs(jobs)
    # Recover the culprit last: when it is QUEUED, it may hang this process, too. The next process must still find the
    # other jobs.
    others = expire_jobs(jobs.exclude(pk=culprit), excuse=NEIGHBOR)
    return [*others, *expire_jobs(jobs.filter(pk=culprit))]


class JobRecovery:
    """Repeated recovery of lost jobs, which a bad row does not stop."""

    def __init__(self) -> None:
        """Start with full batches."""
        self._batches = Batches("Recovering lost jobs", MOST)

    def run(self) -> tuple[list[Expired], Batch]:
        """Recover one batch of the jobs whose lease has run out; return them, and how many were set aside."""
        lost: list[Expired] = []
        failed: list[int] = []
        aside = self._batches.set_aside
        jobs = Job.objects.current.expired().exclude(pk__in=aside) if aside else Job.objects.current.expired()

        def at_once(size: int) -> int:
            lost.extend(expire_jobs(jobs, size, failed))
            return len(lost)

        # An error of one row is caught inside a savepoint. An error that is raised here ends the batch.
        batch = self._batches.run(at_once, lambda size: [], lambda row: 0)
        for job_id in failed:
            self._batches.set_row_aside(job_id)
        return lost, Batch(batch.moved, len(failed))


def expire_jobs(jobs: JobQuerySet[Job], limit: int | None = None, failed: list[int] | None = None, excuse: str = "") -> list[Expired]:
    """Recover running jobs that are known to be lost, at most `limit` jobs; skip rows that are locked.

    A job that cannot be recovered ends as ERROR. If that cannot be written either, the job is added to `failed`. An
    `excuse` is the reason why the loss does not count as a crash.
    """
    done: list[Expired] = []
    after = 0
    while limit is None or len(done) < limit:
        size = BATCH if limit is None else min(BATCH, limit - len(done))
        leases = [Lease(*row) for row in jobs.filter(pk__gt=after).order_by("pk").values_list("pk", "lease_token")[:size]]
        done += _expire_all(jobs, leases, failed, excuse)
        if len(leases) < size:
            break
        after = leases[-1].job_id
    return done


def _expire_all(lost: JobQuerySet[Job], leases: Sequence[Lease], failed: list[int] | None, excuse: str) -> list[Expired]:
    """Recover those of the jobs that are still lost. Recover them one by one if they cannot be read or recorded together."""
    unreadable: list[tuple[Lease, Exception]] = []
    events: list[Event] = []
    try:
        with Job.objects.database.atomic():
            rows = lost.filter(pk__in=[lease.job_id for lease in leases]).defer(*UNREAD)
            jobs = list(rows.unlocked().order_by("pk").annotate(now=Now()))
            stopping = _stopping(jobs)
            excuses = {job.pk: excuse or (STOPPING if job.lease_owner in stopping else "") for job in jobs}
            read = {lease.job_id: lease for lease in leases}
            done = [expired for job in jobs if (expired := _expire_one(job, read[job.pk], unreadable, events, excuses[job.pk])) is not None]
            record_all(events)
    except Exception as error:
        if not db.is_refusal(error):
            raise
        if len(leases) > 1:
            return [expired for lease in leases for expired in _expire_all(lost, [lease], failed, excuse)]
        done, unreadable = [], [(leases[0], error)]
    for lease, reason in unreadable:
        done += _set_aside(lease, reason, failed)
    return done


def _set_aside(lease: Lease, error: Exception, failed: list[int] | None) -> list[Expired]:
    lost = Job.objects.current.filter(pk=lease.job_id).values_list("task", "tenant", "lease_owner").first()
    if lost is None or not aside.try_set_aside(lease, states.Status.RUNNING, "it cannot be recovered from its lost worker", error):
        if failed is not None:
            failed.append(lease.job_id)
        return []
    return [Expired(lease.job_id, *lost, states.Status.ERROR.value)]


def _stopping(jobs: Sequence[Job]) -> set[str]:
    """Return the workers of these jobs whose rows say that they are stopping."""
    owners = {owner for job in jobs if (owner := _uuid(job.lease_owner)) is not None}
    rows = Worker.objects.using(Job.objects.database.alias).filter(pk__in=owners, state=Worker.State.DRAINING)
    return {str(pk) for pk in rows.values_list("pk", flat=True)} if owners else set()


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _expire_one(job: Job, lease: Lease, unreadable: list[tuple[Lease, Exception]], events: list[Event], excuse: str) -> Expired | None:
    try:
        with Job.objects.database.atomic():  # a savepoint: a bad row does not stop the other rows
            destination, fields = decide(job, job.now, excuse)  # type: ignore[attr-defined]
            # Only a canceled job frees its target. Do not wait for the lock of the target while rows are locked.
            # If it is not free, the next sweep tries again.
            freed = [job.tenant_target] if job.target and destination == states.CANCELED else []
            if len(try_lock(freed)) < len(freed):
                return None
            if not Job.objects.move(job, destination, **fields):
                raise ValueError("its row does not have the values that were read from it")  # the row is locked: no other can change it
            settle_safely(freed)
            phases.settle(job, destination, message=fields["message"])
            if job.phase:
                children.forget_unended(job)
    except Exception as error:
        if not db.is_refusal(error):
            raise
        unreadable.append((lease, error))
        return None
    events += _events_of(job, destination, fields)
    if destination == states.QUEUED:
        wakeup.work(job.queue, job.tenant)
    elif destination == states.PENDING_TIME:
        wakeup.due(_pause(fields["crashes"]))
    return Expired(job.pk, job.task, job.tenant, job.lease_owner, destination[0])


def _events_of(job: Job, destination: states.Place, fields: dict[str, Any]) -> list[Event]:
    delay = _pause(fields["crashes"]) if destination == states.PENDING_TIME else None
    return lease_lost(job, destination[0], fields["message"], exception=WORKER_LOST, delay_seconds=delay, begun="crashes" in fields)


def _pause(crashes: int) -> float:
    """Return for how many seconds a job waits after this number of crashes."""
    seconds: float = 2.0 ** min(crashes - 1, 16)
    return seconds


def decide(job: Job, now: datetime, excuse: str = "") -> tuple[states.Place, dict[str, Any]]:
    """Return the new state of a job whose worker was lost, and the columns to write.

    An `excuse` is the reason why the loss is not a crash.
    """
    if job.crashes and job.started_at is None:
        return _not_begun(job)
    before = [entry for entry in as_list(job.history) if as_dict(entry).get("blamed") is False]
    is_blamed = not excuse or len(before) >= MAX_UNBLAMED
    crashes = job.crashes + is_blamed
    fields: dict[str, Any] = {"worker_ids": [*as_list(job.worker_ids), job.lease_owner], "crashes": crashes}
    lost = f"worker lost {crashes} time{'s' if crashes > 1 else ''}" if is_blamed else excuse
    if job.cancel_requested:
        destination, message = states.place(job.cancel_outcome), INTERRUPTED_BY_USER
    elif job.recovery == states.Recovery.HOLD:
        destination, message = states.ERROR, "worker lost; held until an operator resumes it"
    elif not is_blamed:
        destination, message = states.QUEUED, lost
    elif crashes >= conf.current().max_crashes:
        destination, message = states.ERROR, lost
    elif crashes == 1:
        destination, message = states.QUEUED, lost
    else:
        destination, message = states.PENDING_TIME, lost
        fields["run_at"] = Now() + timedelta(seconds=_pause(crashes))
    if destination == states.ERROR:
        fields["error_key"] = error_key(job.task, WORKER_LOST, message)
    failure = Failure(WORKER_LOST, f"{lost}: {job.lease_owner}", "")
    new = history.entry(attempt=job.attempt, worker=job.lease_owner, outcome="LOST", began=job.started_at, ended=now, failure=failure)
    if not is_blamed:
        new["blamed"] = False
    return destination, {**fields, "message": message, "history": history.extended(job.history, new)}


def _not_begun(job: Job) -> tuple[states.Place, dict[str, Any]]:
    fields = {"attempt": max(job.attempt - 1, 0)}
    if job.cancel_requested:
        return states.place(job.cancel_outcome), {**fields, "message": INTERRUPTED_BY_USER}
    return states.QUEUED, {**fields, "message": NOT_BEGUN}
