"""Exceptions in groups: `asyncio.TaskGroup` wraps whatever is raised in it, what steers the run included.

A group acts as the strongest of these among its leaves: an interrupt, a suspension, `Fatal`, `Retry`, the time limit. Any other group is a
failure like any other exception, and `retry_on` matches it if it matches the group itself or each of its leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from jobqueue.exceptions import Fatal, Interrupted, Retry, Suspended, TimeLimitExceeded
from jobqueue.worker.limits import told

BY_STRENGTH = ((Interrupted, asyncio.CancelledError), Suspended, Fatal, Retry, TimeLimitExceeded)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in a group and in the groups in it; an exception that is no group is its own leaf."""
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if isinstance(one, BaseExceptionGroup):
            waiting.extend(reversed(one.exceptions))
        else:
            yield told(one) or one  # an error of the database may be what became of an interrupt


def acting(error: BaseException) -> BaseException:
    """Return the exception that decides what becomes of a run: the strongest leaf of a group that steers it, else itself."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    found = list(leaves(error))
    return next((one for kind in BY_STRENGTH for one in found if isinstance(one, kind)), error)


def matches(error: BaseException, kinds: tuple[type[BaseException], ...]) -> bool:
    """Return whether an exception, or each leaf of a group, is of one of these classes."""
    return isinstance(error, kinds) or (isinstance(error, BaseExceptionGroup) and all(isinstance(one, kinds) for one in leaves(error)))
