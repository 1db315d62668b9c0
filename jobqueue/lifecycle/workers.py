"""Drain workers: a drained worker process starts no more jobs, and its running jobs continue.

The request is stored in the row of the worker. The worker reads it when it writes its heartbeat there, or at once
if it is notified.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from jobqueue.core.texts import clean, safe_repr
from jobqueue.exceptions import WorkerDoesNotExist
from jobqueue.lifecycle import wakeup
from jobqueue.models import Job, Worker

MAX_NAME = 300


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
    found = _find(worker)
    workers = Worker.objects.using(Job.objects.database.alias)
    changed = workers.filter(pk=found.pk, drain_requested=not drained).update(drain_requested=drained)
    if changed:
        wakeup.workers_changed()
    return WorkerAnswer(str(found.pk), str(found), bool(changed), drained)


def _find(worker: str) -> Worker:
    workers = Worker.objects.using(Job.objects.database.alias)
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
        raise WorkerDoesNotExist(f"Several workers are called {name}: name one by its id.")
    raise WorkerDoesNotExist(f"There is no worker {name}; give its id, or its host and process id as in 'web-1:4711'.")
