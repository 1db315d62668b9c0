"""Find the exceptions that steer a run inside other exceptions: in the groups of `asyncio.TaskGroup`, and behind ``raise … from``.

An exception acts as the strongest of these that it contains: an interrupt, a suspension, `Fatal`, `Retry`, the time limit. It contains
the members of a group and what it was raised from, at any depth. Any other exception is a failure. `retry_on` matches a group if it
matches the group itself or each of its leaves.

An exception does not contain what was merely being handled when it was raised (`__context__`). It also does not contain what a library
turned into an error of its own: ``asyncio.timeout`` raises TimeoutError from CancelledError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

from django.db import InterfaceError, InternalError, OperationalError, ProgrammingError

from jobqueue.exceptions import Fatal, Interrupted, Retry, Suspended, TimeLimitExceeded

BY_STRENGTH: tuple[tuple[type[BaseException], ...], ...] = (
    (Interrupted, asyncio.CancelledError),
    (Suspended,),
    (Fatal,),
    (Retry,),
    (TimeLimitExceeded,),
)
# The errors of a connection that was cut off in the middle of a statement; errors of the data are not among them.
OF_CONNECTIONS = (ProgrammingError, OperationalError, InterfaceError, InternalError)
MAX_CHAIN = 20


def thrown(error: BaseException | None) -> BaseException | None:
    """Return the exception that was thrown into the task if an error of its database hides it; otherwise return the error itself.

    An exception that is thrown in the middle of a statement makes the connection unusable. Ending the transaction then fails with an error
    of its own, which replaces the exception that is being raised.
    """
    connection_error: BaseException | None = error if isinstance(error, OF_CONNECTIONS) else None
    for _ in range(MAX_CHAIN):
        connection_error = connection_error and connection_error.__context__
        if isinstance(connection_error, Interrupted | TimeLimitExceeded):
            return connection_error
    return error


class Decisive(NamedTuple):
    """The exception that decides how a run ends, and the one to show: the exception outside of all groups that contains it."""

    error: BaseException
    shown: BaseException


def decisive(raised: BaseException, *, stopping: bool = False) -> Decisive:
    """Return the exception that decides how a run ends; if the run is `stopping`, an error raised from a cancellation counts as one."""
    candidates: list[tuple[int, Decisive]] = []
    seen: set[int] = set()
    waiting = [(raised, raised, False)]
    while waiting:
        error, shown, is_cause = waiting.pop()
        if id(error) in seen:  # a chain of causes may be a ring
            continue
        seen.add(id(error))
        if isinstance(error, BaseExceptionGroup):
            waiting += [(each, shown if is_cause else each, is_cause) for each in reversed(error.exceptions)]
        else:
            steers = error if error is raised else thrown(error) or error  # an error of the database may hide an interrupt
            if (rank := _rank(steers, is_cause=is_cause, stopping=stopping)) is not None:
                candidates.append((rank, Decisive(steers, shown if is_cause else steers)))
                continue
        if error.__cause__ is not None:
            waiting.append((error.__cause__, shown, True))
    return min(candidates, key=lambda item: item[0])[1] if candidates else Decisive(raised, raised)


def _rank(error: BaseException, *, is_cause: bool, stopping: bool) -> int | None:
    if is_cause and (isinstance(error, TimeLimitExceeded) or (isinstance(error, asyncio.CancelledError) and not stopping)):
        return None
    return next((rank for rank, kind in enumerate(BY_STRENGTH) if isinstance(error, kind)), None)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the leaves of a group and of the groups in it; an exception that is not a group is its own leaf."""
    waiting = [error]
    while waiting:
        exception = waiting.pop()
        if isinstance(exception, BaseExceptionGroup):
            waiting.extend(reversed(exception.exceptions))
        else:
            yield thrown(exception) or exception  # an error of the database may hide an interrupt


def matches(error: BaseException, kinds: tuple[type[BaseException], ...]) -> bool:
    """Return whether an exception, or each leaf of a group, is an instance of one of these classes."""
    return isinstance(error, kinds) or (isinstance(error, BaseExceptionGroup) and all(isinstance(leaf, kinds) for leaf in leaves(error)))
