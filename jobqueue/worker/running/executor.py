"""Execute one run: find the task, call it, and turn its end into an `Outcome`. This module writes no row of a queue.

A run has three steps: `resolve`, the call, and `conclude`. A plain function and a coroutine differ only in the call.

Every `BaseException` of a task ends its job, never the thread: also SystemExit, KeyboardInterrupt, GeneratorExit and CancelledError.

An exception holds the frames that it has passed and those of their callers, with their locals. So none of these has the outcome, which
holds the exception, among its locals: only the garbage collector could free both. The run carries it meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from asgiref.sync import sync_to_async

from jobqueue import signals, tracing
from jobqueue.core import repeats
from jobqueue.core.forks import exit_if_forked, process_id
from jobqueue.db import hygiene
from jobqueue.declared import registry
from jobqueue.exceptions import Interrupted
from jobqueue.lifecycle.outcome import Outcome
from jobqueue.logs import current_run
from jobqueue.models import Job
from jobqueue.tasks import results
from jobqueue.tasks.context import TaskContext
from jobqueue.worker.running import phase_store
from jobqueue.worker.running.arguments import arguments
from jobqueue.worker.running.judging import conclude, forget, outcome_of, stops, success
from jobqueue.worker.running.run import Run
from jobqueue.worker.running.run_contexts import contexts_of
from jobqueue.worker.running.run_spans import RunSpan
from jobqueue.worker.running.tenancy import inside, inside_async
from jobqueue.worker.running.transactional import call_in_transaction

logger = logging.getLogger("jobqueue")


Call = tuple[Callable[..., Any], list[Any], dict[str, Any]]


def execute(run: Run, idle_seconds: float = 0.0, *, hygienic: bool = True) -> Outcome:
    """Run a plain function in this thread and return the outcome; never raises.

    If not `hygienic`, leave the thread's connections alone: they belong to the caller, who may be inside a transaction.
    """
    if not hygienic:
        _execute(run)
        return run.take_outcome()
    try:
        hygiene.before_task(idle_seconds)
        # An empty context: a time zone, a language or a variable that a task sets never reaches the next task.
        contextvars.Context().run(_execute, run)
    except BaseException as error:  # noqa: BLE001 - jobqueue has a bug, which must not end the thread
        _fail(run, error)
    left = hygiene.after_task()
    if left and not (run.expired or run.thrown):  # else the interrupt cut the task off, and the task did not leave it open
        text = "Job %s (%s) left a transaction open on %s; what it wrote there is rolled back."
        logger.warning(text, run.job.id, run.job.task, ", ".join(left))
    return run.take_outcome()


def _execute(run: Run) -> None:
    if tracing.tracer() is None:
        _execute_in_tenant(run)
        return
    with RunSpan(run):
        _execute_in_tenant(run)


def _execute_in_tenant(run: Run) -> None:
    if not run.job.tenant:
        execute_inside(run)
        return
    try:
        with inside(run.job.tenant):
            execute_inside(run)
    except BaseException as error:  # noqa: BLE001 - the context cannot be entered, or cannot be left after the end of the run
        _fail(run, error)


def execute_inside(run: Run) -> None:
    """Execute a run to its outcome, which the run then has, inside the tenant's context.

    The text of the task's error may query the database or read a variable.

    An interrupt that is thrown into this thread must never hit the exit of the tenant's context: the thread would stay in that context.
    """
    scope = current_run.set(run)
    try:
        if (call := resolve(run)) is not None:
            _call(run, *call)
        run.close()
    except BaseException as error:  # noqa: BLE001 - the job cannot be run, or an interrupt arrives between two lines here
        _fail(run, error)
    else:
        run.outcome = conclude(run)
    current_run.reset(scope)


def _fail(run: Run, error: BaseException) -> None:
    """End a run with an exception that was raised outside of its task, unless it has ended."""
    if run.outcome is None:
        _record_error(run, error)
        run.close()  # an interrupt may have arrived on the way into the first call; a second one never arrives
        run.outcome = conclude(run)


def _record_error(run: Run, error: BaseException) -> None:
    if not run.returned and run.raised is None:
        run.raised = error


def _call(run: Run, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> None:
    """Call a plain function, and keep what it returns or raises in the run."""
    process, contexts = process_id(), contexts_of(run.job)
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
    exit_if_forked(process, run.raised)
    if contexts is not None:
        contexts.exit(run.raised)


async def execute_async(run: Run) -> Outcome:
    """Run a coroutine function in this event loop and return the outcome; never raises."""
    if tracing.tracer() is None:
        await _execute_in_tenant_async(run)
    else:
        with RunSpan(run):
            await _execute_in_tenant_async(run)
    return run.take_outcome()


async def _execute_in_tenant_async(run: Run) -> None:
    try:
        async with inside_async(run.job.tenant) if run.job.tenant else contextlib.nullcontext():
            await execute_inside_async(run)
    except BaseException as error:  # noqa: BLE001 - as for a plain function, or a cancellation that arrives outside of the task
        _fail(run, error)


async def execute_inside_async(run: Run) -> None:
    """Execute a coroutine function's run to its outcome, which the run then has, inside the tenant's context."""
    scope = current_run.set(run)
    try:
        # Sending `task_started` reads the job's row, which Django does not allow in a coroutine.
        call = await sync_to_async(resolve)(run) if signals.has_receivers(signals.task_started) else resolve(run)
        if call is not None:
            await _call_async(run, *call)
    except BaseException as error:  # noqa: BLE001 - the job cannot be run
        _record_error(run, error)
    run.close()  # inside the tenant's context, as for a plain function: no interrupt may cancel its exit
    is_canceled = isinstance(run.raised, Interrupted | asyncio.CancelledError) and not run.expired
    if run.raised is None or is_canceled or stops(run, run.raised):
        run.outcome = conclude(run)
    else:  # in the thread that may query the database; if even this is canceled, `_fail` concludes the run
        run.ended = time.monotonic()
        run.outcome = await sync_to_async(outcome_of)(run)
        forget(run)
    current_run.reset(scope)


async def _call_async(run: Run, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> None:
    """Await a coroutine function, and keep what it returns or raises in the run."""
    process, contexts = process_id(), contexts_of(run.job)
    run.begin_in_loop()
    try:
        if contexts is not None:
            await contexts.aenter()
        run.value = await func(*args, **kwargs)
        run.returned = True
    except BaseException as error:  # noqa: BLE001 - a task may raise anything, and the loop continues
        run.raised = error
    exit_if_forked(process, run.raised)
    if contexts is not None:
        await contexts.aleave(run.raised)


def resolve(run: Run) -> Call | None:
    """Find the task and read its arguments; return None if the task is unknown or the job has expired. An exception here is the job's."""
    if (interruption := run.interruption()) is not None:  # requested while the run waited for a thread
        raise interruption
    if run.unreadable is not None:
        raise run.unreadable
    job = run.job
    entry = run.entry
    if entry is None:
        entry = run.entry = registry.find(job.task)
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
    if signals.has_effect(signals.task_started):
        _announce_start(run, entry.task)
    return func, args, kwargs


def _announce_start(run: Run, task: Any) -> None:
    try:
        full = signals.has_receivers(signals.task_started)  # the log line alone needs no query
        result = run.result() if full else results.of_claim(run.job, task, "RUNNING")
        with hygiene.leaving_no_transaction("A receiver of task_started"):
            signals.task_started.send_robust(type(task.get_backend()), task_result=result)
    except BaseException:  # noqa: BLE001 - also SystemExit and the like, which `send_robust` does not catch
        repeats.log(logging.ERROR, "Job %s: the signal of its start was not sent; the job runs anyway.", run.job.id, exc_info=True)


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
