"""The workers with their releases, their load and their troubles, in two statements."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jobqueue.core.sentences import counted
from jobqueue.db import Now
from jobqueue.insight.workers import HEARD_SECONDS, MAX_WORKERS, failed_modules, running_jobs, stuck_services
from jobqueue.models import Job, Worker


@dataclass(frozen=True, slots=True)
class Member:
    """A worker of the fleet; `silent_seconds` is the age of its last heartbeat, 0 if it is alive."""

    id: str
    process: str
    state: str
    release: str
    slots: int
    running: int
    started_at: datetime
    silent_seconds: float
    troubles: list[str]

    @property
    def is_alive(self) -> bool:
        """Whether it has sent a heartbeat recently."""
        return not self.silent_seconds


def fleet() -> list[Member]:
    """Return the workers that have a row: those that are alive, and those that ended without a farewell."""
    rows: Any = Worker.objects.using(Job.objects.database.alias).annotate(now=Now()).order_by("host", "pid")
    workers = [*rows[:MAX_WORKERS]]
    running = running_jobs(str(worker.pk) for worker in workers)
    return [_member(worker, worker.now, running.get(str(worker.pk), 0)) for worker in workers]


def _member(worker: Worker, now: datetime, running: int) -> Member:
    silent = (now - worker.heartbeat_at).total_seconds()
    is_silent = silent > HEARD_SECONDS
    stuck = [counted("%(number)s thread did not stop", "%(number)s threads did not stop", worker.stuck)] if worker.stuck else []
    troubles = [] if is_silent else [*stuck, *stuck_services(worker), *failed_modules(worker)]
    return Member(
        str(worker.pk),
        str(worker),
        worker.shown_state,
        worker.release,
        worker.slots,
        running,
        worker.started_at,
        silent if is_silent else 0.0,
        troubles,
    )
