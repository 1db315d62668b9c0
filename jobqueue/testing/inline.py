"""Run a task in the calling thread, without a job in the database, and store its progress and end in its result."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.utils import timezone

from jobqueue import compat, signals
from jobqueue.core import backoff, states
from jobqueue.core.phases import PhaseState
from jobqueue.db import Claimed
from jobqueue.declared.registry import RegisteredTask
from jobqueue.failure_log import while_handling
from jobqueue.lifecycle.outcome import Kind, Outcome
from jobqueue.receivers import log_settled
from jobqueue.tasks.results import JobResult
from jobqueue.testing.inline_phases import InlinePhaseStore, store_end
from jobqueue.testing.worker import ShortRun
from jobqueue.worker.reporting.ends import ending_of
from jobqueue.worker.running.executor import execute_inside, execute_inside_async

WORKER_ID = "inline"
REPEATED = (Kind.RETRY, Kind.SLEEP, Kind.WAIT)  # these run again immediately: a test does not wait


@dataclass(eq=False)
class EnqueuedTask:
    """An enqueued task (arguments and metadata as JSON text), and what its context has reported."""

    result: JobResult
    args: str
    kwargs: str
    metadata: str
    unique_key: str = ""
    target: str = ""
    progress: int = 0
    message: str = ""
    phases: list[PhaseState] = field(default_factory=list)
    children: list[int] = field(default_factory=list)

    @property
    def due(self) -> datetime:
        """The time from which it may run."""
        run_after, enqueued_at = self.result.task.run_after, self.result.enqueued_at
        due = enqueued_at + run_after if isinstance(run_after, timedelta) else run_after or enqueued_at
        return due if isinstance(due, datetime) else timezone.now()

    @property
    def waits(self) -> bool:
        """Whether it has not run yet."""
        return bool(self.result.status == compat.TaskResultStatus.READY)

    def update(self, **values: Any) -> None:
        """Change the frozen result in place, so that the caller's object shows the new state."""
        for name, value in values.items():
            object.__setattr__(self.result, name, value)


def run(enqueued: EnqueuedTask, sender: type) -> None:
    """Run a task until it ends; retries, sleeps and waits for children continue immediately."""
    for attempt in itertools.count(1):
        outcome = _attempt(enqueued, attempt)
        _store_end(enqueued, outcome)
        message = outcome.failure.summary if outcome.failure else (outcome.message or "")
        while_handling(
            ending_of(outcome, enqueued.result.job_status, message), partial(_announce, enqueued, sender, attempt, outcome, message)
        )
        if outcome.kind not in REPEATED:
            return


def _announce(enqueued: EnqueuedTask, sender: type, attempt: int, outcome: Outcome, message: str) -> None:
    """Log the end of a run as a worker does; send `task_finished` if the task has ended."""
    result = enqueued.result
    log_settled(
        sender,
        job_id=result.job_id,
        task=result.task.module_path,
        queue=result.task.queue_name,
        status=result.job_status,
        seconds=max((outcome.ended or 0.0) - (outcome.began or 0.0), 0.0),
        kind=outcome.kind,
        attempt=attempt,
        delay_seconds=outcome.delay_seconds,
        worker_id=WORKER_ID,
        message=message,
    )
    if outcome.kind not in REPEATED:
        signals.task_finished.send_robust(sender, task_result=result)


def _attempt(enqueued: EnqueuedTask, attempt: int) -> Outcome:
    result, now = enqueued.result, timezone.now()
    enqueued.update(status=compat.TaskResultStatus.RUNNING, job_status=states.Status.RUNNING.value, last_attempted_at=now)
    enqueued.update(started_at=result.started_at or now, worker_ids=[*result.worker_ids, WORKER_ID])
    short_run = ShortRun(_claimed(enqueued, attempt), lambda run: None, lambda run: result)
    short_run.entry = _entry(result.task)
    short_run.phase_store = InlinePhaseStore(enqueued.phases, enqueued.children)
    short_run.saves_with_outcome = True
    # Not in the tenant's context: entering it would query the database.
    if short_run.entry.is_async:
        async_to_sync(execute_inside_async)(short_run)
    else:
        execute_inside(short_run)
    outcome = short_run.take_outcome()
    if isinstance(outcome.error, KeyboardInterrupt):  # Ctrl-C ends the test run
        raise outcome.error
    return outcome


def _store_end(enqueued: EnqueuedTask, outcome: Outcome) -> None:
    enqueued.progress = enqueued.progress if outcome.progress is None else outcome.progress
    enqueued.metadata = outcome.metadata or enqueued.metadata
    if outcome.told is not None and outcome.told.message is not None:
        enqueued.message = outcome.told.message
    errors = list(enqueued.result.errors)
    if outcome.failure is not None:
        errors.append(compat.TaskError(exception_class_path=outcome.failure.path, traceback=outcome.failure.traceback))
    if outcome.kind in REPEATED:
        store_end(enqueued.phases, outcome)
        enqueued.update(errors=errors, status=compat.TaskResultStatus.READY, job_status=states.Status.PENDING.value)
        return
    succeeded = outcome.kind is Kind.SUCCESS
    enqueued.update(
        errors=errors,
        status=compat.TaskResultStatus.SUCCESSFUL if succeeded else compat.TaskResultStatus.FAILED,
        job_status=(states.Status.SUCCESS if succeeded else states.Status.ERROR).value,
        finished_at=timezone.now(),
        _return_value=json.loads(outcome.result),
    )


def _claimed(enqueued: EnqueuedTask, attempt: int) -> Claimed:
    task = enqueued.result.task
    return Claimed(
        id=enqueued.result.job_id,
        claim_rank=-task.priority,
        lease_token=attempt,
        attempt=attempt,
        failures=attempt - 1,
        crashes=0,
        max_attempts=getattr(task, "max_attempts", 1),
        task=task.module_path,
        queue=task.queue_name,
        tenant=getattr(task, "tenant", None) or "",
        target=enqueued.target,
        recovery=states.Recovery.REQUEUE.value,
        args=enqueued.args,
        kwargs=enqueued.kwargs,
        options="{}",
        metadata=enqueued.metadata,
    )


def _entry(task: Any) -> RegisteredTask:
    return RegisteredTask(
        path=task.module_path,
        task=task,
        func=task.func,
        is_async=iscoroutinefunction(task.func),
        takes_context=task.takes_context,
        retry_on=getattr(task, "retry_on", ()),
        backoff=getattr(task, "backoff", backoff.DEFAULT),
        transactional=False,  # the transaction is that of the caller
        secret=getattr(task, "secret", ()),
        phases=tuple(getattr(task, "phases", ())),
    )
