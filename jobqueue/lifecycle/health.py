"""How the whole queue does: for the command line, for probes, for people who have no browser at hand.

Counts end at `MOST_COUNTED`, so that a look costs the same however much there is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jobqueue import states
from jobqueue.lifecycle import leaders
from jobqueue.lifecycle.queues import QueueState, queue_states
from jobqueue.lifecycle.workers import HEARD_SECONDS, MOST_WORKERS, alive, stuck_services
from jobqueue.models import Job, Worker

MOST_COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class Count:
    """Count the jobs of one state; `or_more` where the count ended at its bound."""

    state: str
    number: int
    or_more: bool


@dataclass(frozen=True, slots=True)
class Alive:
    """Show one worker that was heard a moment ago."""

    id: str
    process: str
    queues: list[str]
    state: str
    slots: int
    running: int
    stuck_threads: int
    problems: list[str]


@dataclass(frozen=True, slots=True)
class Status:
    """Show the queues, the workers that are alive, and how many jobs there are in each state."""

    queues: list[QueueState]
    workers: list[Alive]
    jobs: list[Count]


def status() -> Status:
    """Look at everything once."""
    return Status(queue_states(), _workers(), _counts())


def problems(max_age_seconds: float | None = None) -> list[str]:
    """Return what is wrong, a sentence for each; nothing where all is well.

    Wrong is: no worker is alive, a service of one is stuck, a duty is stuck or fails again and again, or the oldest QUEUED job of a
    queue that takes jobs is older than so many seconds (None: of any age). A queue that is paused, or limited to none, is as somebody
    wants it.
    """
    found = _workers()
    wrong = [] if found else [f"No worker is alive: none was heard in the last {HEARD_SECONDS} s."]
    wrong += [f"Worker {worker.process} ({worker.id}): {text}." for worker in found for text in worker.problems]
    wrong += leaders.problems()
    if max_age_seconds is not None:
        wrong += [
            f"Queue {queue.name!r}: the oldest QUEUED job has waited for {queue.oldest_queued_seconds:.0f} s, above {max_age_seconds:g} s."
            for queue in queue_states()
            if not queue.paused and queue.max_running != 0 and (queue.oldest_queued_seconds or 0) > max_age_seconds
        ]
    return wrong


def _workers() -> list[Alive]:
    return [_alive(worker) for worker in alive()[:MOST_WORKERS]]


def _alive(worker: Worker) -> Alive:
    queues: Any = worker.queues
    served = [str(queue) for queue in queues] if isinstance(queues, list) else []
    counts = (worker.slots, worker.running, worker.stuck)
    return Alive(str(worker.pk), str(worker), served, worker.state, *counts, problems=stuck_services(worker))


def _counts() -> list[Count]:
    """Count by the index of each state; those that share one are counted together, the newest first."""
    jobs = Job.objects.current.order_by()
    queued, running = (jobs.filter(status=status) for status in (states.Status.QUEUED, states.Status.RUNNING))
    pending = jobs.filter(status=states.Status.PENDING)
    alone = {
        "PENDING (its time)": pending.filter(waiting_for=states.WaitingFor.TIME),
        "PENDING (its target)": pending.filter(waiting_for=states.WaitingFor.TARGET),
        "QUEUED": queued,
        "RUNNING": running,
    }
    counts = [_count(name, len(found.values_list("pk")[:MOST_COUNTED])) for name, found in alone.items()]
    stopped = jobs.filter(status__in=[states.Status.PAUSED, states.Status.ERROR, states.Status.CANCELED]).order_by("-pk")
    counts += _together(stopped, (states.Status.PAUSED, states.Status.ERROR, states.Status.CANCELED))
    return counts + _together(jobs.filter(status__in=states.ENDED).order_by("-finished_at"), (states.Status.SUCCESS,))


def _count(name: str, number: int) -> Count:
    return Count(name, number, number >= MOST_COUNTED)


def _together(jobs: Any, wanted: tuple[states.Status, ...]) -> list[Count]:
    found = list(jobs.values_list("status", flat=True)[:MOST_COUNTED])
    return [Count(str(status), found.count(status), len(found) >= MOST_COUNTED) for status in wanted]
