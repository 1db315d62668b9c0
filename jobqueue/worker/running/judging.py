"""Turn what a run returned or raised into an `Outcome`."""

from __future__ import annotations

import asyncio
import contextlib
import time
import traceback

from jobqueue.core import backoff, payload, texts
from jobqueue.core.targets import Target
from jobqueue.core.time_limits import exceeded
from jobqueue.declared import imports, registry
from jobqueue.exceptions import Fatal, Interrupted, InvalidBackoff, Retry, Suspended, TimeLimitExceeded
from jobqueue.lifecycle.outcome import EXPIRED, UNKNOWN_TASK_PAUSE_SECONDS, Failure, Kind, Outcome
from jobqueue.worker.running import groups, phase_store
from jobqueue.worker.running.run import Reason, Run

MAX_LINKS = 1000


def conclude(run: Run) -> Outcome:
    """Turn what the task returned or raised into an outcome, and drop the references to it; never raises."""
    run.ended = time.monotonic()
    try:
        return outcome_of(run)
    finally:
        forget(run)


def forget(run: Run) -> None:
    """Drop the references to what the task returned or raised.

    The locals of its frames are cleared here, in its own thread: they may be cursors of this thread's connection, or any amount of memory.
    The exception itself, and the lines where it was raised, stay with the outcome until its signals are sent.
    """
    if run.raised is not None:
        with contextlib.suppress(BaseException):  # the class of an exception may have attributes that raise
            clear_locals(run.raised)
    run.value = run.raised = None


def clear_locals(error: BaseException) -> None:
    """Clear the local variables of all frames in the traceback of an exception and of those that led to it."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting and len(seen) < MAX_LINKS:
        cause = waiting.pop()
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        traceback.clear_frames(cause.__traceback__)
        waiting += [cause.__cause__, cause.__context__]
        if isinstance(cause, BaseExceptionGroup):
            waiting += cause.exceptions


def outcome_of(run: Run) -> Outcome:
    """Return the outcome of a run; never raises."""
    try:
        if run.committed is not None:
            return run.committed
        if run.returned:
            return success(run)
        if run.raised is not None:
            return raised(run, run.raised)
        if not run.job.expired:
            return unknown_task(run)
        outcome = _outcome(run, Kind.EXPIRED)
        outcome.message = EXPIRED
        return outcome
    except BaseException as error:  # noqa: BLE001 - the result cannot be stored, or this module has a bug: the thread must not end
        return failed(run, Kind.ERROR, error)


def success(run: Run) -> Outcome:
    """Return the outcome of a run that returned; raise `ResultNotStorable` if its value cannot be stored."""
    outcome = _outcome(run, Kind.SUCCESS)
    if run.value is not None:
        outcome.result = payload.dumps_result(run.value)
    progress = run.progress
    if progress is not None:
        outcome.message = progress.message
    if run.place and outcome.message is None:
        outcome.message = ""  # the message of the row said that the run did not stop; the end of the run clears it
    return outcome


def raised(run: Run, whole: BaseException) -> Outcome:
    """Return the outcome of a run that raised `whole`; the exception that `groups.decisive` finds in it decides."""
    decisive, shown = groups.decisive(whole, stopping=run.reason is not None)
    if stops(run, decisive):
        return interrupted(run)
    error = limited(run, decisive)
    if error is not decisive:
        shown = error
    if isinstance(error, Suspended) and run.pipeline is not None and run.pipeline.suspended is error:
        return phase_store.suspended(run, error, _outcome(run, Kind.SLEEP))
    if run.began is None and isinstance(error, asyncio.CancelledError):  # another coroutine canceled it before it began
        return handed_back(run)
    entry = run.entry
    wishes = isinstance(error, Retry) or (entry is not None and groups.matches(error, entry.retry_on) and not isinstance(error, Fatal))
    if entry is None or not wishes or run.job.failures + 1 >= run.job.max_attempts:
        return failed(run, Kind.ERROR, shown, whole)
    try:
        delay = error.delay_seconds if isinstance(error, Retry) else None
        if delay is None:
            delay = backoff.delay_seconds(entry.backoff, shown, run.job.failures + 1)
    except InvalidBackoff as wrong:
        wrong.add_note(f"The task itself raised {texts.exception_summary(shown)}")
        return failed(run, Kind.ERROR, wrong)
    outcome = failed(run, Kind.RETRY, shown, whole)
    outcome.delay_seconds = delay
    return outcome


def interrupted(run: Run) -> Outcome:
    """Return the outcome of a run that was interrupted, which depends on the reason."""
    if run.reason is Reason.SHUTDOWN:
        kind = Kind.STOPPED if run.job.recovery == "hold" else Kind.HANDED_BACK
    else:
        kind = Kind.INTERRUPTED
    return _outcome(run, kind)


def handed_back(run: Run) -> Outcome:
    """Return the outcome of a claimed job that is handed back."""
    return _outcome(run, Kind.HANDED_BACK)


def unknown_task(run: Run) -> Outcome:
    """Return the outcome of a job whose task is not registered in this worker; hand it back if the task's module can be imported."""
    path = run.job.task
    if registry.find_or_load(path) is not None:
        return handed_back(run)
    error = imports.failures().get(path.rpartition(".")[0])
    reason = f"its module cannot be imported: {error}" if error else "declare it in <app>/tasks.py, or name its module in TASK_MODULES"
    text = f"No task is registered as {path!r} in this worker: {reason}. A job waits for its task for UNKNOWN_TASK_GRACE_SECONDS."
    outcome = _outcome(run, Kind.UNKNOWN_TASK, Failure("jobqueue.exceptions.UnknownTask", text, "", path))
    outcome.delay_seconds = UNKNOWN_TASK_PAUSE_SECONDS
    return outcome


def failed(run: Run, kind: Kind, error: BaseException, group: BaseException | None = None) -> Outcome:
    """Return the outcome of a run that failed; if the error was in a group, the traceback shows the whole group."""
    shown = group if isinstance(group, BaseExceptionGroup) else error
    # Secrets are masked here, before a text is cut or stored: the row, its events, the log and webhooks all get these texts.
    hide = run.mask
    summary, traceback = texts.exception_summary(error, hide), texts.error_text(shown, skip_frames=1, hide=hide)
    failure = Failure(texts.exception_path(error), summary, traceback, run.job.task, hide)
    outcome = _outcome(run, kind, failure)
    outcome.error = shown
    return outcome


def _outcome(run: Run, kind: Kind, failure: Failure | None = None) -> Outcome:
    outcome = Outcome(run.lease, kind, run.began, run.ended)
    outcome.failure = failure
    job = run.job
    if job.target:
        outcome.target = Target(job.tenant, job.target)
    if run.progress is not None or run.pipeline is not None:
        phase_store.add_progress(run, outcome)
    return outcome


# Interrupts and time limits


def stops(run: Run, error: BaseException | None) -> bool:
    """Return whether an exception shows that the run obeyed its interrupt."""
    if run.reason is None or (run.overdue and run.reason is Reason.SHUTDOWN):  # this run caused the shutdown
        return False
    return isinstance(groups.thrown(error), Interrupted | asyncio.CancelledError | TimeLimitExceeded)


def limited(run: Run, error: BaseException) -> BaseException:
    """Return the exception of a task, or a `TimeLimitExceeded` with its full text if the run stopped because of its time limit."""
    if not run.expired or stops(run, error):
        return error
    is_canceled = isinstance(error, asyncio.CancelledError) and run.entry is not None and run.entry.is_async
    thrown = groups.thrown(error)
    is_hidden = thrown is not error and isinstance(thrown, TimeLimitExceeded)
    if is_canceled or is_hidden or (run.overdue and isinstance(error, Interrupted | asyncio.CancelledError)):
        full = exceeded(run.limit)
        full.__cause__ = error
        return full
    if isinstance(error, TimeLimitExceeded):  # it was thrown into a thread without the number of seconds
        error.args = exceeded(run.limit).args
    return error
