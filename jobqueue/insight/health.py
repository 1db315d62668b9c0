"""The state of the installation for ``manage.py jobqueue status``; ``problems`` reports what is wrong with it.

No count goes beyond `MAX_COUNTED`, so that the cost does not grow with the tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jobqueue import clock
from jobqueue.core import states
from jobqueue.core.masking import mask_text
from jobqueue.db import Now, counting
from jobqueue.insight.queue_names import are_left_out
from jobqueue.insight.queues import QueueState, queue_states
from jobqueue.insight.workers import MAX_WORKERS, alive, failed_modules, running_jobs, stuck_services
from jobqueue.models import Job, Worker

MAX_COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class Count:
    """The number of jobs in one state; `or_more` if the count ended at its limit, `scope` if it covers only some of the jobs."""

    state: str
    number: int
    or_more: bool
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Alive:
    """A worker that has written a heartbeat recently."""

    id: str
    process: str
    queues: list[str]
    state: str
    slots: int
    running: int
    stuck_threads: int
    problems: list[str]
    release: str = ""
    memory_mb: int = 0
    heard_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """The queues, the live workers, and the number of jobs in each state; `more_queues` means that queues are left out."""

    queues: list[QueueState]
    workers: list[Alive]
    jobs: list[Count]
    more_queues: bool


def status() -> ServiceStatus:
    """Read the state of the installation once."""
    return ServiceStatus(queue_states(), live_workers(), _counts(), are_left_out())


def live_workers() -> list[Alive]:
    """Return the workers that have written a heartbeat recently."""
    workers = list(alive().annotate(now=Now())[:MAX_WORKERS])
    running = running_jobs(str(worker.pk) for worker in workers)
    return [as_alive(worker, running.get(str(worker.pk), 0)) for worker in workers]


def as_alive(worker: Worker, running: int) -> Alive:
    """Return the state of a worker whose row was read with the database's time; `running` is the number of its jobs, by their leases."""
    queues: Any = worker.queues
    served = [str(queue) for queue in queues] if isinstance(queues, list) else []
    problems = stuck_services(worker) + failed_modules(worker)
    now = getattr(worker, "now", None) or clock.now()
    heard = max((now - worker.heartbeat_at).total_seconds(), 0.0)
    more = (worker.slots, running, worker.stuck, problems, mask_text(worker.release), worker.memory_mb, round(heard, 1))
    return Alive(str(worker.pk), str(worker), served, worker.shown_state, *more)


def _counts() -> list[Count]:
    """Count the jobs by the index of each state; states that share an index are counted together, the newest jobs first."""
    jobs = Job.objects.current.order_by()
    queued, running = (jobs.filter(status=status) for status in (states.Status.QUEUED, states.Status.RUNNING))
    pending = jobs.filter(status=states.Status.PENDING)
    by_name = {
        "PENDING (its time)": pending.filter(waiting_for=states.WaitingFor.TIME),
        "PENDING (other jobs)": pending.filter(waiting_for=states.WaitingFor.CHILDREN),
        "PENDING (its target)": pending.filter(waiting_for=states.WaitingFor.TARGET),
        "QUEUED": queued,
        "RUNNING": running,
    }
    counts = [_count(name, len(rows.values_list("pk")[:MAX_COUNTED])) for name, rows in by_name.items()]
    stopped = (states.Status.PAUSED, states.Status.ERROR, states.Status.CANCELED)
    counts += [_count(str(status), len(jobs.filter(status=status).order_by("-pk").values_list("pk")[:MAX_COUNTED])) for status in stopped]
    return [*counts, *_success()]


def _count(name: str, number: int) -> Count:
    return Count(name, number, number >= MAX_COUNTED)


def _success() -> list[Count]:
    """Count the jobs in SUCCESS among those that ended last, because no index has only jobs in SUCCESS.

    Add the planner's estimate of the number of all jobs.
    """
    ended, succeeded = counting.newest_ended(Job.objects.database, MAX_COUNTED)
    cut = ended >= MAX_COUNTED
    scope = f"of the newest {MAX_COUNTED:,} that ended" if cut else ""
    counts = [Count(states.Status.SUCCESS.value, succeeded, or_more=False, scope=scope)]
    estimate = Job.objects.database.estimated_rows() if cut else None
    return counts if estimate is None else [*counts, Count("all jobs, about", estimate, or_more=False, scope="(the database's estimate)")]
