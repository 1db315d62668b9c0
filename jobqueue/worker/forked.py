"""Forks in tasks: the child of a fork must never return into the code of the worker, where it would run the jobs of its parent.

In a worker process, `watch` makes the child of each fork drop the connections, locks, signal handlers and log thread of its parent.
The connections are not closed, since the parent still uses them. The child is marked, and ends when it leaves the code of the task.
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
    """Whether this process watches its forks, and whether it is a forked child."""

    is_watched = False
    is_child = False


_state = _State()
_drops: weakref.WeakSet[Any] = weakref.WeakSet()


def watch(*holders: Any) -> None:
    """Prevent forked children of this process from working as workers; a child calls `drop_in_child` of each holder."""
    _drops.update(holders)
    if not _state.is_watched:
        _state.is_watched = True
        os.register_at_fork(after_in_child=_become_no_worker)


def drop_at_fork(holder: Any) -> None:
    """Call the method `drop_in_child` of an object in each forked child."""
    _drops.add(holder)


def is_child() -> bool:
    """Return whether this process was forked from a worker."""
    return _state.is_child


def exit_if_child(error: BaseException | None = None) -> None:
    """End this process at once if it was forked from a worker, with the status that `error` implies."""
    if _state.is_child:
        os._exit(status_of(error))


def refuse_in_child() -> None:
    """Raise JobQueueError if this process was forked from a worker: the threads that serve the context of a task do not exist in it."""
    if _state.is_child:
        raise JobQueueError("This process was forked by a task: only the task's own process can use its context. Report to it, or spawn.")


def _become_no_worker() -> None:
    """Drop what belongs to the parent, without taking a lock: the thread that holds it may not exist in this process."""
    _state.is_child = True
    signal.set_wakeup_fd(-1)
    for number in NUMBERS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    dropping.drop_connections()
    for holder in list(_drops):
        holder.drop_in_child()
    _detach_executor()


def _detach_executor() -> None:
    """Make the process end when a function of a `ThreadPoolExecutor` returns, such as one of ``asyncio.to_thread``.

    Otherwise its thread would wait for ever.
    """
    frame = sys._getframe()
    while (above := frame.f_back) is not None:
        frame = above
        if frame.f_code is executors._WorkItem.run.__code__:
            frame.f_locals["self"].future = _Leaving()


class _Leaving:
    """A replacement for a future whose waiting thread exists only in the parent process."""

    def set_result(self, result: object) -> None:
        """End the process."""
        os._exit(0)

    def set_exception(self, exception: BaseException | None) -> None:
        """End the process with the status of an exception."""
        os._exit(status_of(exception))
