"""A task may fork. Its child must never come back into the worker: it would run the jobs that its copy of the worker holds.

In a worker process, `watch` has the child of each fork drop what belongs to its parent: connections and locks (not closed: the parent still
uses them), signal handlers, the thread of the log. The child is marked, and whatever leads out of a task's code ends it.
"""

from __future__ import annotations

import concurrent.futures.thread as executors
import os
import signal
import sys
import weakref
from typing import Any

from jobqueue.core.forks import status_of
from jobqueue.db import dropping
from jobqueue.exceptions import JobQueueError
from jobqueue.worker.handlers import NUMBERS


class _State:
    """What this process is."""

    is_watched = False
    is_child = False


_state = _State()
_drops: weakref.WeakSet[Any] = weakref.WeakSet()


def watch(*holders: Any) -> None:
    """Have the children of this process's forks become no workers; they call `drop_in_child` of each of these."""
    _drops.update(holders)
    if not _state.is_watched:
        _state.is_watched = True
        os.register_at_fork(after_in_child=_become_no_worker)


def drop_at_fork(holder: Any) -> None:
    """Call the method `drop_in_child` of an object in each child."""
    _drops.add(holder)


def leave_if_child(error: BaseException | None = None) -> None:
    """End this process at once if it was forked from a worker."""
    if _state.is_child:
        os._exit(status_of(error))


def refuse_in_child() -> None:
    """Raise JobQueueError if this process was forked from a worker: the threads that do what a context asks for are not there."""
    if _state.is_child:
        raise JobQueueError("This process was forked by a task: only the task's own process can use its context. Report to it, or spawn.")


def _become_no_worker() -> None:
    """Drop what belongs to the parent. Nothing here takes a lock: the thread that has it may not exist in this process."""
    _state.is_child = True
    signal.set_wakeup_fd(-1)
    for number in NUMBERS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    dropping.drop_connections()
    for holder in list(_drops):
        holder.drop_in_child()
    _leave_executor()


def _leave_executor() -> None:
    """End the process where a function of a `ThreadPoolExecutor` returns (as of ``asyncio.to_thread``): its thread would wait for ever."""
    frame = sys._getframe()
    while (above := frame.f_back) is not None:
        frame = above
        if frame.f_code is executors._WorkItem.run.__code__:
            frame.f_locals["self"].future = _Leaving()


class _Leaving:
    """What stands in for a future whose waiter is another process."""

    def set_result(self, result: object) -> None:
        """End the process."""
        os._exit(0)

    def set_exception(self, exception: BaseException | None) -> None:
        """End the process with the status of an exception."""
        os._exit(status_of(exception))
