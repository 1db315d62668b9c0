"""Call code of the project from a thread that must not wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from jobqueue.core.forks import guarded
from jobqueue.db import hygiene

T = TypeVar("T")


class Calls:
    """Calls by key. One that has not returned is not made again, so that a call that hangs costs its time and its thread once."""

    def __init__(self, seconds: float) -> None:
        """Begin with none; each call may take this long."""
        self.seconds = seconds
        self._threads: dict[Hashable, threading.Thread] = {}

    def __call__(self, key: Hashable, function: Callable[[], T]) -> T:
        """Return what a function returns, called in a thread of its own; raise what it raises, or TimeoutError."""
        before = self._threads.pop(key, None)
        if before is not None and before.is_alive():
            self._threads[key] = before
            raise TimeoutError("Its last call has not returned yet.")
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
    """Return what a function returns, called in a thread of its own; raise what it raises, or TimeoutError after these seconds."""
    return Calls(seconds)(None, function)
