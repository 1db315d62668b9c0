"""Enqueue: make jobs, one or many, in the caller's transaction.

No lock is taken but that of the unique index on `unique_key`; whether a job must wait behind its target is decided when it is
claimed. So an open transaction that enqueues neither blocks a worker nor loses a wake-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from jobqueue import states
from jobqueue.exceptions import JobQueueError
from jobqueue.lifecycle import wakeup
from jobqueue.models import Job

TRIES = 20


@dataclass(slots=True, frozen=True)
class JobSpec:
    """Describe a job to make; `args`, `kwargs`, `metadata` and `options` are JSON text."""

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

    @property
    def immediate(self) -> bool:
        """Whether it may be taken at once."""
        return self.run_after is None or (isinstance(self.run_after, timedelta) and self.run_after <= timedelta())

    def columns(self) -> dict[str, Any]:
        """Return the columns that differ from the table's own defaults, and those that always go along."""
        columns: dict[str, Any] = {"task": self.task, "queue": self.queue, "args": self.args, "kwargs": self.kwargs, "priority": self.priority}
        optional = {"unique_key": "", "max_attempts": 1, "recovery": "requeue", "metadata": "{}", "options": "{}"}
        columns.update({name: getattr(self, name) for name, default in optional.items() if getattr(self, name) != default})
        if not self.immediate:
            columns.update(status=states.Status.PENDING.value, waiting_for=states.WaitingFor.TIME.value)
            columns["run_in" if isinstance(self.run_after, timedelta) else "run_at"] = self.run_after
        return columns


class Enqueued(NamedTuple):
    """Tell which job stands for the request, and whether this call made it."""

    job_id: int
    created_at: datetime
    created: bool


def enqueue(spec: JobSpec) -> Enqueued:
    """Make one job; where a live job has its unique key, return that one instead."""
    database = Job.objects.database
    columns = spec.columns()
    for _ in range(TRIES):
        # DO NOTHING in place of an error: the caller's transaction stays usable. It waits for a rival that has not committed.
        row = database.insert(columns, ignore_conflicts=bool(spec.unique_key))
        if row is not None:
            if spec.immediate:
                wakeup.work(spec.queue)
            return Enqueued(row[0], row[1], created=True)
        rival = Job.objects.current.filter(tenant="", unique_key=spec.unique_key, status__in=states.LIVE).values_list("pk", "created_at")
        if found := rival.first():
            return Enqueued(*found, created=False)
        # The rival ended between the two statements: its key is free now.
    raise JobQueueError(f"unique_key {spec.unique_key!r} was taken and freed {TRIES} times in a row; try again.")


def enqueue_many(specs: Sequence[JobSpec]) -> list[Enqueued]:
    """Make many jobs, all or none; in bulk, but for those with a unique key or a delay."""
    database = Job.objects.database
    done: dict[int, Enqueued] = {}
    bulk: dict[tuple[str, ...], list[int]] = {}
    with database.atomic():
        for index, spec in enumerate(specs):
            if spec.unique_key or isinstance(spec.run_after, timedelta):
                done[index] = enqueue(spec)
            else:
                bulk.setdefault(tuple(spec.columns()), []).append(index)
        for names, places in bulk.items():
            made = database.insert_many(names, [list(specs[index].columns().values()) for index in places])
            done.update((index, Enqueued(*row, created=True)) for index, row in zip(places, made, strict=True))
        for queue in {spec.queue for spec in specs if spec.immediate}:
            wakeup.work(queue)
    return [done[index] for index in range(len(specs))]
