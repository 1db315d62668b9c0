"""Run the enqueued jobs in the calling thread. There is no worker process and no other thread, so it works inside a ``TestCase``."""

from __future__ import annotations

import asyncio
import contextvars
import uuid
from collections.abc import Callable, Sequence

from asgiref.sync import async_to_sync
from django.db import DatabaseError, transaction

from jobqueue.core import queue_rules
from jobqueue.core.queue_rules import ServedQueues
from jobqueue.core.states import Status, WaitingFor
from jobqueue.core.texts import safe_repr
from jobqueue.db import Claimed, LeaseHolder, Scope, claims
from jobqueue.declared import registry
from jobqueue.exceptions import InvalidOption
from jobqueue.lifecycle.children import resume_parents
from jobqueue.lifecycle.claim import Claim, claim
from jobqueue.lifecycle.control import run_now
from jobqueue.lifecycle.lapse import cancel_lapsed
from jobqueue.lifecycle.outcome import Outcome
from jobqueue.lifecycle.queues import end_pauses
from jobqueue.models import Job, Queue
from jobqueue.worker.reporting.finisher import Finisher
from jobqueue.worker.reporting.reporter import Reporter
from jobqueue.worker.running.executor import execute, execute_async, read_result
from jobqueue.worker.running.run import Reason, Run, Runs
from jobqueue.worker.running.run_records import keep_records

LEASE_SECONDS = 3600.0  # it is never renewed
MAX_PROMOTED = MAX_TENANTS = 1000
REST_SECONDS = 0.01


def run_until_idle(queues: Sequence[str] = (), *, limit: int | None = None, scheduled: bool = False) -> int:
    """Claim, execute and finish jobs one by one in the calling thread until none may run; return the number of runs.

    Jobs that wait for their time or for a retry are not run, unless `scheduled` is true: then they run as if their time had come. `limit`
    is the maximum number of runs; set it if a task enqueues itself. ``context.wait`` waits for at most 0.01 s. The thread's connections are
    left as they are: inside a ``TestCase`` the task runs in the test's transaction.
    """
    if wrong := queue_rules.problem(queues):
        raise InvalidOption(f"queues is {safe_repr(queues)}: {wrong.text} {wrong.fix}")
    registry.discover()
    bench, served = Bench(), queue_rules.parse(tuple(queues))
    while limit is None or bench.ran < limit:
        _promote(served, scheduled=scheduled)
        job = _next(LeaseHolder(bench.owner, LEASE_SECONDS), served)
        if job is None:
            break
        bench.run(job)
    return bench.ran


def _next(holder: LeaseHolder, served: ServedQueues) -> Claimed | None:
    """Claim and return one job; return None if no tenant's job may run."""
    end_pauses()
    cancel_lapsed()
    paused = set(Queue.objects.current.filter(paused=True).values_list("pk", flat=True))
    for tenant in claims.queued_tenants(Job.objects.database, MAX_TENANTS):
        is_open = served.is_all and not paused
        scope = Scope(tenant, () if is_open else tuple(claims.queued_queues(Job.objects.database, MAX_TENANTS, tenant, "", paused, served)))
        claimed = Claim([], seen=1)
        while (claimed.seen or claimed.stuck) and not claimed.jobs and (scope.queues or is_open):
            claimed = claim(holder, scope, 1)
            scope = scope._replace(stuck=(*scope.stuck, *claimed.stuck))
        if claimed.jobs:
            return claimed.jobs[0]
    return None


def _promote(served: ServedQueues, *, scheduled: bool) -> None:
    Job.objects.promote_due(MAX_PROMOTED)
    resume_parents()
    if scheduled:
        waiting = Job.objects.current.filter(status=Status.PENDING, waiting_for=WaitingFor.TIME).served_by(served)
        for job_id in waiting.order_by("run_at", "pk").values_list("pk", flat=True):
            run_now(job_id)


class ShortRun(Run):
    """A run whose waits are cut to 0.01 s."""

    def wait(self, seconds: float) -> None:
        """Wait for a moment."""
        super().wait(min(seconds, REST_SECONDS))


class Bench:
    """The parts of a worker that one thread needs; none of them is started as a service."""

    def __init__(self) -> None:
        """Create an owner id of its own, as every worker process does."""
        self.owner = f"test-{uuid.uuid4()}"
        self.ran = 0
        keep_records()
        self._runs = Runs()
        self._finisher = Finisher(self._runs, self.owner, LEASE_SECONDS, lambda retrying: None, lambda service, error, failures: None)
        self._reporter = Reporter(self._runs, lambda service, error, failures: None)

    def run(self, job: Claimed) -> None:
        """Run one claimed job and write its outcome."""
        run = ShortRun(job, self._write_marks, read_result)
        self._runs.add([run])
        run.entry = registry.find(job.task)
        if run.entry is not None and run.entry.is_async and run.entry.takes_context:
            result = read_result(run)  # here, since no other thread sees the caller's transaction
            run.read_result = lambda run: result
        outcome = _leaving_a_usable_transaction(lambda: self._execute(run))
        self._finisher.put(run, outcome)
        self._finisher.turn()
        self.ran += 1

    def _execute(self, run: Run) -> Outcome:
        if run.entry is not None and run.entry.is_async:
            # In a copy of the caller's variables: values that the tenant's context sets must not stay with the caller.
            return contextvars.copy_context().run(async_to_sync(execute_async), run)
        return execute(run, hygienic=False)

    def _write_marks(self, run: Run) -> None:
        saved = run.progress.saved if run.progress is not None else None
        if saved is None and not (run.side_writes and run.side_writes.are_waiting) and _is_in_event_loop():
            return  # the outcome carries the progress of a coroutine
        self._reporter.turn()
        if saved is not None and not saved.is_set():
            run.interrupt(Reason.LOST)  # its row is gone, and no other service would notify it


def _leaving_a_usable_transaction(execute: Callable[[], Outcome]) -> Outcome:
    """Call `execute`; if the task left the caller's transaction unusable, undo the task's work, so that its outcome can be written."""
    alias = Job.objects.database.alias
    if not transaction.get_connection(alias).in_atomic_block:
        return execute()
    outcomes = []
    try:
        with transaction.atomic(using=alias):
            outcomes.append(execute())
    except DatabaseError:  # the savepoint could not be released, so it was rolled back
        if not outcomes:
            raise
    return outcomes[0]


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
