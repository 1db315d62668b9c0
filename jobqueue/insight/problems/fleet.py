"""Problems of workers and duties, from their rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from jobqueue.core.sentences import Sentence, counted, sentence
from jobqueue.db import Now
from jobqueue.insight import duties
from jobqueue.insight.problems.base import PageLink, Problem, Severity, Thresholds
from jobqueue.insight.workers import HEARD_SECONDS, MAX_WORKERS, alive, failed_modules, stuck_services
from jobqueue.models import Job, Worker

RESTART = sentence("Restart the worker; its log says more.")
START = sentence("Start one: manage.py runworkers.")


def no_worker(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem if no worker is alive, or all are drained."""
    link = PageLink("jobqueue_worker_changelist")
    if not alive().exists():
        text = sentence("No worker is alive: none sent a heartbeat in the last %(seconds)s s.", seconds=HEARD_SECONDS)
        yield Problem("no_worker", Severity.ERROR, text, START, count=0, link=link)
    elif not alive().filter(drain_requested=False).exists():
        text = sentence("All live workers are drained, so no job starts.")
        fix = sentence("Start one: manage.py runworkers. Or end the drain: manage.py jobqueue undrain WORKER.")
        yield Problem("no_worker", Severity.ERROR, text, fix, count=0, link=link)


def stuck_service(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem for each service of a live worker that hangs or fails."""
    for worker in alive()[:MAX_WORKERS]:
        for text in stuck_services(worker):
            yield _of_worker("stuck_service", Severity.ERROR, worker, text, RESTART)


def failed_module(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem for each task module that a live worker could not import."""
    fix = sentence("The worker's log has the traceback. Deploy a version that can be imported, and restart the worker.")
    for worker in alive()[:MAX_WORKERS]:
        for text in failed_modules(worker):
            yield _of_worker("failed_module", Severity.ERROR, worker, text, fix)


def stuck_threads(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem for each live worker with abandoned threads."""
    if given.max_stuck_threads is None:
        return
    for worker in alive().filter(stuck__gt=given.max_stuck_threads).order_by("-stuck")[:MAX_WORKERS]:
        text = counted(
            "%(number)s thread did not stop and was abandoned",
            "%(number)s threads did not stop and were abandoned",
            worker.stuck,
        )
        fix = sentence(
            "The log and the history of the abandoned job name the line of code. Give that call a timeout, and restart the worker."
        )
        yield _of_worker("stuck_threads", Severity.WARNING, worker, text, fix, count=worker.stuck)


def silent_worker(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem for each worker whose heartbeats stopped a while ago without an orderly end."""
    if given.max_silent is None:
        return
    rows: Any = Worker.objects.using(Job.objects.database.alias).annotate(now=Now())
    oldest, newest = (Now() - timedelta(seconds=seconds) for seconds in (max(given.since, given.max_silent), given.max_silent))
    for worker in rows.filter(heartbeat_at__gt=oldest, heartbeat_at__lte=newest).order_by("-heartbeat_at")[:MAX_WORKERS]:
        silent = (worker.now - worker.heartbeat_at).total_seconds()
        text = sentence("its last heartbeat was %(seconds)s s ago", seconds=f"{silent:.0f}")
        fix = sentence(
            "If its process is dead, start another one: its jobs are recovered when their leases expire. If it lives, restart it."
        )
        yield _of_worker("silent_worker", Severity.WARNING, worker, text, fix)


def stuck_duty(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem for each duty that no worker performs."""
    for leader in duties.leaders():
        if leader.problem:
            text = sentence("Duty %(duty)s: %(problem)s.", duty=repr(leader.name), problem=leader.problem)
            fix = sentence("Release the duty, so that another worker leads it; the log of its leader says more.")
            yield Problem(
                "stuck_duty", Severity.ERROR, text, fix, leader.name, link=PageLink("jobqueue_backgroundjoblease_change", (leader.name,))
            )


def _of_worker(code: str, severity: Severity, worker: Worker, text: str, fix: Sentence, count: int = 1) -> Problem:
    key = str(worker.pk)
    whole = sentence("Worker %(worker)s (%(id)s): %(problem)s.", worker=str(worker), id=key, problem=text)
    return Problem(code, severity, whole, fix, key, count, link=PageLink("jobqueue_worker_change", (key,)))
