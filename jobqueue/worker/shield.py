"""Keep exceptions that are thrown into a task's thread out of our own code.

There they could come while it has a lock that other threads need, which would then wait for ever.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING

from jobqueue.exceptions import Interrupted, TimeLimitExceeded

if TYPE_CHECKING:
    from jobqueue.worker.run import Run


class Shield:
    """Hold back what is thrown into the task's thread during a call; it is raised at its end.

    One that was thrown before the call is raised on the way into it, at the latest when the lock is left.
    """

    __slots__ = ("_is_own", "_run")

    def __init__(self, run: Run) -> None:
        """Bind the run."""
        self._run, self._is_own = run, False

    def __enter__(self) -> None:
        if threading.get_ident() != self._run.thread_id:  # nothing is ever thrown into another thread
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
