"""The interrupter takes a run through the stages of an interrupt, and watches the time limits of runs.

An interrupt: the flag is set immediately, and a coroutine is canceled. A thread that has not reacted after 1 s gets an exception at its
next bytecode. After 10 s the run is abandoned.

A time limit: the exception is thrown, or the coroutine canceled, immediately. A run that still runs after `TIMEOUT_GRACE_SECONDS` is
overdue. If this process can be replaced, it is drained for that, and the outcome of the run is written last. Otherwise the run is
abandoned.

An abandoned run is shown as stuck. Without a target, its job ends, and a spare thread takes the place of the stuck thread if fewer than
`MAX_WORKERS` spare threads are in use. Otherwise the slot is lost until the stuck thread ends. With a target, the job stays RUNNING,
since no other job of the target may run beside it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from jobqueue.core.service import ErrorHandler, Service
from jobqueue.lifecycle.outcome import Outcome
from jobqueue.worker.board import Board
from jobqueue.worker.running.deadlines import Deadlines
from jobqueue.worker.running.run import Reason, Run
from jobqueue.worker.running.shield import shield_log
from jobqueue.worker.running.stuck import abandoned, line_of, place_of

THROW_SECONDS = 1.0
GIVE_UP_SECONDS = 10.0
RETRY_SECONDS = 0.5
MAX_SHOWN = 20

logger = logging.getLogger("jobqueue")


class Interrupter(Service):
    """A service that stops runs; it passes the outcome of an abandoned run to `put`, and `replace` keeps the capacity for other runs."""

    name = "interrupter"

    def __init__(
        self,
        put: Callable[[Run, Outcome], None],
        replace: Callable[[Run], None],
        on_error: ErrorHandler,
        noticed: Callable[[], None] = lambda: None,
        spares: int = 8,
        timeout_grace_seconds: float = 10.0,
        replace_process: Callable[[Run], bool] = lambda run: False,
        board: Board | None = None,
    ) -> None:
        """Prepare the thread; call `noticed` when the number of stuck runs has grown.

        At most `spares` threads take the place of stuck threads. `replace_process` is called when a run is overdue; it returns True if this
        process will be drained because of it.
        """
        super().__init__(on_error)
        shield_log()  # before anything is thrown
        self._put, self._replace, self._on_stuck = put, replace, noticed
        self._spares, self._grace, self._replace_process = spares, timeout_grace_seconds, replace_process
        self._runs: set[Run] = set()
        self._deadlines, self._board = Deadlines(), board
        self._stuck: set[Run] = set()
        self._replaced: set[Run] = set()  # of the stuck runs, those whose thread was replaced

    @property
    def stuck(self) -> int:
        """The number of runs that do not react and have not ended."""
        self._stuck = _unended(self._stuck)
        return len(self._stuck)

    @property
    def stuck_runs(self) -> list[dict[str, Any]]:
        """The first `MAX_SHOWN` of the stuck runs: the job, its task, and the line where its thread is."""
        shown = sorted(_unended({*self._stuck}), key=lambda run: run.job.id)[:MAX_SHOWN]
        return [{"job": run.job.id, "task": run.job.task, "line": line_of(run) or run.place} for run in shown]

    def interrupt(self, run: Run, reason: Reason) -> None:
        """Request that a run stops, and watch that it does."""
        if run.interrupt(reason):
            self._runs.add(run)
            self.wake()

    def watch(self, run: Run) -> None:
        """Watch the time limit of a run that begins now."""
        if run.limit is not None and self._deadlines.add(run, (at := (run.began or time.monotonic()) + run.limit)):
            if self._board is not None:  # now: the task may hold Python's global lock from its first line on
                self._board.show(at, run.job.id)
            self.wake()

    def turn(self) -> float | None:
        """Move each run to the stage of its age; return the seconds to the next stage."""
        pauses = [*self._interrupts(), *self._limits()]
        return max(min(pauses), 0.0) if pauses else None

    def _interrupts(self) -> list[float]:
        now = time.monotonic()
        pauses = []
        for run in list(self._runs):
            age = now - run.interrupted_at
            if run.ended is not None or run.reason is None:
                self._runs.discard(run)
                continue
            if age >= THROW_SECONDS:
                run.throw()
            if age >= GIVE_UP_SECONDS:
                self._runs.discard(run)
                self._give_up(run, "interrupt")
                continue
            pauses.append((THROW_SECONDS if age < THROW_SECONDS else GIVE_UP_SECONDS) - age)
        return pauses

    def _limits(self) -> list[float]:
        while (run := self._deadlines.take(time.monotonic())) is not None:
            if (seconds := self._next_stage(run)) is not None:
                self._deadlines.add(run, time.monotonic() + seconds)
        nearest = self._deadlines.nearest
        if self._board is not None:
            self._board.show(*(nearest or (0.0, 0)))
        return [] if nearest is None else [nearest[0] - time.monotonic()]

    def _next_stage(self, run: Run) -> float | None:
        """Move a run whose time has come to the next stage; return after how many seconds to check again, or None."""
        if run.closed or run in self._stuck:
            return None
        if run.reason is not None:  # the run is to stop anyway, but that request may be withdrawn
            return RETRY_SECONDS
        if not run.expired:
            return self._grace if run.expire() else RETRY_SECONDS
        run.overdue = True  # before the process begins to stop
        if self._replace_process(run):
            text = "Job %s (%s) still runs %g s after its time limit; its process is replaced. %s"
            run.place = place_of(run)
            logger.error(text, run.job.id, run.job.task, self._grace, run.place)
            self._stuck.add(run)
            self._on_stuck()
        else:
            run.overdue = False
            self._give_up(run, "time limit")
        return None

    def _give_up(self, run: Run, cause: str) -> None:
        run.place = place_of(run)
        text = "Job %s (%s) does not react to its %s; its thread is stuck. %s"
        logger.warning(text, run.job.id, run.job.task, cause, run.place)
        self._stuck.add(run)
        if run.job.target and run.reason is not Reason.LOST:
            if run.cancel_async is not None and self._has_spare(run):  # its slot stays occupied, but other coroutines use the same loop
                self._replace(run)
            run.own_progress().dirty_since = time.monotonic()
            run.flush(run)  # its row shows where the thread is
            self._on_stuck()
        elif run.abandon():
            run.slot_lost = not self._has_spare(run)
            try:
                self._replace(run)
            finally:
                self._put(run, abandoned(run))

    def _has_spare(self, run: Run) -> bool:
        """Return whether another thread may take the place of a run's thread, and count it."""
        self._replaced = _unended(self._replaced)
        if len(self._replaced) >= self._spares:
            text = "Job %s (%s): all %d spare threads already replace stuck threads; its slot is lost until one of them ends."
            logger.error(text, run.job.id, run.job.task, self._spares)
            return False
        self._replaced.add(run)
        return True


def _unended(runs: set[Run]) -> set[Run]:
    return {run for run in runs if run.ended is None}
