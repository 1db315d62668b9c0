"""The event loop, in one thread, that runs ``async def`` tasks as coroutines, many at a time.

Each coroutine has its own thread for the synchronous calls of Django's asynchronous ORM, so that transactions of two coroutines never
mix. The connections of that thread are closed in it at the end.

A lane runs at most as many jobs at a time as it has slots, coroutines and plain functions together (see ``worker/running/slots.py``).
Coroutines that were claimed ahead wait for a slot, as plain functions wait for a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext

from jobqueue.db import hygiene
from jobqueue.lifecycle.outcome import Outcome
from jobqueue.worker.forked import drop_at_fork, exit_if_child
from jobqueue.worker.running.executor import execute_async
from jobqueue.worker.running.judging import conclude
from jobqueue.worker.running.run import Run
from jobqueue.worker.running.slots import RunLane

RESPONSE_SECONDS = 0.5
LEFTOVER_SECONDS = 0.2

logger = logging.getLogger("jobqueue")


class Loop:
    """The event loop of a process; it passes each outcome to `put`."""

    def __init__(self, put: Callable[[Run, Outcome], None]) -> None:
        """Prepare the loop; its thread starts with the first coroutine."""
        self._put = put
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._waiting: set[Run] = set()
        self._lanes: set[RunLane] = set()
        self._called: set[RunLane] = set()
        self._unresponsive: list[threading.Event] = []
        self._lag = 0.0
        self._asked_at: float | None = None  # when the call was made that measures the next lag
        drop_at_fork(self)

    @property
    def stuck(self) -> int:
        """The number of threads that a coroutine blocks in an abandoned loop."""
        return sum(not answer.is_set() for answer in list(self._unresponsive))

    def lag_seconds(self) -> float:
        """Return how late the loop ran the call of the last measurement, or how late it already is; begin the next measurement."""
        loop, asked_at, now = self._loop, self._asked_at, time.monotonic()
        if loop is None:
            return 0.0
        if asked_at is not None:
            return max(self._lag, now - asked_at)
        self._asked_at = now
        with contextlib.suppress(RuntimeError):  # it has just ended
            loop.call_soon_threadsafe(self._measure, now)
        return self._lag

    def _measure(self, asked_at: float) -> None:
        self._lag, self._asked_at = time.monotonic() - asked_at, None

    def submit(self, run: Run) -> None:
        """Begin a coroutine task when a slot is free."""
        self._waiting.add(run)
        self._submit(run)

    def take_waiting(self, claimed_before: float) -> list[Run]:
        """Remove and return the runs that were claimed before a time and have not begun."""
        runs = []
        for run in list(self._waiting):
            if run.claimed_at < claimed_before:
                with contextlib.suppress(KeyError):  # it began at this moment
                    self._waiting.remove(run)
                    runs.append(run)
                    if run.lane is not None:
                        run.lane.pool.slots.remove(run)
        return runs

    def replace_if_blocked(self, run: Run | None = None) -> None:
        """Abandon a loop that a coroutine blocks; the coroutines that have not begun run in a new loop, in a new thread.

        If the abandoned `run` has lost its slot, start no new loop and remove one slot.
        """
        if run is not None and run.lane is not None:
            if run.slot_lost:
                run.lane.pool.remove_slot()
            if run.abandoned:
                run.lane.pool.slots.give_up(run)
        if run is not None and run.slot_lost:
            return
        loop, answer = self._loop, threading.Event()
        if loop is None:
            return
        loop.call_soon_threadsafe(answer.set)
        if not answer.wait(RESPONSE_SECONDS):
            logger.error("A coroutine blocks the event loop; coroutines that have not started run in a new one.")
            with self._lock:
                self._loop = self._thread = self._asked_at = None
                self._called.clear()
                for lane in list(self._lanes):
                    lane.pool.slots.forget_coroutines()  # a blocked coroutine does not occupy a slot
                self._unresponsive = [*(event for event in self._unresponsive if not event.is_set()), answer]
            for waiting in sorted(self._waiting, key=lambda run: run.claimed_at):
                self._submit(waiting)

    def stop(self) -> None:
        """End the loop once its tasks have ended or been abandoned."""
        self._stopping = True
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(loop.stop)

    def join(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the thread; return whether it has ended."""
        if self._thread is not None:
            self._thread.join(timeout)
        return self._thread is None or not self._thread.is_alive()

    def _submit(self, run: Run) -> None:
        loop = self._started()
        if (lane := run.lane) is not None:  # now, so that a function that is submitted later does not begin before it
            self._lanes.add(lane)
            lane.pool.slots.add(run, partial(self._begin_when_free, lane))
            if lane in self._called:  # the pending call has not run yet, and will find this run, too
                return
            self._called.add(lane)
        loop.call_soon_threadsafe(self._begin, run)

    def _begin_when_free(self, lane: RunLane) -> None:
        # Without this lock: the caller holds the lock of the slots, which `replace_if_blocked` takes while it holds this one.
        if (loop := self._loop) is not None:
            loop.call_soon_threadsafe(self._begin_late, lane)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._main, args=(self._loop,), name="jobqueue-loop", daemon=True)
                self._thread.start()
            return self._loop

    def _main(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            while not self._stopping and not loop.is_closed():
                try:
                    loop.run_forever()  # a coroutine may stop the loop: start it again
                    exit_if_child(RuntimeError("A child that a coroutine has forked cannot await."))
                except BaseException as error:  # a task that a coroutine created may raise SystemExit through the loop
                    exit_if_child(error)
                    logger.exception("A coroutine raised an exception through the event loop, which continues.")
        finally:
            if self._loop is loop:  # not an abandoned loop
                self._loop = None
            _cancel_leftovers(loop)
            loop.close()
            hygiene.close_all()

    def drop_in_child(self) -> None:
        """Run none of the loop's coroutines in a child that one of them has forked."""
        if (loop := self._loop) is not None:
            loop.stop()
            getattr(loop, "_ready", self._waiting).clear()  # a private attribute of asyncio; without this, due callbacks run once more

    def _begin(self, run: Run) -> None:
        if asyncio.get_running_loop() is not self._loop:  # the loop that replaced this one begins it
            return
        if run.lane is None:
            self._start(run)
        else:
            self._called.discard(run.lane)
            self._begin_late(run.lane)

    def _begin_late(self, lane: RunLane) -> None:
        if asyncio.get_running_loop() is not self._loop:  # this loop was abandoned
            return
        while (run := lane.pool.slots.next(self._waiting)) is not None:
            if not self._start(run):
                lane.pool.slots.end(run)

    def _start(self, run: Run) -> bool:
        try:
            self._waiting.remove(run)
        except KeyError:  # it was handed back meanwhile
            return False
        loop = asyncio.get_running_loop()
        # An empty context, not a copy of the context of the thread that submitted the run.
        task = loop.create_task(self._execute(run), context=contextvars.Context())
        self._tasks.add(task)  # the loop itself keeps only weak references
        # A callback, not a task that waits: a coroutine may cancel all tasks of the loop, and the outcome must still be recorded.
        task.add_done_callback(partial(self._ended, run))
        # Set before the coroutine begins, so that an interrupt that arrived meanwhile is not missed.
        run.cancel_async = partial(loop.call_soon_threadsafe, _cancel, run, task)
        if run.reason is not None:
            task.cancel()
        return True

    def _ended(self, run: Run, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if run.outcome is None:  # canceled before its first line
            run.raised = asyncio.CancelledError()
            run.close()
            run.outcome = conclude(run)
        if not task.cancelled():
            task.exception()  # mark the exception as retrieved, or asyncio logs it
        if not run.abandoned:
            self._put(run, run.take_outcome())
        elif run.slot_lost and run.lane is not None:
            run.lane.pool.restore_slot()
        if run.lane is not None:
            if run.began is not None and run.ended is not None:
                run.lane.pool.record_coroutine(run.ended - run.began)
            run.lane.pool.slots.end(run)
            self._begin_late(run.lane)

    async def _execute(self, run: Run) -> None:
        async with _own_thread(ThreadSensitiveContext()):
            run.outcome = await execute_async(run)  # not the task's result: a task that is canceled in its last step has none


def _cancel(run: Run, task: asyncio.Task[None]) -> None:
    """Cancel a coroutine, unless its task has ended: the code that follows must not be canceled."""
    if not run.closed:
        task.cancel()


def _cancel_leftovers(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the tasks that coroutines have left, and wait up to `LEFT_SECONDS` for them to end."""
    if not (tasks := asyncio.all_tasks(loop)):
        return
    for task in tasks:
        task.cancel()
    with contextlib.suppress(SystemExit, KeyboardInterrupt):
        loop.run_until_complete(asyncio.wait(tasks, timeout=LEFTOVER_SECONDS))


class _own_thread:  # noqa: N801 - a context manager, used like a function
    """The thread of a coroutine for synchronous code; at exit its connections are closed without waiting for it."""

    def __init__(self, context: ThreadSensitiveContext) -> None:
        self._context = context
        self._token: Any = None

    async def __aenter__(self) -> None:
        self._token = SyncToAsync.thread_sensitive_context.set(self._context)

    async def __aexit__(self, *error: object) -> None:
        executor = SyncToAsync.context_to_thread_executor.pop(self._context, None)
        SyncToAsync.thread_sensitive_context.reset(self._token)
        if executor is not None:
            executor.submit(hygiene.close_all)
            executor.shutdown(wait=False)
