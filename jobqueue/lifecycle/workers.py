"""Drain workers, and move the rows of workers that have ended to the list of those that left.

A drained worker process starts no more jobs, and its running jobs continue. The request is stored in the row of the
worker. The worker reads it when it writes its heartbeat there, or at once if it is notified.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from jobqueue.core.sentences import sentence
from jobqueue.core.texts import clean, safe_repr
from jobqueue.db import Now
from jobqueue.exceptions import WorkerDoesNotExist
from jobqueue.lifecycle import wakeup
from jobqueue.models import Job, LeftWorker, Worker

MAX_NAME = 300
MAX_LEFT = 50


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """The result of a request to a worker: whether it changed anything, and whether the worker is to be drained now."""

    id: str
    process: str
    changed: bool
    drained: bool


def drain_worker(worker: str, *, drained: bool = True) -> WorkerAnswer:
    """Make a worker process start no more jobs, or, if `drained` is False, start jobs again.

    `worker` is the id of the worker, or its host and process id as in ``web-1:4711``. Raise `WorkerDoesNotExist` if
    there is no such worker, or more than one.
    """
    found = find_worker(worker)
    workers = Worker.objects.using(Job.objects.database.alias)
    changed = workers.filter(pk=found.pk, drain_requested=not drained).update(drain_requested=drained)
    if changed:
        wakeup.workers_changed()
    return WorkerAnswer(str(found.pk), str(found), bool(changed), drained)


def find_worker(worker: str) -> Worker:
    """Return a worker by its id, or by its host and process id, with the database's time.

    Raise `WorkerDoesNotExist` if there is none, or more than one.
    """
    workers = Worker.objects.using(Job.objects.database.alias).annotate(now=Now())
    host, _, pid = worker[:MAX_NAME].rpartition(":")
    try:
        rows = workers.filter(pk=UUID(worker))
    except ValueError:
        is_process = host and clean(host) == host and pid.isascii() and pid.isdigit() and len(pid) < 10
        rows = workers.filter(host=host, pid=int(pid)) if is_process else workers.none()
    found = list(rows[:2])
    if len(found) == 1:
        return found[0]
    name = safe_repr(worker[:MAX_NAME])
    if found:
        raise WorkerDoesNotExist(sentence("Several workers are called %(name)s: name one by its id.", name=name))
    text = sentence("There is no worker %(name)s; give its id, or its host and process id as in 'web-1:4711'.", name=name)
    raise WorkerDoesNotExist(text)


def record_left(worker_ids: Collection[Any], how: LeftWorker.How, reason: str = "") -> int:
    """Delete the rows of workers that have ended, and record how they left; return how many rows there were.

    A worker that stops in order after an operator has drained it counts as drained. The newest `MAX_LEFT` are kept.
    """
    database = Job.objects.database
    workers, left = Worker.objects.using(database.alias), LeftWorker.objects.using(database.alias)
    with database.atomic():
        rows = list(workers.filter(pk__in=worker_ids).select_for_update())
        if not rows:
            return 0
        left.bulk_create([_left(row, how, reason) for row in rows])
        workers.filter(pk__in=[row.pk for row in rows]).delete()
        # Locked rows are skipped: another worker that leaves now deletes them, and each would wait for the other.
        surplus = left.order_by("-pk").select_for_update(skip_locked=True).values_list("pk", flat=True)[MAX_LEFT : 2 * MAX_LEFT]
        left.filter(pk__in=list(surplus)).delete()
    return len(rows)


def _left(row: Worker, how: LeftWorker.How, reason: str) -> LeftWorker:
    drained = how is LeftWorker.How.STOPPED and row.drain_requested
    names = ("host", "pid", "version", "release", "started_at")
    return LeftWorker(
        worker=row.pk, how=LeftWorker.How.DRAINED if drained else how, reason=reason[:200], **{name: getattr(row, name) for name in names}
    )
