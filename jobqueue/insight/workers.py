"""The live workers, from the rows that workers write every 10 s.

The rows are for display. No guarantee depends on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Count, QuerySet

from jobqueue.core import queue_rules, states
from jobqueue.core.masking import mask_text
from jobqueue.core.sentences import changed, counted, sentence
from jobqueue.db import Now
from jobqueue.models import Job, Worker

HEARD_SECONDS = 30
HANG_SECONDS = 20.0
MAX_WORKERS = 1000


@dataclass(frozen=True, slots=True)
class Serving:
    """The numbers of live workers that serve a queue, that are drained or about to stop, and that serve other queues."""

    able: int
    draining: int
    others: int
    slots: int
    running: int
    heard_seconds: int = HEARD_SECONDS


def alive() -> QuerySet[Worker]:
    """Return the workers with a recent heartbeat, by the database's clock."""
    workers = Worker.objects.using(Job.objects.database.alias)
    return workers.filter(heartbeat_at__gt=Now() - timedelta(seconds=HEARD_SECONDS))


def running_jobs(worker_ids: Iterable[str]) -> dict[str, int]:
    """Return the number of jobs that each worker runs. It is counted by the leases, because the row of a worker is up to 10 s old."""
    rows = Job.objects.current.filter(status=states.Status.RUNNING, lease_owner__in=[*worker_ids]).order_by()
    return dict(rows.values_list("lease_owner").annotate(number=Count("pk")))


def live_with_counts() -> list[Worker]:
    """Return the workers with a recent heartbeat, each with the number of jobs that it runs now."""
    workers = list(alive()[:MAX_WORKERS])
    running = running_jobs(str(worker.pk) for worker in workers)
    for worker in workers:
        worker.running = running.get(str(worker.pk), 0)
    return workers


def serves(worker: Worker, queue: str) -> bool:
    """Return whether a worker takes jobs of a queue."""
    served = queue_rules.parse_stored(worker.queues)
    return served is not None and served.matches(queue)


def serving(queue: str | None) -> Serving:
    """Count the live workers that serve a queue (None: any), that serve it but are drained or about to stop, and that do not serve it."""
    return serving_among(live_with_counts(), queue)


def serving_among(workers: Sequence[Worker], queue: str | None) -> Serving:
    """Count live workers that were read before, as `serving` does."""
    servers = [worker for worker in workers if queue is None or serves(worker, queue)]
    able = [worker for worker in servers if worker.takes_jobs]
    slots, running = sum(worker.slots for worker in able), sum(worker.running for worker in able)
    return Serving(len(able), len(servers) - len(able), len(workers) - len(servers), slots, running)


def stuck_services(worker: Worker) -> list[str]:
    """Return the problems of a worker's services from its row, one sentence for each, without a full stop."""
    services: Any = worker.services
    return [text for name, state in services.items() if (text := _stuck(name, state))] if isinstance(services, dict) else []


def failed_modules(worker: Worker) -> list[str]:
    """Return a sentence for each module that a worker could not import, from its row."""
    modules: Any = worker.failed_modules
    errors = modules.items() if isinstance(modules, dict) else ()
    return [changed(_not_imported(name, error), mask_text) for name, error in errors]


def _not_imported(name: Any, error: Any) -> str:
    return sentence("it could not import %(name)s, so it runs none of its tasks: %(error)s", name=str(name), error=str(error))


def _stuck(name: str, state: Any) -> str:
    values = [state.get(key) for key in ("busy", "age", "failures")] if isinstance(state, dict) else []
    if len(numbers := [value for value in values if isinstance(value, int | float)]) != 3:
        return ""
    busy, age, failures = numbers
    if receiver := state.get("receiver"):
        waiting = state.get("waiting")
        return counted(
            "a receiver of signals, %(receiver)s, has not returned for %(seconds)s s; %(number)s signal waits",
            "a receiver of signals, %(receiver)s, has not returned for %(seconds)s s; %(number)s signals wait",
            waiting if isinstance(waiting, int) else 0,
            receiver=str(receiver),
            seconds=f"{busy:.0f}",
        )
    if busy > HANG_SECONDS:
        return sentence("its %(service)s has not completed its current turn for %(seconds)s s", service=name, seconds=f"{busy:.0f}")
    if failures and age > HANG_SECONDS:
        return counted(
            "its %(service)s has failed %(number)s time in a row, for %(seconds)s s",
            "its %(service)s has failed %(number)s times in a row, for %(seconds)s s",
            round(failures),
            service=name,
            seconds=f"{age:.0f}",
        )
    return ""
