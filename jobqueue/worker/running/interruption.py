"""The requests that stop one run, exact against the end of the run.

Other threads can interrupt a run until it is closed. A lock makes that exact. An exception is thrown into the thread only while the
thread is inside this task, and closing takes back an exception that was thrown but not yet raised. A call to the context may hold a
lock that other threads need. So while the task is in such a call, a thrown exception is held back until the call ends.

A time limit stops a run once, with an exception that is an ordinary error. An interrupt stops it for good, and overrides a time limit.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from types import TracebackType

from jobqueue.core.time_limits import exceeded
from jobqueue.exceptions import Interrupted, LeaseLost, TimeLimitExceeded
from jobqueue.worker.forked import drop_at_fork, refuse_in_child
from jobqueue.worker.running.reasons import MESSAGES, Reason


class Interruption:
    """The requests to stop a run, and the thread or coroutine that they stop."""

    # Defaults on the class: most runs end before they need any of them, and creating a run must be cheap.
    reason: Reason | None = None
    interrupted_at = 0.0
    limit: float | None = None
    thread_id: int | None = None
    cancel_async: Callable[[], object] | None = None
    expired = False  # the limit was reached, and the task was notified
    overdue = False  # the task continued for long after that, and the process ends because of it
    thrown = False
    abandoned = False
    closed = False  # nothing can stop the run any more: it is ending by itself, or has ended
    _signal: threading.Event | None = None
    _shielded = _owed = False

    def __init__(self) -> None:
        """Create it without a request."""
        # Reentrant: the garbage collector can run while the lock is held, and what it collects can write to the log (see `shield_log`).
        self.lock = threading.RLock()

    def interrupt(self, reason: Reason) -> bool:
        """Request that the run stops: set the flag, and cancel a coroutine; return whether the request is new."""
        with self.lock:  # against the end of the run, and against a stronger reason at the same time
            if self.closed or (self.reason is not None and self.reason.value >= reason.value):
                return False
            if self.reason is None:
                self.interrupted_at = time.monotonic()
            self.reason = reason
            self._end_waits()
            return True

    def expire(self) -> bool:
        """Notify the run that its time limit is over, unless it is to stop anyway; return whether it was notified."""
        with self.lock:
            if self.closed or self.reason is not None:
                return False
            self.expired = True
            self._end_waits()
            if self.cancel_async is None and self.thread_id is not None:
                self._raise_in_thread(TimeLimitExceeded)
            return True

    def _end_waits(self) -> None:
        if self._signal is not None:
            self._signal.set()
        if self.cancel_async is not None:
            self.cancel_async()

    def withdraw(self) -> None:
        """Withdraw an operator's request that has not reached the task yet."""
        with self.lock:
            if self.reason is Reason.USER and not self.thrown and self.cancel_async is None:
                self.reason = None
                if self._signal is not None:
                    self._signal.clear()

    def throw(self) -> None:
        """Raise the interrupt in the task's thread at its next bytecode, while the thread is inside this task."""
        with self.lock:  # the thread cannot leave the task meanwhile: closing takes this lock
            if not self.closed and self.thread_id is not None and not self.thrown and self.reason is not None:
                self.thrown = True
                self._raise_in_thread(LeaseLost if self.reason is Reason.LOST else Interrupted)

    def _raise_in_thread(self, kind: type[BaseException]) -> None:
        """Raise an exception in the task's thread; the caller holds the lock."""
        if self._shielded:
            self._owed = True
        else:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.thread_id or 0), ctypes.py_object(kind))

    def abandon(self) -> bool:
        """Abandon the run, whose own outcome is then ignored; return False if the run is ending by itself."""
        with self.lock:
            self.abandoned = not self.closed
            return self.abandoned

    def close(self) -> None:
        """End the run: nothing can interrupt it any more; called by the task's own thread."""
        while True:
            try:
                with self.lock:
                    self.closed, inside.run = True, None
                if self.thrown or self.expired:  # perhaps not raised yet: it must not hit the next job
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), None)
            except (Interrupted, TimeLimitExceeded):
                continue  # it was raised here, late: ignore it
            return

    def become_unstoppable(self) -> BaseException | None:
        """Return the exception with which the run is to stop now; from here on an operator cannot withdraw the request."""
        with self.lock:
            self.thrown = self.thrown or self.reason is not None
            return self.due()

    @property
    def is_lost(self) -> bool:
        """Whether the lease was lost, so that another worker may run the job."""
        return self.reason is Reason.LOST

    # What the context needs

    def interruption(self) -> Interrupted | None:
        """Return the exception with which the run is to stop, or None."""
        if self.reason is None:
            return None
        kind = LeaseLost if self.reason is Reason.LOST else Interrupted
        return kind(MESSAGES[self.reason])

    def due(self) -> BaseException | None:
        """Return the exception with which a call to the context must end: the interrupt, or the time limit if it is over by now."""
        return self.interruption() or (exceeded(self.limit) if self._owed else None)

    def shield(self) -> Shield:
        """Return a context manager for jobqueue's code in the task's thread: an exception thrown inside it is raised at its end."""
        return Shield(self)

    def wait(self, seconds: float) -> None:
        """Wait for `seconds`, or until the run is to stop; raise if its time limit is reached meanwhile."""
        with self.shield():
            with self.lock:  # an interrupt between the check and the wait must not be missed
                if self.reason is not None or self._owed:
                    return
                expired = self.expired
                if self._signal is None:
                    self._signal = threading.Event()
                else:
                    self._signal.clear()  # set by a time limit that the task has handled
            self._signal.wait(seconds)
        if self.expired and not expired:  # in a thread that the task has started
            raise exceeded(self.limit)


class _Thread(threading.local):
    """The run whose task the current thread is in."""

    run: Interruption | None = None

    def drop_in_child(self) -> None:
        """Drop the run: a thread of the parent may hold its lock."""
        self.run = None


inside = _Thread()
drop_at_fork(inside)


class Shield:
    """A context manager that holds back an exception thrown into the task's thread, and raises it at its end.

    An exception that was thrown before is raised on the way into it, at the latest when the lock is released.
    """

    __slots__ = ("_is_own", "_run")

    def __init__(self, run: Interruption) -> None:
        """Bind the run."""
        self._run, self._is_own = run, False

    def __enter__(self) -> None:
        refuse_in_child()
        # Exceptions are thrown into no other thread. Inside another shield, the outer shield holds them back.
        if threading.get_ident() != self._run.thread_id or self._run._shielded:
            return
        try:
            with self._run.lock:
                self._run._shielded = self._is_own = True
        except BaseException:
            self._run._shielded = False
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._is_own:
            return
        run = self._run
        with run.lock:
            due = run.due() if run._owed else None
            run._shielded = run._owed = False
        if due is not None and not isinstance(error, Interrupted | TimeLimitExceeded):
            raise due
