"""Runs with a time limit, on threads and loops of this process."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from jobqueue.lifecycle.outcome import Outcome
from jobqueue.worker.running.interrupter import Interrupter
from jobqueue.worker.running.lanes import Lanes
from jobqueue.worker.running.loop import Loop
from jobqueue.worker.running.pool import Pool
from jobqueue.worker.running.run import Run
from tests.worker.parts import PATIENCE_SECONDS, Collector, run_of

LIMIT = 0.1
GRACE = 0.2
TEXT = "jobqueue.exceptions.TimeLimitExceeded: The time limit of 0.1 s was exceeded"


class Scene:
    """An interrupter, a pool and a loop; what is given up on is put with what they run."""

    def __init__(self, spares: int = 8) -> None:
        self.outcomes = Collector()
        self.asked: list[Run] = []
        self.replaces = False
        self.lanes = Lanes(lambda: Pool(self.outcomes.put))
        self.pool = self.lanes.shared.pool
        self.loop = Loop(self.outcomes.put)
        self.interrupter = Interrupter(self.outcomes.put, self.go_on_without, lambda *_: None, lambda: None, spares, GRACE, self.replace)
        self.interrupter.start()
        self.end = threading.Event()

    def go_on_without(self, run: Run) -> None:
        if run.thread_id:
            self.pool.abandon_thread(run)
        else:
            self.loop.replace_if_blocked(run)

    def replace(self, run: Run) -> bool:
        self.asked.append(run)
        return self.replaces

    def run(self, function: Callable[..., Any], seconds: float | None = LIMIT, **more: Any) -> Run:
        """Return a run of a function with a time limit."""
        run = run_of(function, **more)
        run.lane = self.lanes.shared
        if seconds is not None:
            run.limit, run.watch = seconds, self.interrupter.watch
        return run

    def submit(self, *runs: Run) -> None:
        for run in runs:
            if run.entry is not None and run.entry.is_async:
                self.loop.submit(run)
            else:
                self.pool.submit([run])

    def come_to(self, function: Callable[..., Any], **more: Any) -> Outcome:
        """Run a function with a time limit; return what came of it."""
        if not self.pool.size:
            self.pool.resize(2)
        before = len(self.outcomes.outcomes)
        self.submit(self.run(function, **more))
        self.outcomes.wait(before + 1)
        return self.outcomes.outcomes[before][1]

    def swallow(self) -> None:
        """A task that only the end of the test stops."""
        while not self.end.is_set():
            with contextlib.suppress(BaseException):
                self.end.wait(0.01)

    async def aswallow(self) -> None:
        while not self.end.is_set():
            with contextlib.suppress(BaseException):
                await asyncio.sleep(0.01)

    async def block(self) -> None:
        self.end.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        self.end.set()
        self.pool.resize(0)
        self.loop.stop()
        self.interrupter.stop()
        assert self.pool.join(time.monotonic() + PATIENCE_SECONDS)
        assert self.loop.join(PATIENCE_SECONDS)
        assert self.interrupter.join(PATIENCE_SECONDS)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)


def spin(seconds: float = PATIENCE_SECONDS) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
