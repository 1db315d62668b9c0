"""Execute one run: find the task, call it, and turn its end into an `Outcome`. This module writes no row of a queue.

Every `BaseException` of a task ends its job, never the thread: also SystemExit, KeyboardInterrupt, GeneratorExit and CancelledError.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from asgiref.sync import sync_to_async

from jobqueue import signals
from jobqueue.core import repeats
from jobqueue.core.forks import leave_if_forked
from jobqueue.db import hygiene
from jobqueue.declared import registry
from jobqueue.exceptions import Interrupted
from jobqueue.lifecycle.outcome import Outcome
from jobqueue.models import Job
from jobqueue.tasks import results
from jobqueue.tasks.context import TaskContext
from jobqueue.worker.running import phase_store
from jobqueue.worker.running.arguments import arguments
from jobqueue.worker.running.judging import conclude, forget, judged, success
from jobqueue.worker.running.run import Run
from jobqueue.worker.running.run_contexts import contexts_of
from jobqueue.worker.running.tenancy import inside, inside_async
from jobqueue.worker.running.time_limits import stops
from jobqueue.worker.running.transactional import call_in_transaction

logger = logging.getLogger("jobqueue")


def execute(run: Run, idle_seconds: float = 0.0, *, hygienic: bool = True) -> Outcome:
    """Run a plain function in this thread and return the outcome; never raises.

    If not `hygienic`, leave the thread's connections alone: they belong to the caller, who may be inside a transaction.
    """
    try:
        if hygienic:
            hygiene.before_task(idle_seconds)
            # An empty context: a time zone, a language or a variable that a task sets never reaches the next task.
            contextvars.Context().run(_call, run)
        else:
            _call(run)
    except BaseException as error:  # noqa: BLE001 - entering or leaving the tenant's context failed, or jobqueue has a bug
        _note(run, error)
    run.outcome = run.outcome or _end(run)
    left = hygiene.after_task() if hygienic else []
    if left and not (run.expired or run.thrown):  # else the interrupt cut the task off, and the task did not leave it open
        text = "Job %s (%s) left a transaction open on %s; what it wrote there is rolled back."
        logger.warning(text, run.job.id, run.job.task, ", ".join(left))
    return _taken(run)


def _taken(run: Run) -> Outcome:
    """Return the outcome of a run and remove it from the run.

    An exception holds the frames of jobqueue's functions, which hold the run. If the run kept its outcome, only the garbage collector
    could free them.
    """
    outcome, run.outcome = run.outcome or _end(run), None
    return outcome


def _call(run: Run) -> None:
    if not run.job.tenant:
        _call_to_the_end(run)
        return
    with inside(run.job.tenant):
        _call_to_the_end(run)


def _call_to_the_end(run: Run) -> None:
    """Call the task and make its outcome inside the context: the text of its error may query the database or read a variable.

    An interrupt that is thrown into this thread must never hit the exit of the tenant's context: the thread would stay in that context.
    """
    try:
        _call_inside(run)
        run.close()
    except BaseException as error:  # noqa: BLE001 - an interrupt that arrives between two lines here, or a bug
        _note(run, error)
    run.outcome = _end(run)


def _note(run: Run, error: BaseException) -> None:
    if not run.returned and run.raised is None:
        run.raised = error


def _end(run: Run) -> Outcome:
    run.close()  # again: an interrupt may have arrived on the way into the first call; a second one never arrives
    run.ended = time.monotonic()
    return conclude(run)


def _call_inside(run: Run) -> None:
    prepared = prepare(run)
    if prepared is None:
        return
    func, args, kwargs = prepared
    pid = os.getpid()
    contexts = contexts_of(run.job)
    run.begin()
    try:
        if contexts is not None:
            contexts.enter()  # after `begin`: a time limit or an interrupt reaches it, too
        if run.entry is not None and run.entry.transactional:
            call_in_transaction(run, lambda: func(*args, **kwargs), success)
        else:
            run.value = func(*args, **kwargs)
        run.returned = True
    except BaseException as error:  # noqa: BLE001 - a task may raise anything, and its thread continues
        run.raised = error
    leave_if_forked(pid, run.raised)
    if contexts is not None:
        contexts.leave(run.raised)


async def execute_async(run: Run) -> Outcome:
    """Run a coroutine function in this event loop and return the outcome; never raises."""
    try:
        async with inside_async(run.job.tenant) if run.job.tenant else contextlib.nullcontext():
            await _call_async(run)
    except BaseException as error:  # noqa: BLE001 - leaving the tenant's context failed, or a cancellation arrived while entering it
        _note(run, error)
    return _taken(run)


async def _call_async(run: Run) -> None:
    pid, contexts = os.getpid(), contexts_of(run.job)
    try:
        # Sending `task_started` reads the job's row, which Django does not allow in a coroutine.
        prepared = await sync_to_async(prepare)(run) if signals.listened_to(signals.task_started) else prepare(run)
        if prepared is not None:
            func, args, kwargs = prepared
            run.begin_in_loop()
            if contexts is not None:
                await contexts.aenter()
            run.value = await func(*args, **kwargs)
            run.returned = True
    except BaseException as error:  # noqa: BLE001 - a task may raise anything, and the loop continues
        run.raised = error
    leave_if_forked(pid, run.raised)
    if contexts is not None:
        await contexts.aleave(run.raised)
    run.close()  # inside the tenant's context, as for a plain function: no interrupt may cancel its exit
    run.ended = time.monotonic()
    quickly = isinstance(run.raised, Interrupted | asyncio.CancelledError) and not run.expired
    if run.raised is None or quickly or stops(run, run.raised):
        run.outcome = conclude(run)
    else:  # in the thread that may query the database; if even this is canceled, `Loop._ended` does it
        run.outcome = await sync_to_async(judged)(run)
        forget(run)


def prepare(run: Run) -> tuple[Any, list[Any], dict[str, Any]] | None:
    """Find the task and read its arguments; return None if the task is unknown or the job has expired. An exception here is the job's."""
    interruption = run.interruption()
    if interruption is not None:  # requested while the run waited for a thread
        raise interruption
    if run.unreadable is not None:
        raise run.unreadable
    job = run.job
    entry = run.entry = run.entry or registry.find(job.task)
    if entry is None or job.expired:
        return None
    args, kwargs = arguments(job)
    func = entry.func
    if entry.phases:
        pipeline = phase_store.begin(run, entry)
        func = pipeline.arun if entry.is_async else pipeline.run
    elif job.phase:
        func = phase_store.without_phases(run, entry)
    if entry.takes_context:
        args.insert(0, TaskContext(job, run, run.pipeline))
    if signals.heard(signals.task_started):
        _tell_started(run, entry.task)
    return func, args, kwargs


def _tell_started(run: Run, task: Any) -> None:
    try:
        full = signals.listened_to(signals.task_started)  # the log line alone needs no query
        result = read_result(run) if full else results.of_claim(run.job, task, "RUNNING")
        with hygiene.leaving_no_transaction("A receiver of task_started"):
            signals.task_started.send_robust(type(task.get_backend()), task_result=result)
    except BaseException:  # noqa: BLE001 - also SystemExit and the like, which `send_robust` does not catch
        repeats.log(logging.ERROR, "Job %s: the signal of its start was not sent; it runs all the same.", run.job.id, exc_info=True)


def read_result(run: Run) -> Any:
    """Return the run's job as a task result, read from the database; for a coroutine, another thread reads it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _read_result(run)
    with ThreadPoolExecutor(1) as other:
        return other.submit(_read_result_and_close, run).result()


def _read_result(run: Run) -> Any:
    return results.of_job(Job.objects.current.get(pk=run.job.id))


def _read_result_and_close(run: Run) -> Any:
    try:
        return _read_result(run)
    finally:
        hygiene.close_all()
