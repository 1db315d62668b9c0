"""A fence for one thread: a question that each of its transactions asks first, and that ends the transaction where the answer is no."""

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
    """Let `check` run at the start of each transaction that this thread opens with ``atomic()``; it raises to refuse it."""
    before, _thread.check = _thread.check, check
    try:
        yield
    finally:
        _thread.check = before


@contextlib.contextmanager
def passed() -> Iterator[None]:
    """Surround what is written in a transaction: the thread's question, where it has one, is asked before any other statement.

    Once: what is opened inside of it are savepoints of the same transaction.
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
