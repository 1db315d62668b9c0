"""The threads of the duties of a worker: one for all short duties, and one for each long duty."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import datetime

from jobqueue.core.service import ErrorHandler
from jobqueue.worker.duties.duty_thread import DutyThread
from jobqueue.worker.duties.runner import DutyRunner

SPLIT_SECONDS = 1.0
ASK_LIMIT_SECONDS = 10.0


class DutyThreads:
    """The threads of the duties, and which duty runs in which thread. Only the contender calls it, except `wake`."""

    def __init__(self, clock: Callable[[], datetime], on_error: ErrorHandler) -> None:
        """Start without threads; `clock` returns the time of the database."""
        self._clock, self._on_error = clock, on_error
        self._shared = self._new_shared()
        self._threads: dict[DutyRunner, DutyThread] = {}
        self._ending: set[DutyThread] = set()

    def start(self, runner: DutyRunner) -> None:
        """Run a duty from now on."""
        if runner.duty.is_short:
            thread = self._shared
        else:
            thread = DutyThread(runner.name, self._clock, self._on_error)
            self._shared.others = (*self._shared.others, thread)
        self._threads[runner] = thread
        thread.add(runner)
        thread.start()
        self._shared.start()

    def stop_running(self, runner: DutyRunner) -> bool:
        """Do not run a duty again; return whether it does not run any more."""
        thread = self._threads[runner]
        if runner.duty.is_short:
            thread.remove(runner)
            return thread.running is not runner
        thread.stop()
        return not thread.alive

    def drop(self, runner: DutyRunner) -> None:
        """Do not run a duty again, and do not wait for the end of its run."""
        self.stop_running(runner)
        thread = self._threads.pop(runner)
        self._shared.others = tuple(other for other in self._shared.others if other is not thread)

    def abort(self, runner: DutyRunner) -> None:
        """Make the statement fail that a duty waits for."""
        if (thread := self._threads[runner]).running is runner:
            thread.abort()

    def wake(self, runner: DutyRunner) -> None:
        """Run a duty at once if it is due. Any thread may call this."""
        if (thread := self._threads.get(runner)) is not None:
            thread.wake()

    def check(self) -> None:
        """Run the short duties in a new thread if one of them blocks the old thread, and move that one back when its run has ended."""
        shared = self._shared
        asking = shared.asking_since
        if asking is not None and time.monotonic() - asking > ASK_LIMIT_SECONDS:
            shared.abort()
        blocked = shared.running
        if blocked is not None and blocked.busy_seconds > SPLIT_SECONDS and any(other is not blocked for other in shared.runners):
            self._split(shared, blocked)
        for runner, thread in self._threads.items():
            if runner.duty.is_short and thread is not self._shared and not thread.alive and runner in thread.runners:
                self._move([runner])

    def _split(self, old: DutyThread, blocked: DutyRunner) -> None:
        runners = old.retire(blocked)
        if runners is None:  # its run has just ended
            return
        self._shared = self._new_shared()
        self._shared.others = old.others
        self._move(runners)
        self._shared.start()

    def _move(self, runners: Iterable[DutyRunner]) -> None:
        """Run short duties in the shared thread from now on."""
        for runner in runners:
            self._threads[runner] = self._shared
            self._shared.add(runner)

    def stop(self) -> None:
        """Ask all threads to end after the current runs."""
        self._ending |= {*self._threads.values(), self._shared}
        for thread in self._ending:
            thread.stop()

    def join(self, deadline: float) -> None:
        """Wait for the end of all threads, until a monotonic time."""
        for thread in self._ending:
            thread.join(max(deadline - time.monotonic(), 0.0))

    @property
    def lingering(self) -> list[str]:
        """The names of the threads that still run after they were asked to stop."""
        return [thread.name for thread in self._ending if thread.alive]

    @property
    def unended(self) -> list[str]:
        """The names of the operations that duties had begun and could not complete."""
        return [name for thread in self._ending for name in thread.unended]

    def _new_shared(self) -> DutyThread:
        return DutyThread("short duties", self._clock, self._on_error, asks=True)
