"""A fence for a thread: a check that runs at the start of each transaction of the thread. If it fails, the transaction ends."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


class _Thread(threading.local):
    check: Callable[[], None] | None = None
    inside = False


_thread = _Thread()


@contextlib.contextmanager
def fenced(check: Callable[[], None]) -> Iterator[None]:
    """Run `check` at the start of each transaction that this thread opens with ``atomic()``; it raises to refuse the transaction."""
    before, _thread.check = _thread.check, check
    try:
        yield
    finally:
        _thread.check = before


@contextlib.contextmanager
def passed() -> Iterator[None]:
    """Run the thread's check, if it has one, before the first statement of a transaction.

    The check runs once: nested blocks are savepoints of the same transaction.
    """
    if _thread.check is None or _thread.inside:
        yield
        return
    _thread.inside = True
    try:
        _thread.check()
        yield
    finally:
        _thread.inside = False
