"""The interrupter takes a run through the stages of an interrupt.

The flag comes at once (a coroutine is really canceled). A thread that has not reacted after 1 s gets an exception at its next
bytecode. After 10 s the run is given up on and shown as stuck: without a target its job is settled and the thread replaced; with one
the job stays RUNNING, since its target must not run beside it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from jobqueue.lifecycle.outcome import Outcome
from jobqueue.service import ErrorHandler, Service
from jobqueue.worker.executor import interrupted
from jobqueue.worker.run import Reason, Run

THROW_SECONDS = 1.0
GIVE_UP_SECONDS = 10.0

logger = logging.getLogger("jobqueue")


class Interrupter(Service):
    """Stop runs that are to stop; `put` gets the outcome of one that is given up on, `replace` sees to it that others go on."""

    name = "interrupter"

    def __init__(
        self,
        put: Callable[[Run, Outcome], None],
        replace: Callable[[Run], None],
        on_error: ErrorHandler,
        noticed: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare the thread; `noticed` is told when the number of those that are stuck has grown."""
        super().__init__(on_error)
        self._put, self._replace, self._noticed = put, replace, noticed
        self._runs: set[Run] = set()
        self._keeping: set[Run] = set()  # given up on, and still RUNNING: nobody else may work on their targets

    @property
    def stuck(self) -> int:
        """How many runs do not react and keep their targets, and their slots, until their threads end."""
        self._keeping = {run for run in self._keeping if run.ended is None}
        return len(self._keeping)

    def interrupt(self, run: Run, reason: Reason) -> None:
        """Tell a run to stop, and see to it that it does."""
        if run.interrupt(reason):
            self._runs.add(run)
            self.wake()

    def turn(self) -> float | None:
        """Move each run to the stage of its age; return the seconds to the next stage."""
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
                self._give_up(run)
                continue
            pauses.append((THROW_SECONDS if age < THROW_SECONDS else GIVE_UP_SECONDS) - age)
        return min(pauses) if pauses else None

    def _give_up(self, run: Run) -> None:
        logger.warning("Job %s (%s) does not react to its interrupt; its thread is stuck.", run.job.id, run.job.task)
        if run.job.target and run.reason is not Reason.LOST:
            self._keeping.add(run)
            self._noticed()
            return
        if run.abandon():
            self._replace(run)
            self._put(run, interrupted(run))
