"""Decide whether the exception of a task is its time limit or an interrupt. An interrupt overrides a time limit."""

from __future__ import annotations

import asyncio

from django.db import InterfaceError, InternalError, OperationalError, ProgrammingError

from jobqueue.core.time_limits import exceeded
from jobqueue.exceptions import Interrupted, TimeLimitExceeded
from jobqueue.worker.running.run import Reason, Run

# The errors of a connection that was cut off in the middle of a statement; errors of the data are not among them.
OF_CONNECTIONS = (ProgrammingError, OperationalError, InterfaceError, InternalError)
MAX_CHAIN = 20


def told(error: BaseException | None) -> BaseException | None:
    """Return the exception that was thrown into the task if an error of its database hides it; otherwise return the error itself.

    An exception that is thrown in the middle of a statement makes the connection unusable. Ending the transaction then fails with an error
    of its own, which replaces the exception that is being raised.
    """
    found: BaseException | None = error if isinstance(error, OF_CONNECTIONS) else None
    for _ in range(MAX_CHAIN):
        found = found and found.__context__
        if isinstance(found, Interrupted | TimeLimitExceeded):
            return found
    return error


def stops(run: Run, error: BaseException | None) -> bool:
    """Return whether an exception shows that the run obeyed its interrupt."""
    if run.reason is None or (run.overdue and run.reason is Reason.SHUTDOWN):  # this run caused the shutdown
        return False
    return isinstance(told(error), Interrupted | asyncio.CancelledError | TimeLimitExceeded)


def limited(run: Run, error: BaseException) -> BaseException:
    """Return the exception of a task; if it shows that the run obeyed its time limit, return that of the time limit with its full text."""
    if not run.expired or stops(run, error):
        return error
    is_canceled = isinstance(error, asyncio.CancelledError) and run.entry is not None and run.entry.is_async
    is_hidden = told(error) is not error and isinstance(told(error), TimeLimitExceeded)
    if is_canceled or is_hidden or (run.overdue and isinstance(error, Interrupted | asyncio.CancelledError)):
        full = exceeded(run.limit)
        full.__cause__ = error
        return full
    if isinstance(error, TimeLimitExceeded):  # it was thrown into a thread without the number of seconds
        error.args = exceeded(run.limit).args
    return error
