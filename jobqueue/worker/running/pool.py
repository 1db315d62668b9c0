"""The threads that run plain functions, at most one for each slot.

Claimed runs wait in one queue. A thread starts when the runs that wait or run outnumber the threads. Slots that coroutines use, and
unused slots, have no thread.

When the pool shrinks, it puts a stop sentinel into the queue for each surplus thread. An idle thread exits when it takes a sentinel.
A pool that grows again cancels the sentinels that no thread has taken, so the number of working threads never exceeds the size.

A thread that does not react to an interrupt is abandoned: it is stuck until its task returns. A new thread takes its place, which keeps
the capacity. If no new thread is allowed, the pool has one slot less until the task returns.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable

from jobqueue.db import hygiene
from jobqueue.lifecycle.outcome import Outcome
from jobqueue.worker.forked import exit_if_child
from jobqueue.worker.running.executor import execute
from jobqueue.worker.running.run import Run
from jobqueue.worker.running.slots import Slots

TIDY_SECONDS = 5.0

logger = logging.getLogger("jobqueue")


class Pool:
    """A pool of threads that run the submitted runs; it passes each outcome to `put`."""

    def __init__(self, put: Callable[[Run, Outcome], None]) -> None:
        """Create a pool without slots; `resize` adds slots, and `submit` starts threads."""
        self._report_outcome = put
        self._queue: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._number = 0
        self._completed = 0
        self._worked_seconds = 0.0
        self._serving = 0  # the threads in service: neither abandoned nor asked to exit
        self._exiting = 0  # of the other threads, those that exit once they are idle
        self._submitted = self._taken_back = 0
        self.size = 0
        self.stuck = 0
        self.blocked_slots = 0  # slots of abandoned runs that no new thread has replaced
        self._closed = False
        self.slots: Slots[Run] = Slots(lambda: self.size)

    @property
    def waiting(self) -> int:
        """The number of runs that wait for a thread."""
        return self._queue.qsize() + self.slots.held

    @property
    def threads(self) -> int:
        """The number of threads: in service, about to exit, and abandoned."""
        return len(self._threads)

    @property
    def completed(self) -> int:
        """The number of runs that have ended since the start."""
        return self._completed

    @property
    def worked_seconds(self) -> float:
        """The total duration in seconds of all runs that have ended."""
        return self._worked_seconds

    def record_coroutine(self, seconds: float) -> None:
        """Record a coroutine that has ended after `seconds` in one of the slots; the rate of prefetching uses this."""
        self._worked_seconds += seconds
        self._completed += 1

    def resize(self, size: int) -> None:
        """Set the number of slots; surplus threads exit once they are idle, and a busy thread is never cut off."""
        with self._lock:  # the scaler, the interrupter and the supervisor change the number
            self._closed = size == 0
            self._resize(size)

    def _resize(self, size: int) -> None:
        self.size = size
        restarting = min(self._exiting, max(size - self._serving, 0))
        self._exiting -= restarting
        self._serving += restarting
        while self._serving > size:
            self._serving -= 1
            self._exiting += 1
            self._queue.put(None)
        self._spawn_missing()

    def _spawn_missing(self) -> None:
        """Start the missing threads; the caller holds the lock.

        Count the runs that were submitted and have not ended, not the idle threads. A thread that has just taken a run seems idle for a
        moment. The next run would then wait for it although a slot is free.
        """
        while self._serving < min(self.size, self._submitted - self._taken_back - self.slots.ended):
            try:
                self._start()
            except Exception as error:  # noqa: BLE001 - callers of `submit` still have runs to register and outcomes to write
                logger.error("Cannot start a thread: running with %d of %d slots: %s", self._serving, self.size, error)
                self.size = self._serving  # until the pool is resized
                return

    def submit(self, runs: list[Run]) -> None:
        """Queue runs, in order."""
        for run in runs:
            self._queue.put(run)
        with self._lock:  # `resize` and `abandon_thread` count and start threads, too
            self._submitted += len(runs)
            self._spawn_missing()

    def take_waiting(self, claimed_before: float) -> list[Run]:
        """Remove and return the runs that were claimed before a time and have not begun."""
        held = self.slots.take_held(claimed_before)
        queued: list[Run | None] = []
        try:
            while True:
                run = self._queue.get_nowait()
                if run is not None and run.claimed_at < claimed_before:
                    held.append(run)
                else:
                    queued.append(run)
        except queue.Empty:
            for queued_run in queued:
                self._queue.put(queued_run)
            with self._lock:
                self._taken_back += len(held)
            return held

    def abandon_thread(self, run: Run) -> None:
        """Count the thread of an abandoned run as stuck; another may take its place, unless the run has lost its slot."""
        self.slots.release()
        with self._lock:
            self.stuck += 1
            self._serving -= 1
            if run.slot_lost:
                self.blocked_slots += 1
                self.size -= 1
            self._spawn_missing()

    def remove_slot(self) -> None:
        """Remove one slot: an abandoned coroutine keeps it."""
        with self._lock:
            self.blocked_slots += 1
            self._resize(max(self.size - 1, 0))

    def restore_slot(self) -> None:
        """Add the slot of an abandoned coroutine again."""
        with self._lock:
            self.blocked_slots -= 1
            if not self._closed:
                self._resize(self.size + 1)

    def join(self, deadline: float) -> bool:
        """Wait for all threads until a monotonic time; return whether all have ended."""
        for thread in list(self._threads):
            thread.join(max(deadline - time.monotonic(), 0.0))
        return not any(thread.is_alive() for thread in self._threads)

    def _start(self) -> None:
        self._number += 1
        # Daemon threads: a thread that never returns must not keep the process alive.
        thread = threading.Thread(target=self._work, name=f"jobqueue-thread-{self._number}", daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except BaseException:  # the system can start no more threads
            self._threads.discard(thread)
            raise
        self._serving += 1

    def _work(self) -> None:
        rested_at = time.monotonic()
        try:
            while (run := self._next()) is not None:
                if not self.slots.enter(run):
                    continue
                begun = time.monotonic()
                outcome = execute(run, begun - rested_at)
                exit_if_child()
                rested_at = time.monotonic()
                if run.abandoned:
                    if not self._resume_after_abandoned(run):
                        return
                    continue
                self._worked_seconds += rested_at - begun  # before the release: a reader that sees an ended run also sees its duration
                self.slots.release()
                self._completed += 1
                self._report_outcome(run, outcome)
        finally:
            hygiene.close_all()
            self._threads.discard(threading.current_thread())

    def _next(self) -> Run | None:
        while True:
            try:
                run = self._queue.get(timeout=TIDY_SECONDS if hygiene.have_connections() else None)
            except queue.Empty:
                hygiene.after_task()  # a connection may have exceeded its maximum age while it was idle
                continue
            if run is not None or self._may_exit():
                return run

    def _may_exit(self) -> bool:
        with self._lock:
            leaves = self._exiting > 0  # else `resize` canceled the sentinel
            self._exiting -= leaves
            return leaves

    def _resume_after_abandoned(self, run: Run) -> bool:
        """Return whether a thread whose abandoned run has ended works again: it does if no other thread replaced it."""
        with self._lock:
            self.stuck -= 1
            if not run.slot_lost:
                return False
            self.blocked_slots -= 1
            if not self._closed:
                self.size += 1
                self._serving += 1
            return not self._closed
