"""Keep exceptions that are thrown into a task's thread out of jobqueue's code and out of the handlers of the log.

They could arrive while the thread holds a lock that other threads need, and those threads would wait forever. Also, a log handler takes
any exception for an error of its own, prints it and continues, so the task would never get it.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from jobqueue.exceptions import Interrupted, TimeLimitExceeded
from jobqueue.worker.forked import drop_at_fork, refuse_in_child

if TYPE_CHECKING:
    from jobqueue.worker.running.run import Run


class _Thread(threading.local):
    """The run whose task the current thread is in."""

    run: Run | None = None

    def drop_in_child(self) -> None:
        """Drop the run: a thread of the parent may hold its lock."""
        self.run = None


inside = _Thread()
drop_at_fork(inside)
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


class Shield:
    """A context manager that holds back an exception thrown into the task's thread, and raises it at its end.

    An exception that was thrown before is raised on the way into it, at the latest when the lock is released.
    """

    __slots__ = ("_is_own", "_run")

    def __init__(self, run: Run) -> None:
        """Bind the run."""
        self._run, self._is_own = run, False

    def __enter__(self) -> None:
        refuse_in_child()
        # Exceptions are thrown into no other thread. Inside another shield, the outer shield holds them back.
        if threading.get_ident() != self._run.thread_id or self._run._shielded:
            return
        try:
            with self._run._lock:
                self._run._shielded = self._is_own = True
        except BaseException:
            self._run._shielded = False
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._is_own:
            return
        run = self._run
        with run._lock:
            due = run.due() if run._owed else None
            run._shielded = run._owed = False
        if due is not None and not isinstance(error, Interrupted | TimeLimitExceeded):
            raise due
