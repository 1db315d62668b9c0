"""Side writes: small transactions that a run needs outside of its task's transactions; a thread with a connection executes them.

The run waits for the response. Several threads or coroutines of a run may request side writes at once. They are executed one after the
other, in the order of the requests. None is accepted once the run has ended. A side write may be executed again, since a connection can
be lost between the commit and its response. It is postponed while another transaction has locked the job's row. A run that is to stop
waits at most `PATIENCE_SECONDS`.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import Any, Generic, TypeVar

from jobqueue import db
from jobqueue.exceptions import JobQueueError
from jobqueue.lifecycle.guard import Locked
from jobqueue.worker.running.interruption import Interruption

CHECK_SECONDS = 0.1
PATIENCE_SECONDS = 1.0  # how long a run that is to stop waits
OVER = "The run has ended, so its values can no longer be stored. A phase must end its threads and coroutines before it returns."
T = TypeVar("T")


class SideWrite(Generic[T]):
    """A call to `work` that waits for a thread; `future` receives the result."""

    def __init__(self, work: Callable[[], T]) -> None:
        """Store the function to call."""
        self._work = work
        self.future: Future[T] = Future()

    def attempt(self) -> bool:
        """Call the function; return False, or raise an error of the connection, if it is to be tried again."""
        if self.future.done():
            return True
        with contextlib.suppress(InvalidStateError):  # no caller waits for it any longer
            try:
                answer = self._work()
            except Locked:
                return False
            except BaseException as error:  # also SystemExit and the like: it would be raised again at each attempt
                if db.is_connection_error(error):
                    raise
                self.future.set_exception(error)
            else:
                self.future.set_result(answer)
        return True


class SideWrites:
    """The side writes of one run that are not done yet, in order."""

    def __init__(self) -> None:
        """Create an empty queue."""
        self._queue: deque[SideWrite[Any]] = deque()

    @property
    def are_waiting(self) -> bool:
        """Whether there are any."""
        return bool(self._queue)

    def add(self, work: Callable[[], T]) -> Future[T]:
        """Queue a side write; return the future of its result. The caller holds the lock of the run."""
        side_write = SideWrite(work)
        self._queue.append(side_write)
        return side_write.future

    def attempt_all(self) -> bool:
        """Execute the side writes in order; return False if one, and all after it, are to be tried again."""
        while self._queue:
            side_write = self._queue[0]
            if not side_write.attempt():
                return False
            with contextlib.suppress(ValueError):  # another thread removed it at the same time
                self._queue.remove(side_write)
        return True

    def refuse_left(self) -> None:
        """Reject the remaining side writes of a run that has ended: no thread would execute them any more."""
        while self._queue:
            with contextlib.suppress(IndexError, InvalidStateError):  # done at this moment
                self._queue.popleft().future.set_exception(JobQueueError(OVER))


def wait_for(run: Interruption, future: Future[T]) -> T:
    """Return the result; if the run is to stop before that, raise the exception with which it stops."""
    stopping_since = None
    while True:
        try:
            return future.result(CHECK_SECONDS)
        except (TimeoutError, CancelledError):
            if future.done() and not future.cancelled():  # the work itself raised it
                raise
        due = run.due()
        stopping_since = None if due is None else stopping_since or time.monotonic()
        if due is not None and (run.is_lost or time.monotonic() - (stopping_since or 0.0) >= PATIENCE_SECONDS):
            future.cancel()
            raise due
