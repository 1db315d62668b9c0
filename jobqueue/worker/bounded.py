"""Call code of the project from a thread that must not wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from jobqueue.db import hygiene
from jobqueue.forks import guarded

T = TypeVar("T")


def call_within(seconds: float, function: Callable[[], T]) -> T:
    """Return what a function returns, called in a thread of its own; raise what it raises, or TimeoutError after these seconds."""
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
    thread.join(seconds)
    if not done:
        raise TimeoutError(f"It has not returned after {seconds:g} s.")
    value, error = done[0]
    if error is not None:
        raise error
    found: T = value
    return found
