"""Results that a process keeps for a few seconds, so that many open pages cost the database what one costs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakSet

T = TypeVar("T")
MAX_KEPT = 200


class Recent:
    """Results by key, each kept for a number of seconds. Threads that ask for the same key at once share one call."""

    def __init__(self, seconds: float) -> None:
        """Create it empty."""
        self.seconds = seconds
        self._results: dict[Hashable, tuple[float, Any]] = {}
        self._locks: dict[Hashable, threading.Lock] = {}
        _all.add(self)

    def __call__(self, key: Hashable, function: Callable[[], T]) -> T:
        """Return the result for a key, by a call of the function if there is none; what it raises is not kept."""
        with self._locks.setdefault(key, threading.Lock()):
            kept = self._results.get(key)
            if kept is not None and time.monotonic() < kept[0]:
                result: T = kept[1]
                return result
            result = function()
            if len(self._results) >= MAX_KEPT:
                self.clear()
            self._results[key] = (time.monotonic() + self.seconds, result)
            return result

    def clear(self) -> None:
        """Forget all results."""
        self._results.clear()
        self._locks.clear()


_all: WeakSet[Recent] = WeakSet()


def forget() -> None:
    """Forget what this process keeps, as tests do before each other."""
    for recent in _all:
        recent.clear()
