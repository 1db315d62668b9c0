"""Tell whether what comes out of a task is its time limit or an interrupt. An interrupt beats a limit."""

from __future__ import annotations

import asyncio

from jobqueue.exceptions import Interrupted, TimeLimitExceeded
from jobqueue.time_limits import exceeded
from jobqueue.worker.run import Reason, Run


def stops(run: Run, error: BaseException | None) -> bool:
    """Return whether an exception is how the run obeys its interrupt."""
    if run.reason is None or (run.overdue and run.reason is Reason.SHUTDOWN):  # which it is the cause of
        return False
    return isinstance(error, Interrupted | asyncio.CancelledError | TimeLimitExceeded)


def limited(run: Run, error: BaseException) -> BaseException:
    """Return the exception of a task; that of its time limit, said in full, where it is how the run obeys it."""
    if not run.expired or stops(run, error):
        return error
    is_canceled = isinstance(error, asyncio.CancelledError) and run.entry is not None and run.entry.is_async
    if is_canceled or (run.overdue and isinstance(error, Interrupted | asyncio.CancelledError)):
        full = exceeded(run.limit)
        full.__cause__ = error
        return full
    if isinstance(error, TimeLimitExceeded):  # thrown into a thread, it knows no number
        error.args = exceeded(run.limit).args
    return error
