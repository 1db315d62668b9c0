"""The reporter writes what running jobs show: that they began, and how far they are, one statement for the whole process.

A run shorter than 0.2 s costs nothing here. Progress is written at once when it is new, then once a second; the outcome carries
the last value. It never takes part in a task's transaction, and never waits for a row.
"""

from __future__ import annotations

import time

from jobqueue.db import Mark
from jobqueue.models import Job
from jobqueue.service import ErrorHandler
from jobqueue.worker.base import DatabaseService
from jobqueue.worker.run import Run, Runs

BEGUN_SECONDS = 0.2
PAUSE_SECONDS = 1.0


class Reporter(DatabaseService):
    """Write the marks of `runs`."""

    name = "reporter"

    def __init__(self, runs: Runs, on_error: ErrorHandler) -> None:
        """Prepare the thread."""
        super().__init__(on_error)
        self._runs = runs

    def flush(self, run: Run) -> None:
        """Look at the runs now: one has something new to show."""
        self.wake()

    def turn(self) -> float | None:
        """Write what is due."""
        now = time.monotonic()
        due = [run for run in self._runs if run.began is not None and run.ended is None and self._is_due(run, now)]
        if due:
            self._write(due, now)
        return BEGUN_SECONDS if len(self._runs) else None

    def _is_due(self, run: Run, now: float) -> bool:
        if run.marked_at is None:
            return run.dirty_since is not None or now - (run.began or now) >= BEGUN_SECONDS
        if run.saved is not None and not run.saved.is_set():
            return True
        return run.dirty_since is not None and now - run.marked_at >= PAUSE_SECONDS

    def _write(self, due: list[Run], now: float) -> None:
        waiting = {}
        marks = []
        for run in due:
            waiting[run.lease] = run.saved
            run.dirty_since = None  # before the values are read: one that comes meanwhile is written next time
            marks.append(Mark(*run.lease, now - (run.began or now), run.progress, run.message, run.metadata))
        try:
            written = set(Job.objects.database.mark(marks))
        except BaseException:
            for run in due:
                run.dirty_since = now
            raise
        for run in due:
            if run.lease in written:
                run.marked_at = now
                if (saved := waiting[run.lease]) is not None:
                    saved.set()
            else:  # locked by somebody, or lost; the heartbeat tells which
                run.dirty_since = run.dirty_since or now
