"""Calls to the project's code from a thread that must not wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from jobqueue.core.forks import guarded
from jobqueue.db import hygiene

T = TypeVar("T")


class Calls:
    """A register of calls by key: a hanging call is not repeated, so it occupies only one thread."""

    def __init__(self, seconds: float) -> None:
        """Create it without calls; each call may take this many seconds."""
        self.seconds = seconds
        self._threads: dict[Hashable, threading.Thread] = {}

    def __call__(self, key: Hashable, function: Callable[[], T]) -> T:
        """Call a function in a thread of its own and return its result; raise what it raises, or TimeoutError."""
        before = self._threads.pop(key, None)
        if before is not None and before.is_alive():
            self._threads[key] = before
            raise TimeoutError("The previous call has not returned yet.")
        done: list[tuple[Any, BaseException | None]] = []

        def call() -> None:
            try:
                done.append((guarded(function)(), None))
            except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits
                done.append((None, error))
            finally:
                hygiene.close_all()

        thread = threading.Thread(target=call, name="jobqueue-bounded", daemon=True)
        thread.start()
        thread.join(self.seconds)
        if not done:
            self._threads[key] = thread
            raise TimeoutError(f"It has not returned after {self.seconds:g} s.")
        value, error = done[0]
        if error is not None:
            raise error
        found: T = value
        return found


def call_within(seconds: float, function: Callable[[], T]) -> T:
    """Call a function in a thread of its own and return its result; raise what it raises, or TimeoutError after `seconds`."""
    return Calls(seconds)(None, function)
