"""Tell whether what comes out of a task is its time limit or an interrupt. An interrupt beats a limit."""

from __future__ import annotations

import asyncio

from django.db import InterfaceError, InternalError, OperationalError, ProgrammingError

from jobqueue.core.time_limits import exceeded
from jobqueue.exceptions import Interrupted, TimeLimitExceeded
from jobqueue.worker.running.run import Reason, Run

# What a connection says that was cut off in the middle of a statement; not what the data is like.
OF_CONNECTIONS = (ProgrammingError, OperationalError, InterfaceError, InternalError)
MAX_CHAIN = 20


def told(error: BaseException | None) -> BaseException | None:
    """Return what was thrown into the task where an error of its database is only what became of that; else the error itself.

    Thrown in the middle of a statement, it leaves a connection of no more use. To end the transaction is then an error of its own, which
    takes the place of the one that is on its way.
    """
    found: BaseException | None = error if isinstance(error, OF_CONNECTIONS) else None
    for _ in range(MAX_CHAIN):
        found = found and found.__context__
        if isinstance(found, Interrupted | TimeLimitExceeded):
            return found
    return error


def stops(run: Run, error: BaseException | None) -> bool:
    """Return whether an exception is how the run obeys its interrupt."""
    if run.reason is None or (run.overdue and run.reason is Reason.SHUTDOWN):  # which it is the cause of
        return False
    return isinstance(told(error), Interrupted | asyncio.CancelledError | TimeLimitExceeded)


def limited(run: Run, error: BaseException) -> BaseException:
    """Return the exception of a task; that of its time limit, said in full, where it is how the run obeys it."""
    if not run.expired or stops(run, error):
        return error
    is_canceled = isinstance(error, asyncio.CancelledError) and run.entry is not None and run.entry.is_async
    is_hidden = told(error) is not error and isinstance(told(error), TimeLimitExceeded)
    if is_canceled or is_hidden or (run.overdue and isinstance(error, Interrupted | asyncio.CancelledError)):
        full = exceeded(run.limit)
        full.__cause__ = error
        return full
    if isinstance(error, TimeLimitExceeded):  # thrown into a thread, it knows no number
        error.args = exceeded(run.limit).args
    return error
