"""One worker in detail, and the workers that left.

What it runs is counted by the leases, now. Its slots, its memory and its stuck threads are those of its last heartbeat.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from jobqueue import public_ids
from jobqueue.access import visible
from jobqueue.core import states
from jobqueue.core.json_columns import as_dict, as_list
from jobqueue.core.masking import mask_text
from jobqueue.insight.health import Alive, as_alive, live_workers
from jobqueue.insight.workers import running_jobs
from jobqueue.models import BackgroundJobLease, Job, LeftWorker, Worker

MAX_JOBS = 50


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that a worker runs, or whose thread does not stop; `line` is where the thread of a stuck run is."""

    job: int
    public_id: str
    task: str
    queue: str
    attempt: int
    started_at: datetime | None
    line: str


@dataclass(frozen=True, slots=True)
class Release:
    """A release, and the live workers that run it."""

    name: str
    workers: int
    slots: int
    running: int


@dataclass(frozen=True, slots=True)
class Departed:
    """A worker that left, and how."""

    id: str
    process: str
    how: str
    reason: str
    release: str
    started_at: datetime
    left_at: datetime


def worker_detail(user: Any, worker: Worker) -> dict[str, Any]:
    """Return the state of a worker as values, with those of its jobs that the user may see; `user` None is an operator."""
    running, stuck = jobs_of(user, worker), stuck_of(user, worker)
    counted = running_jobs([str(worker.pk)]).get(str(worker.pk), 0)
    jobs = {"jobs": [asdict(job) for job in running], "stuck": [asdict(job) for job in stuck]}
    times = {name: getattr(worker, name) for name in ("started_at", "heartbeat_at")}
    return {**asdict(as_alive(worker, counted)), **times, "version": worker.version, "duties": duties_of(worker), **jobs}


def jobs_of(user: Any, worker: Worker) -> list[RunningJob]:
    """Return the jobs that a worker runs by their leases, those that run the longest first."""
    held = _seen(user).filter(status=states.Status.RUNNING, lease_owner=str(worker.pk))
    lines = _lines(worker)
    return [_running(job, lines.get(job.pk, "")) for job in held.order_by("started_at", "pk")[:MAX_JOBS]]


def stuck_of(user: Any, worker: Worker) -> list[RunningJob]:
    """Return the jobs of the runs of a worker that do not stop, from its last heartbeat; the jobs can have ended."""
    lines = _lines(worker)
    return [_running(job, lines[job.pk]) for job in _seen(user).filter(pk__in=[*lines]).order_by("pk")]


def duties_of(worker: Worker) -> list[str]:
    """Return the names of the duties that a worker leads."""
    held = BackgroundJobLease.objects.current.filter(held_by_worker_id=str(worker.pk))
    return list(held.order_by("pk").values_list("pk", flat=True))


def releases() -> list[Release]:
    """Return the releases of the live workers by name."""
    found: dict[str, list[Alive]] = {}
    for worker in live_workers():
        found.setdefault(worker.release, []).append(worker)
    return [
        Release(name, len(workers), sum(one.slots for one in workers), sum(one.running for one in workers))
        for name, workers in sorted(found.items())
    ]


def left_workers() -> list[Departed]:
    """Return the newest workers that left, the last first."""
    rows = LeftWorker.objects.using(Job.objects.database.alias).order_by("-pk")
    return [_departed(row) for row in rows]


def _departed(row: LeftWorker) -> Departed:
    times = (row.started_at, row.left_at)
    return Departed(str(row.worker), str(row), row.how, mask_text(row.reason), mask_text(row.release), *times)


def _seen(user: Any) -> Any:
    jobs = Job.objects.current.only("task", "queue", "attempt", "started_at")
    return jobs if user is None else visible.narrow(user, jobs)


def _lines(worker: Worker) -> dict[int, str]:
    """Return for each stuck run the number of its job, and where its thread was at the last heartbeat."""
    entries = [as_dict(entry) for entry in as_list(worker.stuck_runs)]
    found = {entry.get("job"): str(entry.get("line", "")) for entry in entries}
    return {job: mask_text(line) for job, line in found.items() if type(job) is int and 0 < job < 2**63}


def _running(job: Job, line: str) -> RunningJob:
    values = (job.pk, public_ids.public_id(job.pk), job.task, mask_text(job.queue), job.attempt)
    return RunningJob(*values, job.started_at, line)
