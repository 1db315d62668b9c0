"""The signals about runs that have ended and jobs that were lost: their contents and their delivery."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from django.db import Error

from jobqueue import signals
from jobqueue.core import repeats, texts
from jobqueue.core.states import ENDED, Status
from jobqueue.db import Claimed, hygiene
from jobqueue.declared import registry
from jobqueue.exceptions import JobCanceled, RunFailed, WorkerLost
from jobqueue.failure_log import RunError, reaches_others, while_handling
from jobqueue.lifecycle.expire import Expired
from jobqueue.lifecycle.outcome import Kind, Outcome, Settled
from jobqueue.models import Job
from jobqueue.tasks import results
from jobqueue.worker.running.run import Run
from jobqueue.worker.running.tenancy import for_receivers

ERROR, CANCELED = Status.ERROR.value, Status.CANCELED.value
PATIENCE_SECONDS = 0.1


class SettledRun(NamedTuple):
    """The contents of the signals about one run that has ended, without arguments and result, since many may be queued."""

    sender: type
    job: Claimed
    task: Any
    status: str
    kind: Kind
    seconds: float
    delay_seconds: float
    message: str
    worker_id: str
    ending: RunError | None
    exception: BaseException | None


class Lost(NamedTuple):
    """The contents of the signals about a job that was recovered from a dead worker."""

    sender: type
    found: Expired
    found_by: str
    ending: RunError | None


def announce(sender: type, settled: Sequence[tuple[Run, Settled]], worker_id: str) -> None:
    """Deliver the signals about runs that have ended, if there is a receiver; failures are logged in any case."""
    all_are_heard = signals.has_effect(signals.job_settled) or signals.has_effect(signals.task_finished)
    items = [
        _ended(sender, run, end, worker_id)
        for run, end in settled
        if end.written and (all_are_heard or end.status == ERROR or end.outcome.failure is not None)
    ]
    if items:
        read = _read_ended if signals.has_receivers(signals.task_finished) else None
        signals.deliver(_send_ended, items, read, PATIENCE_SECONDS)


def _ended(sender: type, run: Run, settled: Settled, worker_id: str) -> SettledRun:
    outcome = settled.outcome
    began, ended = outcome.began or run.claimed_at, outcome.ended or time.monotonic()
    message = outcome.failure.summary if outcome.failure else (outcome.message or "")
    ending = ending_of(outcome, settled.status, message)
    return SettledRun(
        sender,
        run.job._replace(args="[]", kwargs="{}", options="{}", metadata="{}"),
        run.entry.task if run.entry is not None else None,
        settled.status,
        outcome.kind,
        ended - began,
        outcome.delay_seconds,
        message,
        worker_id,
        ending,
        ending.error if ending is not None and not ending.canceled else None,
    )


def ending_of(outcome: Outcome, status: str, message: str) -> RunError | None:
    """Return the exception of a run that failed or was canceled; None for other runs."""
    if status == CANCELED:
        return RunError(JobCanceled(message or "The job was canceled."), canceled=True)
    if status != ERROR and outcome.error is None:
        return None
    error = RunFailed(message or "The run failed.") if outcome.error is None else outcome.error
    failure = outcome.failure
    return RunError(error) if failure is None else RunError(error, failure.traceback, mask=failure.mask)


def _read_ended(items: Sequence[SettledRun]) -> dict[int, Job]:
    return _read([item.job.id for item in items if item.task is not None and item.status in ENDED])


def _read(ids: Sequence[int]) -> dict[int, Job]:
    """Return the jobs with these ids, by id; return an empty dictionary if they cannot be read."""
    jobs = Job.objects.current
    try:
        try:
            return jobs.in_bulk(ids)
        except Error:
            if Job.objects.database.connection.in_atomic_block:
                raise
            hygiene.close_broken(Job.objects.database.alias)  # the server may have closed the connection, or a receiver has changed it
            return jobs.in_bulk(ids)
    except Exception as error:  # noqa: BLE001 - receivers then get the values of the claim
        repeats.log(logging.WARNING, "%d jobs could not be read for their signals: %s", len(ids), error)
        return {}


def _send_ended(item: SettledRun, known: dict[int, Job] | None) -> None:
    while_handling(item.ending, partial(_send_both, item, known))


def _send_both(item: SettledRun, known: dict[int, Job] | None) -> None:
    failed = item.ending is not None  # logged at a higher level than the one that `has_effect` checks
    if failed or signals.has_effect(signals.job_settled):
        _robustly(item.job.id, partial(_send_settled, item))
    if item.task is not None and item.status in ENDED and (signals.has_effect(signals.task_finished) or (failed and reaches_others())):
        _robustly(item.job.id, partial(_send_finished, item, known))


def _robustly(job_id: int, send: Callable[[], None]) -> None:
    try:
        send()
    except BaseException as error:  # noqa: BLE001 - `send_robust` does not catch SystemExit and the like
        repeats.log(logging.WARNING, "Job %s: a signal of its end was not sent: %s", job_id, texts.exception_summary(error))


def _send_settled(item: SettledRun) -> None:
    with for_receivers(item.job.tenant, signals.job_settled):
        signals.job_settled.send_robust(
            item.sender,
            job_id=item.job.id,
            task=item.job.task,
            queue=item.job.queue,
            status=item.status,
            kind=item.kind,
            attempt=item.job.attempt,
            seconds=item.seconds,
            delay_seconds=item.delay_seconds,
            worker_id=item.worker_id,
            message=item.message,
            exception=item.exception,
        )


def _send_finished(item: SettledRun, known: dict[int, Job] | None) -> None:
    job = known.get(item.job.id) if known is not None else None
    if job is None:
        result = results.of_claim(item.job, item.task, item.status)
    else:
        job.status = item.status  # the row may have changed: another run may have begun
        result = results.of_job(job)
    with for_receivers(item.job.tenant, signals.task_finished):
        signals.task_finished.send_robust(type(item.task.get_backend()), task_result=result)


# Jobs of dead workers


def announce_lost(sender: type, lost: Sequence[Expired], found_by: str) -> None:
    """Deliver the signals about jobs that were recovered from a dead worker."""
    signals.deliver(_send_lost, [Lost(sender, expired, found_by, _lost_ending(expired)) for expired in lost], _read_lost)


def _lost_ending(expired: Expired) -> RunError | None:
    if expired.status == CANCELED:
        return RunError(JobCanceled("The job was canceled."), canceled=True)
    return (
        RunError(WorkerLost(f"Worker {expired.owner} was lost while it had job {expired.job_id} ({expired.task})."))
        if expired.status == ERROR
        else None
    )


def _read_lost(items: Sequence[Lost]) -> dict[int, Job]:
    ended = [item.found.job_id for item in items if item.found.status in ENDED]
    return _read(ended) if ended else {}


def _send_lost(item: Lost, known: dict[int, Job]) -> None:
    while_handling(item.ending, partial(_send_both_lost, item, known))


def _send_both_lost(item: Lost, known: dict[int, Job]) -> None:
    _robustly(item.found.job_id, partial(_send_one_lost, item))
    if item.found.job_id in known:
        _robustly(item.found.job_id, partial(_send_lost_finished, item, known[item.found.job_id]))


def _send_one_lost(item: Lost) -> None:
    expired = item.found
    with for_receivers(expired.tenant, signals.job_lost):
        signals.job_lost.send_robust(
            item.sender, job_id=expired.job_id, task=expired.task, status=expired.status, worker_id=expired.owner, found_by=item.found_by
        )


def _send_lost_finished(item: Lost, job: Job) -> None:
    entry = registry.find(job.task)
    if entry is None:
        return
    job.status = item.found.status
    with for_receivers(item.found.tenant, signals.task_finished):
        signals.task_finished.send_robust(type(entry.task.get_backend()), task_result=results.of_job(job))
