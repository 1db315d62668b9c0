"""Keep exceptions that are thrown into a task's thread out of the handlers of the log.

They could arrive while the thread holds a lock that other threads need, and those threads would wait forever. Also, a log handler takes
any exception for an error of its own, prints it and continues, so the task would never get it.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from jobqueue.worker.running.interruption import inside

SHIELDED = ((logging.Handler, "handle"), (logging.Manager, "getLogger"))
MARK = "_jobqueue_shielded"


def shield_log() -> None:
    """Hold back exceptions that are thrown into the thread while it writes a log record or gets a logger, in this process."""
    for kind, name in SHIELDED:
        original = getattr(kind, name)
        if not hasattr(original, MARK):
            setattr(kind, name, _shielded(original))


def _shielded(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        run = inside.run
        if run is None:
            return original(*args, **kwargs)
        with run.shield():
            return original(*args, **kwargs)

    setattr(call, MARK, True)
    return call
