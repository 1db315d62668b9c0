"""Results that a process keeps for a few seconds, so that many open pages cost the database what one costs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")
MAX_KEPT = 500

_results: dict[Hashable, tuple[float, Any]] = {}
_locks: dict[Hashable, threading.Lock] = {}


def kept(key: Hashable, seconds: float, function: Callable[[], T]) -> T:
    """Return the result of a function, which is called again after a number of seconds; what it raises is not kept.

    Threads that ask for the same key at once share one call. The key must contain all that the result depends on: the
    database and its schema (`Database.scope`), and what the user may see.
    """
    with _locks.setdefault(key, threading.Lock()):
        known = _results.get(key)
        if known is not None and time.monotonic() < known[0]:
            result: T = known[1]
            return result
        result = function()
        _drop_old()
        _results[key] = (time.monotonic() + seconds, result)
        return result


def _drop_old() -> None:
    """Drop the results that are too old, so that the results of many tenants do not fill the memory."""
    now = time.monotonic()
    for key, (until, _) in list(_results.items()):
        if until <= now:
            _results.pop(key, None)
            _locks.pop(key, None)  # a thread that still waits for it makes one more call
    if len(_results) >= MAX_KEPT:
        forget()


def forget() -> None:
    """Forget all results, as tests do before each other."""
    _results.clear()
    _locks.clear()
