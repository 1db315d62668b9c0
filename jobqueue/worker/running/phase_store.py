"""The phase store of a worker's run: side writes, guarded by the run's lease, write the states of its phases to the database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.db import transaction

from jobqueue import clock
from jobqueue.core.phases import PhaseState
from jobqueue.db import hygiene
from jobqueue.declared.registry import RegisteredTask
from jobqueue.exceptions import JobQueueError, Suspended, TransactionLeftOpen
from jobqueue.lifecycle import children as kin
from jobqueue.lifecycle import phases
from jobqueue.lifecycle.children import Child
from jobqueue.lifecycle.outcome import FinishedPhase, Kind, LastProgress, Outcome
from jobqueue.models import Job
from jobqueue.worker.running.phases import Pipeline
from jobqueue.worker.running.run import Run
from jobqueue.worker.running.side_writes import wait_for

T = TypeVar("T")


class RunPhaseStore:
    """The states of the phases of one run, in the database."""

    def __init__(self, run: Run) -> None:
        """Bind the run."""
        self._run = run

    def open(self, names: Sequence[str]) -> list[PhaseState]:
        """Begin the first phase that has not finished; return the states of all phases."""
        return phases.open_phases(self._run.lease, names)

    def end_phase(self, done: FinishedPhase, following: PhaseState | None, progress: int) -> None:
        """End a phase and begin the next."""
        run = self._run
        shown = run.pipeline.shown if run.pipeline is not None else None
        message = shown.message if shown is not None and shown.name == done.name else None
        reported = _reported(run) if shown is not None else None
        phases.advance(run.lease, done, following, progress, message=message, told=reported, stops=run.become_unstoppable() is not None)
        run.own_progress().percent = progress  # progress that was reported before and is not written yet must not follow

    def raise_if_stopping(self) -> None:
        """Raise the exception with which the run is to stop."""
        with self._run.shield():
            due = self._run.become_unstoppable()
        if due is not None:
            raise due

    def transactions(self) -> frozenset[str]:
        """Return the aliases of the caller's connections that are in a transaction."""
        with self._run.shield():
            return hygiene.in_transactions()

    def check_transactions(self, name: str, before: frozenset[str]) -> None:
        """Raise if a phase has left a new transaction open: its writes would be lost, although the phase counts as finished."""
        with self._run.shield():
            left_open = hygiene.end_later_transactions(before)
        if left_open:
            raise TransactionLeftOpen(
                f"Phase {name!r} left a transaction open on {', '.join(left_open)}; what it wrote there is rolled back."
                " Use 'with transaction.atomic():', and end it before the phase returns."
            )

    async def in_connection_thread(self, work: Callable[[], T]) -> T:
        """Execute a function in the thread that has the connections of a coroutine."""
        done: T = await sync_to_async(work)()
        return done

    def store_checkpoint(self, name: str, text: str) -> None:
        """Store a checkpoint."""
        phases.keep_checkpoint(self._run.lease, name, text)

    def wait(self, ids: Sequence[int]) -> None:
        """Make the job wait for other jobs when its run has ended."""
        kin.wait(self._run.lease, ids)

    def do(self, work: Callable[[], T]) -> T:
        """Execute one of these calls as a side write and return its value."""
        with self._run.shield():
            return self._do(work)

    def _do(self, work: Callable[[], T]) -> T:
        future = self._run.send(work)
        if not future.done() and Job.objects.database.one_writer and self._in_transaction() and future.cancel():
            raise JobQueueError(
                "A phase cannot store anything while its own transaction is open on SQLite, which has one writer at a "
                "time. Call context.checkpoint after the 'with transaction.atomic():', and end it before the phase returns."
            )
        return wait_for(self._run, future)

    async def ado(self, work: Callable[[], T]) -> T:
        """Execute one of these calls for a coroutine."""
        future: Any = await sync_to_async(self._run.send)(work)
        value: T = await asyncio.wrap_future(future)
        return value

    def _in_transaction(self) -> bool:
        return bool(transaction.get_connection(Job.objects.database.alias).in_atomic_block)

    def children(self, after: int, limit: int) -> list[Child]:
        """Return the outcomes of the jobs that were waited for, read on the caller's own connection."""
        return kin.ended(self._run.job.id, after, limit)


def begin(run: Run, entry: RegisteredTask) -> Pipeline:
    """Return the pipeline of a run whose task has phases."""
    run.pipeline = Pipeline(entry.phases, entry.func, run.phase_store or RunPhaseStore(run))
    return run.pipeline


def without_phases(run: Run, entry: RegisteredTask) -> Callable[..., Any]:
    """Return the function of a task whose job has phases that the code no longer has; it first deletes the unfinished ones."""
    drop, store = partial(phases.drop_unfinished, run.lease), RunPhaseStore(run)
    if not entry.is_async:
        store.do(drop)  # before the task's own transaction, if it has one
        return entry.func

    async def begin_anew(*args: Any, **kwargs: Any) -> Any:
        await store.ado(drop)
        return await entry.func(*args, **kwargs)

    return begin_anew


def _reported(run: Run) -> LastProgress | None:
    progress = run.progress
    return None if progress is None or progress.percent is None else LastProgress(progress.percent, progress.message)


def add_progress(run: Run, outcome: Outcome) -> None:
    """Add the progress of a run and of its phases to its outcome."""
    if run.progress is not None:
        outcome.progress, outcome.metadata, outcome.told = run.progress.percent, run.progress.metadata, _reported(run)
    if (pipeline := run.pipeline) is not None and pipeline.opened:
        if run.closed and run.side_writes is not None:
            run.side_writes.refuse_left()
        outcome.progress, outcome.phase = pipeline.progress, pipeline.shown


def suspended(run: Run, error: Suspended, outcome: Outcome) -> Outcome:
    """Return the outcome of a run that is suspended: its job continues later."""
    outcome.kind = Kind.SLEEP if error.children is None else Kind.WAIT
    seconds = error.seconds if error.until is None else max((error.until - clock.now()).total_seconds(), 0.0)
    outcome.delay_seconds, outcome.until = seconds, error.until
    outcome.message = None if run.progress is None else run.progress.message
    if run.pipeline is not None:
        outcome.done, outcome.following, outcome.progress = run.pipeline.done, run.pipeline.following, run.pipeline.after
    return outcome
