"""Enqueue: make one or many jobs in the caller's transaction.

The only lock is that of the unique index on `unique_key`. An enqueue takes no lock of the target, because the
claim decides whether a job must wait for its target. Therefore an open transaction that has enqueued jobs neither
blocks a worker nor causes a lost wake-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from jobqueue import clock, public_ids, tracing
from jobqueue.core import states
from jobqueue.db import Database, fast_path, inserts
from jobqueue.exceptions import JobQueueError
from jobqueue.lifecycle import phases, wakeup
from jobqueue.models import Job

TRIES = 20
OPTIONAL = {
    "tenant": "",
    "target": "",
    "unique_key": "",
    "max_attempts": 1,
    "recovery": "requeue",
    "metadata": "{}",
    "options": "{}",
    "webhook_url": "",
    "backend": "default",
}


@dataclass(slots=True, frozen=True)
class JobSpec:
    """A job to make; `args`, `kwargs`, `metadata` and `options` are JSON text."""

    task: str
    args: str = "[]"
    kwargs: str = "{}"
    queue: str = "default"
    priority: int = 0
    run_after: datetime | timedelta | None = None
    unique_key: str = ""
    max_attempts: int = 1
    recovery: str = states.Recovery.REQUEUE.value
    metadata: str = "{}"
    options: str = "{}"
    tenant: str = ""
    target: str = ""
    phases: tuple[str, ...] = ()
    webhook_url: str = ""
    backend: str = "default"
    expires: datetime | timedelta | None = None

    @property
    def immediate(self) -> bool:
        """Whether a worker may take the job immediately."""
        return self.run_after is None or (isinstance(self.run_after, timedelta) and self.run_after <= timedelta())

    def columns(self) -> dict[str, Any]:
        """Return the columns that differ from the defaults of the table, and the columns that are always written."""
        columns: dict[str, Any] = {
            "task": self.task,
            "queue": self.queue,
            "args": self.args,
            "kwargs": self.kwargs,
            "priority": self.priority,
        }
        columns.update({name: getattr(self, name) for name, default in OPTIONAL.items() if getattr(self, name) != default})
        if self.phases:
            columns["phase"] = self.phases[0]  # the current phase of the job, at first the one with which it begins
        if not self.immediate:
            columns.update(status=states.Status.PENDING.value, waiting_for=states.WaitingFor.TIME.value)
            if isinstance(self.run_after, datetime):
                columns["run_at"] = clock.aware(self.run_after)
            else:
                columns["run_in"] = self.run_after
        if isinstance(self.expires, timedelta):
            columns["expires_in"] = self.expires
        elif self.expires is not None:
            columns["expires_at"] = clock.aware(self.expires)
        return columns


class Call(NamedTuple):
    """The values that differ between the jobs of a bulk enqueue: the arguments as JSON text, the unique key and the target."""

    args: str
    kwargs: str
    unique_key: str = ""
    target: str = ""


class Enqueued(NamedTuple):
    """The job that an enqueue made or found, and whether this call made it."""

    job_id: int
    created_at: datetime
    created: bool


def enqueue(spec: JobSpec) -> Enqueued:
    """Make one job, or return the unfinished job that has its unique key."""
    if tracing.tracer() is None:
        return _enqueue_whole(spec)
    with tracing.producer(spec.task, spec.queue) as span:
        enqueued = _enqueue_whole(replace(spec, options=tracing.with_context(spec.options, span)))
        if span is not None:
            span.set_attribute("messaging.message.id", public_ids.public_id(enqueued.job_id))
            span.set_attribute("jobqueue.created", enqueued.created)
    return enqueued


def _enqueue_whole(spec: JobSpec) -> Enqueued:
    if spec.phases:
        with Job.objects.database.atomic():  # the job and its phases are stored together
            return _enqueue(spec)
    return _enqueue(spec)


def _enqueue(spec: JobSpec, job_id: int | None = None) -> Enqueued:
    database = Job.objects.database
    columns = spec.columns() if job_id is None else {"id": job_id, **spec.columns()}
    if job_id is None and (row := _make_alone(database, spec, columns)) is not None:
        return Enqueued(row[0], row[1], created=True)
    for _ in range(TRIES):
        # ON CONFLICT DO NOTHING, because an error would make the caller's transaction unusable. If another
        # transaction has inserted the key and is still open, the insert waits for it.
        row = inserts.insert(database, columns, ignore_conflicts=bool(spec.unique_key))
        if row is not None:
            phases.make([row[0]], spec.phases)
            _notify_workers(spec)
            return Enqueued(row[0], row[1], created=True)
        rivals = Job.objects.current.filter(tenant=spec.tenant, unique_key=spec.unique_key, status__in=states.LIVE)
        if rival := rivals.values_list("pk", "created_at").first():
            return Enqueued(*rival, created=False)
        # The other job ended between the two statements, so the key is free again.
    raise JobQueueError(f"unique_key {spec.unique_key!r} was taken and freed {TRIES} times in a row; try again.")


def _make_alone(database: Database, spec: JobSpec, columns: dict[str, Any]) -> tuple[Any, ...] | None:
    """Make a job outside of any transaction, and wake workers in the same message.

    Return None if this is not possible. Jobs with a unique key are excluded, because their insert can wait for
    another transaction.
    """
    if not spec.immediate or spec.unique_key or spec.phases or not fast_path.can_commit(database):
        return None
    payload = wakeup.work_behind(spec.queue, spec.tenant)
    try:
        return inserts.insert_and_commit(database, columns, None if payload is None else (wakeup.CHANNEL, payload))
    except BaseException:  # on any exception, the notification was not sent
        wakeup.not_sent(payload)
        raise


def enqueue_many(spec: JobSpec, calls: Sequence[Call]) -> list[Enqueued]:
    """Make a job like `spec` for each call, all or none. Only jobs with a unique key are inserted one by one."""
    if not calls:
        return []
    if tracing.tracer() is None:
        return _enqueue_many(spec, calls)
    with tracing.producer(spec.task, spec.queue, len(calls)) as span:
        return _enqueue_many(replace(spec, options=tracing.with_context(spec.options, span)), calls)


def _enqueue_many(spec: JobSpec, calls: Sequence[Call]) -> list[Enqueued]:
    database = Job.objects.database
    with database.atomic():
        if any(call.unique_key for call in calls):
            return _enqueue_keyed(spec, calls)
        ids, created_at = inserts.insert_many(database, spec.columns(), calls)
        phases.make(ids, spec.phases)
        _notify_workers(spec)
    return [Enqueued(job_id, created_at, created=True) for job_id in ids]


def _enqueue_keyed(spec: JobSpec, calls: Sequence[Call]) -> list[Enqueued]:
    """Make jobs that have unique keys, and return them in the order of the calls.

    The lock of each key is held until the commit. All transactions take keys in the same order, so that no two of
    them wait for each other. Jobs of a target run in the order of their ids, so the ids are taken first, in the order
    of the calls.
    """
    ids = inserts.take_ids(Job.objects.database, len(calls))
    enqueued: dict[int, Enqueued] = {}
    for place in sorted(range(len(calls)), key=lambda place: calls[place].unique_key) if ids else range(len(calls)):
        enqueued[place] = _enqueue(replace(spec, **calls[place]._asdict()), ids[place] if ids else None)
    return [enqueued[place] for place in range(len(calls))]


def _notify_workers(spec: JobSpec) -> None:
    if spec.immediate:
        wakeup.work(spec.queue, spec.tenant)
    elif isinstance(spec.run_after, timedelta):
        wakeup.due(spec.run_after.total_seconds())
    elif spec.run_after is not None:
        wakeup.due((clock.aware(spec.run_after) - clock.now()).total_seconds())
