"""The threads that run plain functions, at most one for each slot.

Claimed runs wait in one queue. A thread starts when more runs wait or run than there are threads: slots that coroutines use, or
nobody, have none. It ends where it is idle and finds its sign to leave in the queue; a pool that grows again takes back the signs
that nobody has found yet, so that no thread works beside the number. A thread that does not react to an interrupt is given up on: it
stays stuck until its task returns, and a new thread takes its place, so that the capacity stays; where no new one may, the pool has a
slot less until then.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable

from jobqueue.db import hygiene
from jobqueue.lifecycle.outcome import Outcome
from jobqueue.worker.forked import leave_if_child
from jobqueue.worker.running.executor import execute
from jobqueue.worker.running.run import Run
from jobqueue.worker.running.slots import Slots

TIDY_SECONDS = 5.0

logger = logging.getLogger("jobqueue")


class Pool:
    """Run submitted runs in threads; `put` gets each outcome."""

    def __init__(self, put: Callable[[Run, Outcome], None]) -> None:
        """Prepare; `resize` makes slots, and what is submitted starts threads."""
        self._put = put
        self._queue: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._number = 0
        self._completed = 0
        self._worked_seconds = 0.0
        self._crew = 0  # the threads that serve: neither given up on nor told to leave
        self._leaving = 0  # of the others, those that are to end once they are idle
        self._submitted = self._taken_back = 0
        self.size = 0
        self.stuck = 0
        self.lost = 0  # slots of runs that were given up on, in whose place no thread works
        self._closed = False
        self.slots = Slots(lambda: self.size)

    @property
    def waiting(self) -> int:
        """How many runs wait for a thread."""
        return self._queue.qsize() + self.slots.held

    @property
    def threads(self) -> int:
        """How many threads there are: those that serve, those that are about to end, and those that were given up on."""
        return len(self._threads)

    @property
    def completed(self) -> int:
        """How many runs have ended since the start."""
        return self._completed

    @property
    def worked_seconds(self) -> float:
        """How long all runs that have ended took, together."""
        return self._worked_seconds

    def count(self, seconds: float) -> None:
        """Count a coroutine that has ended in one of the slots, so long after it began: how much is claimed ahead goes by that."""
        self._worked_seconds += seconds
        self._completed += 1

    def resize(self, size: int) -> None:
        """Set the number of slots; threads beyond it end once they are idle, and a busy one is never cut off."""
        with self._lock:  # the scaler, the interrupter and the supervisor change the number
            self._closed = size == 0
            self._resize(size)

    def _resize(self, size: int) -> None:
        self.size = size
        back = min(self._leaving, max(size - self._crew, 0))
        self._leaving -= back
        self._crew += back
        while self._crew > size:
            self._crew -= 1
            self._leaving += 1
            self._queue.put(None)
        self._spawn_missing()

    def _spawn_missing(self) -> None:
        """Start the threads that are missing; called with the lock.

        What was submitted and has not ended is counted, not who is idle: a thread that has just taken a run looks idle for a moment, and
        the next run would wait for it though there is a slot.
        """
        while self._crew < min(self.size, self._submitted - self._taken_back - self.slots.ended):
            try:
                self._start()
            except Exception as error:  # noqa: BLE001 - whatever it is: those who submit have runs to register and outcomes to write
                logger.error("The system gives no more threads, so there are %d slots instead of %d: %s", self._crew, self.size, error)
                self.size = self._crew  # until somebody asks for more again
                return

    def submit(self, runs: list[Run]) -> None:
        """Queue runs, in order."""
        for run in runs:
            self._queue.put(run)
        with self._lock:  # against others who count and start threads
            self._submitted += len(runs)
            self._spawn_missing()

    def take_waiting(self, claimed_before: float) -> list[Run]:
        """Take out the runs that were claimed before a time and have not begun."""
        taken = self.slots.take_held(claimed_before)
        kept: list[Run | None] = []
        try:
            while True:
                run = self._queue.get_nowait()
                if run is not None and run.claimed_at < claimed_before:
                    taken.append(run)
                else:
                    kept.append(run)
        except queue.Empty:
            for left in kept:
                self._queue.put(left)
            with self._lock:
                self._taken_back += len(taken)
            return taken

    def replace(self, run: Run) -> None:
        """Count the thread of a run that was given up on as stuck; another may take its place, unless the run has lost its slot."""
        self.slots.leave()
        with self._lock:
            self.stuck += 1
            self._crew -= 1
            if run.slot_lost:
                self.lost += 1
                self.size -= 1
            self._spawn_missing()

    def lose(self) -> None:
        """Have a slot less, since a coroutine that was given up on keeps it."""
        with self._lock:
            self.lost += 1
            self._resize(max(self.size - 1, 0))

    def regain(self) -> None:
        """Have the slot again."""
        with self._lock:
            self.lost -= 1
            if not self._closed:
                self._resize(self.size + 1)

    def join(self, deadline: float) -> bool:
        """Wait for all threads until a monotonic time; return whether all have ended."""
        for thread in list(self._threads):
            thread.join(max(deadline - time.monotonic(), 0.0))
        return not any(thread.is_alive() for thread in self._threads)

    def _start(self) -> None:
        self._number += 1
        # Daemons: one that never returns must not keep the process alive.
        thread = threading.Thread(target=self._work, name=f"jobqueue-thread-{self._number}", daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except BaseException:  # the system gives no more threads
            self._threads.discard(thread)
            raise
        self._crew += 1

    def _work(self) -> None:
        rested_at = time.monotonic()
        try:
            while (run := self._next()) is not None:
                if not self.slots.enter(run):
                    continue
                begun = time.monotonic()
                outcome = execute(run, begun - rested_at)
                leave_if_child()
                rested_at = time.monotonic()
                if run.abandoned:
                    if not self._comes_back(run):
                        return
                    continue
                self._worked_seconds += rested_at - begun  # first: who sees the run as ended knows how long it took
                self.slots.leave()
                self._completed += 1
                self._put(run, outcome)
        finally:
            hygiene.close_all()
            self._threads.discard(threading.current_thread())

    def _next(self) -> Run | None:
        while True:
            try:
                run = self._queue.get(timeout=TIDY_SECONDS if hygiene.have_connections() else None)
            except queue.Empty:
                hygiene.after_task()  # a connection may have become too old while resting
                continue
            if run is not None or self._may_leave():
                return run

    def _may_leave(self) -> bool:
        with self._lock:
            leaves = self._leaving > 0  # else the sign was taken back
            self._leaving -= leaves
            return leaves

    def _comes_back(self, run: Run) -> bool:
        """Return whether a thread whose run was given up on works again, now that the run has ended: nobody took its place."""
        with self._lock:
            self.stuck -= 1
            if not run.slot_lost:
                return False
            self.lost -= 1
            if not self._closed:
                self.size += 1
                self._crew += 1
            return not self._closed
