"""Problems of workers and duties, from their rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from jobqueue.core.amounts import plural, verb
from jobqueue.db import Now
from jobqueue.insight import duties
from jobqueue.insight.problems.base import PageLink, Problem, Severity, Thresholds
from jobqueue.insight.workers import HEARD_SECONDS, MAX_WORKERS, alive, failed_modules, stuck_services
from jobqueue.models import Job, Worker

RESTART = "Restart the worker; its log says more."


def no_worker(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem if no worker is alive, or all are drained."""
    link, start = PageLink("jobqueue_worker_changelist"), "Start one: manage.py runworkers."
    if not alive().exists():
        text = f"No worker is alive: none sent a heartbeat in the last {HEARD_SECONDS} s."
        yield Problem("no_worker", Severity.ERROR, text, start, count=0, link=link)
    elif not alive().filter(drain_requested=False).exists():
        fix = f"{start} Or end the drain: manage.py jobqueue undrain WORKER."
        yield Problem("no_worker", Severity.ERROR, "All live workers are drained, so no job starts.", fix, count=0, link=link)


def stuck_service(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem for each service of a live worker that hangs or fails."""
    for worker in alive()[:MAX_WORKERS]:
        for text in stuck_services(worker):
            yield _of_worker("stuck_service", Severity.ERROR, worker, f"{text}.", RESTART)


def failed_module(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem for each task module that a live worker could not import."""
    fix = "The worker's log has the traceback. Deploy a version that can be imported, and restart the worker."
    for worker in alive()[:MAX_WORKERS]:
        for text in failed_modules(worker):
            yield _of_worker("failed_module", Severity.ERROR, worker, f"{text}.", fix)


def stuck_threads(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem for each live worker with abandoned threads."""
    if given.max_stuck_threads is None:
        return
    for worker in alive().filter(stuck__gt=given.max_stuck_threads).order_by("-stuck")[:MAX_WORKERS]:
        text = f"{plural(worker.stuck, 'thread')} did not stop and {verb(worker.stuck, 'was', 'were')} abandoned."
        fix = "The log and the history of the abandoned job name the line of code. Give that call a timeout, and restart the worker."
        yield _of_worker("stuck_threads", Severity.WARNING, worker, text, fix, count=worker.stuck)


def silent_worker(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem for each worker whose heartbeats stopped a while ago without an orderly end."""
    if given.max_silent is None:
        return
    rows: Any = Worker.objects.using(Job.objects.database.alias).annotate(now=Now())
    oldest, newest = (Now() - timedelta(seconds=seconds) for seconds in (max(given.since, given.max_silent), given.max_silent))
    for worker in rows.filter(heartbeat_at__gt=oldest, heartbeat_at__lte=newest).order_by("-heartbeat_at")[:MAX_WORKERS]:
        silent = (worker.now - worker.heartbeat_at).total_seconds()
        fix = "If its process is dead, start another one: its jobs are recovered when their leases expire. If it lives, restart it."
        yield _of_worker("silent_worker", Severity.WARNING, worker, f"its last heartbeat was {silent:.0f} s ago.", fix)


def stuck_duty(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem for each duty that no worker performs."""
    for leader in duties.leaders():
        if leader.problem:
            text = f"Duty {leader.name!r}: {leader.problem}."
            fix = "Release the duty, so that another worker leads it; the log of its leader says more."
            yield Problem(
                "stuck_duty", Severity.ERROR, text, fix, leader.name, link=PageLink("jobqueue_backgroundjoblease_change", (leader.name,))
            )


def _of_worker(code: str, severity: Severity, worker: Worker, text: str, fix: str, count: int = 1) -> Problem:
    key = str(worker.pk)
    return Problem(code, severity, f"Worker {worker} ({key}): {text}", fix, key, count, link=PageLink("jobqueue_worker_change", (key,)))
