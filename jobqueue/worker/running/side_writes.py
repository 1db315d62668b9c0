"""Side writes: small transactions that a run needs outside of its task's transactions; a thread with a connection executes them.

The run waits for the response. Several threads or coroutines of a run may request side writes at once: they are executed one after the
other, in the order of the requests, and none is accepted once the run has ended. A side write may be executed again, since a connection
can be lost between the commit and its response. It is postponed while another transaction has locked the job's row. A run that is to
stop waits at most `PATIENCE_SECONDS`.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from asgiref.sync import sync_to_async

from jobqueue import db
from jobqueue.exceptions import JobQueueError
from jobqueue.lifecycle.guard import Locked
from jobqueue.worker.forked import refuse_in_child

if TYPE_CHECKING:
    from jobqueue.worker.running.run import Run

LOOK_SECONDS = 0.1
PATIENCE_SECONDS = 1.0  # how long a run that is to stop waits
OVER = "The run has ended, so its values can no longer be stored. Let a phase end its threads and coroutines before it returns."
T = TypeVar("T")


class SideWrite(Generic[T]):
    """A call of `work` that waits for a thread; `future` receives the result."""

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


def send(run: Run, work: Callable[[], T]) -> Future[T]:
    """Queue a side write of a run, after its earlier ones; return the future of its result."""
    refuse_in_child()
    errand = SideWrite(work)
    with run._lock:
        if run.closed:
            raise JobQueueError(OVER)
        if run.errands is None:
            run.errands = deque()
        run.errands.append(errand)
    run.flush(run)
    return errand.future


def attempt_all(run: Run) -> bool:
    """Execute a run's side writes in order; return False if one, and all after it, are to be tried again."""
    while run.errands:
        errand = run.errands[0]
        if not errand.attempt():
            return False
        with contextlib.suppress(ValueError):  # another thread removed it at the same time
            run.errands.remove(errand)
    return True


def refuse_left(run: Run) -> None:
    """Reject the remaining side writes of a run that has ended: no thread would execute them any more."""
    while run.closed and run.errands:
        with contextlib.suppress(IndexError, InvalidStateError):  # done at this moment
            run.errands.popleft().future.set_exception(JobQueueError(OVER))


def wait_for(run: Run, future: Future[T]) -> T:
    """Return the result; if the run is to stop before that, raise the exception with which it stops."""
    told_at = None
    while True:
        try:
            return future.result(LOOK_SECONDS)
        except (TimeoutError, CancelledError):
            if future.done() and not future.cancelled():  # the work itself raised it
                raise
        due = run.due()
        told_at = None if due is None else told_at or time.monotonic()
        if due is not None and (run.is_lost or time.monotonic() - (told_at or 0.0) >= PATIENCE_SECONDS):
            future.cancel()
            raise due


async def do_async(run: Run, work: Callable[[], T]) -> T:
    """Execute a side write for the run of a coroutine; return its result."""
    import asyncio

    future: Any = await sync_to_async(send)(run, work)
    answer: T = await asyncio.wrap_future(future)
    return answer
