"""Snapshots of the batch from the database, with two short queries each."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Count

from jobqueue import clock
from jobqueue.models import Job

Status = Job.Status
OPEN = (Status.PENDING, Status.QUEUED, Status.RUNNING)


@dataclass
class Kind:
    """The numbers of one task's jobs in each place."""

    waiting: int = 0
    retrying: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    canceled: int = 0
    paused: int = 0

    @property
    def total(self) -> int:
        """The number of jobs."""
        return sum(vars(self).values())

    @property
    def open(self) -> int:
        """The number of jobs that have not ended."""
        return self.waiting + self.retrying + self.running

    def __add__(self, other: "Kind") -> "Kind":
        """Return the sums of both."""
        return Kind(**{name: value + getattr(other, name) for name, value in vars(self).items()})


@dataclass(frozen=True)
class Running:
    """One job that runs now."""

    job_id: int
    kind: str
    about: str
    progress: int
    message: str
    attempt: int
    seconds: float


@dataclass(frozen=True)
class Snapshot:
    """The batch at one moment."""

    kinds: dict[str, Kind]
    running: list[Running] = field(default_factory=list)

    @property
    def all(self) -> Kind:
        """The sums over all kinds."""
        return sum(self.kinds.values(), Kind())

    @property
    def mark(self) -> object:
        """A value that changes when a job moves or reports progress."""
        return self.kinds, [(job.job_id, job.attempt, job.progress) for job in self.running]


@dataclass(frozen=True)
class Ended:
    """One job of the batch after its end."""

    job_id: int
    kind: str
    status: str
    failures: int
    seconds: float | None

    @property
    def unexpected(self) -> bool:
        """Whether the demo did not intend this end; jobs that a user canceled or paused do not count."""
        if self.kind == "broken_parser":
            return self.status == Status.SUCCESS
        return self.status == Status.ERROR or (self.kind == "export_archive" and self.status == Status.SUCCESS)


def look(ids: Iterable[int]) -> Snapshot:
    """Return a snapshot of the jobs."""
    jobs = Job.objects.filter(pk__in=list(ids)).order_by()
    kinds: dict[str, Kind] = defaultdict(Kind)
    counts = jobs.values_list("task", "status", "failures").annotate(count=Count("pk"), begun=Count("started_at"))
    for task, status, failures, count, begun in counts:
        kind = kinds[short(task)]
        if status == Status.RUNNING:  # a claimed job that has not begun counts as waiting
            kind.running, kind.waiting = kind.running + begun, kind.waiting + count - begun
        else:
            place = _place(status, failures)
            setattr(kind, place, getattr(kind, place) + count)
    columns = ("pk", "task", "args", "progress", "message", "attempt", "started_at")
    begun_jobs = jobs.filter(status=Status.RUNNING, started_at__isnull=False).order_by("pk")
    running = [_running(*row) for row in begun_jobs.values_list(*columns)]
    return Snapshot(dict(sorted(kinds.items())), running)


def ended(ids: Iterable[int]) -> list[Ended]:
    """Return the end of each job."""
    columns = ("pk", "task", "status", "failures", "started_at", "finished_at")
    rows = Job.objects.filter(pk__in=list(ids)).order_by("pk").values_list(*columns)
    return [
        Ended(pk, short(task), status, failures, (finished - started).total_seconds() if started and finished else None)
        for pk, task, status, failures, started, finished in rows
    ]


def short(task: str) -> str:
    """Return a task's name without its module."""
    return task.rpartition(".")[2]


def _place(status: str, failures: int) -> str:
    if status == Status.PENDING and failures:
        return "retrying"
    return {
        Status.SUCCESS: "done",
        Status.ERROR: "failed",
        Status.CANCELED: "canceled",
        Status.PAUSED: "paused",
    }.get(Status(status), "waiting")


def _running(pk: int, task: str, args: Any, progress: int, message: str, attempt: int, started: datetime) -> Running:
    about = str(args[0]) if isinstance(args, list) and args else ""
    seconds = max(0.0, (clock.now() - started).total_seconds())
    return Running(pk, short(task), about, progress, message, attempt, seconds)
