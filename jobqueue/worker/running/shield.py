"""Keep exceptions that are thrown into a task's thread out of our own code, and out of the handlers of the log.

There they could come while it has a lock that other threads need, which would then wait for ever. A handler, moreover, takes any exception
for a fault of its own, prints it and goes on, so that the task would never see it.
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
    """Know the run whose task this thread is in."""

    run: Run | None = None

    def drop_in_child(self) -> None:
        """Forget the run: its lock may be held by a thread of the parent."""
        self.run = None


inside = _Thread()
drop_at_fork(inside)
SHIELDED = ((logging.Handler, "handle"), (logging.Manager, "getLogger"))
MARK = "_jobqueue_shielded"


def shield_log() -> None:
    """Let every record of this process be written, and every logger be found, before what is thrown into the thread is raised."""
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
    """Hold back what is thrown into the task's thread during a call; it is raised at its end.

    One that was thrown before the call is raised on the way into it, at the latest when the lock is left.
    """

    __slots__ = ("_is_own", "_run")

    def __init__(self, run: Run) -> None:
        """Bind the run."""
        self._run, self._is_own = run, False

    def __enter__(self) -> None:
        refuse_in_child()
        # Nothing is ever thrown into another thread. Inside of a shield, the outer one holds back.
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
