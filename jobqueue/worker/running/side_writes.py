"""Errands: small transactions that a run needs done outside of its task's transactions, by a thread that has a connection for them.

The run waits for the answer. Several threads or coroutines of a run may ask at once: their errands are done one after the other, in the
order in which they were asked for, and none is taken once the run has ended. An errand may be done again, since a connection can be lost
between the commit and its answer, and is put off while somebody has locked the job's row. A run that is told to stop does not wait for
long.
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
PATIENCE_SECONDS = 1.0  # of a run that was told to stop
OVER = "The run has ended, so nothing more is kept for it. Let a phase end its threads and coroutines before it returns."
T = TypeVar("T")


class SideWrite(Generic[T]):
    """Do `work` once there is a thread for it; `future` has the answer."""

    def __init__(self, work: Callable[[], T]) -> None:
        """Keep what is to be done."""
        self._work = work
        self.future: Future[T] = Future()

    def attempt(self) -> bool:
        """Try it; return False where it is to be tried again. Raise errors of the connection, after which it is, too."""
        if self.future.done():
            return True
        with contextlib.suppress(InvalidStateError):  # nobody waits for it any longer
            try:
                answer = self._work()
            except Locked:
                return False
            except BaseException as error:  # SystemExit and the like, too: it would come again and again
                if db.is_connection_error(error):
                    raise
                self.future.set_exception(error)
            else:
                self.future.set_result(answer)
        return True


def send(run: Run, work: Callable[[], T]) -> Future[T]:
    """Have something done for a run, after what was asked for before; return where the answer comes."""
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
    """Do a run's errands in order; return False where one, and all behind it, are for later."""
    while run.errands:
        errand = run.errands[0]
        if not errand.attempt():
            return False
        with contextlib.suppress(ValueError):  # another thread did it at the same time
            run.errands.remove(errand)
    return True


def refuse_left(run: Run) -> None:
    """Answer those who still wait for an errand of a run that has ended: nobody would do it any more."""
    while run.closed and run.errands:
        with contextlib.suppress(IndexError, InvalidStateError):  # done at this moment
            run.errands.popleft().future.set_exception(JobQueueError(OVER))


def wait_for(run: Run, future: Future[T]) -> T:
    """Return the answer; raise what the run is to be stopped with where that comes first."""
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
    """Have something done for a run of a coroutine; return the answer."""
    import asyncio

    future: Any = await sync_to_async(send)(run, work)
    answer: T = await asyncio.wrap_future(future)
    return answer
