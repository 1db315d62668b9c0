"""The reporter writes what running jobs show: that they began, and how far they are, one statement for the whole process.

A run shorter than 0.2 s costs nothing here. Progress is written at once when it is new, then once a second; the outcome carries
the last value. It never takes part in a task's transaction, and never waits for a row.
"""

from __future__ import annotations

import logging
import time

from django.db import Error

from jobqueue import db
from jobqueue.core import repeats
from jobqueue.core.service import ErrorHandler
from jobqueue.db import Lease, Mark
from jobqueue.lifecycle import phases
from jobqueue.lifecycle.aside import reason_of
from jobqueue.models import Job
from jobqueue.worker.base import DatabaseService
from jobqueue.worker.running.run import Run, Runs
from jobqueue.worker.running.side_writes import attempt_all
from jobqueue.worker.running.stuck import notice

BEGUN_SECONDS = 0.2
PAUSE_SECONDS = 1.0
LOCKED_SECONDS = 0.02


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
        """Do the errands of runs, and write what is due."""
        later = self._errands()
        now = time.monotonic()
        due = [run for run in self._runs if run.began is not None and run.ended is None and self._is_due(run, now)]
        if due:
            self._write(due, now)
        if later:
            return LOCKED_SECONDS
        return BEGUN_SECONDS if len(self._runs) else None

    def _errands(self) -> bool:
        """Do what runs wait for; return whether some of it is for later, since somebody has locked a row."""
        later = False
        for run in self._runs:
            if run.errands and not attempt_all(run):
                later = True
        return later

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
            marks.append(Mark(*run.lease, now - (run.began or now), run.progress, notice(run) or run.message, run.metadata))
        try:
            written = self._mark(due, marks)
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

    def _mark(self, due: list[Run], marks: list[Mark]) -> set[Lease]:
        try:
            return _written(due, marks)
        except (Error, ValueError, TypeError) as error:
            if not db.is_refusal(error):
                raise
            if len(marks) > 1:  # one bad value must not stop what others show
                return {lease for run, mark in zip(due, marks, strict=True) for lease in self._mark([run], [mark])}
            # Where not even this is taken, it is not the values: that raises, and is tried again.
            written = set(Job.objects.database.mark([marks[0]._replace(progress=None, message=None, metadata=None)]))
            _drop(due[0], marks[0], error)
            return written


def _written(due: list[Run], marks: list[Mark]) -> set[Lease]:
    """Write marks, and in the same transaction, under the locks of the jobs' rows, what their phases show."""
    if all(run.pipeline is None for run in due):
        return set(Job.objects.database.mark(marks))
    with Job.objects.database.atomic():
        written = set(Job.objects.database.mark(marks))
        for run in due:
            if run.lease in written and run.pipeline is not None and (shown := run.pipeline.shown) is not None:
                phases.show(run.job.id, shown)
    return written


def _drop(run: Run, mark: Mark, error: Exception) -> None:
    """Let go of values that the database refuses, so that neither the next turn nor the outcome brings them again."""
    repeats.log(
        logging.WARNING,
        "Job %s: the database refuses its progress, message or metadata, which are dropped: %s",
        run.job.id,
        reason_of(error),
    )
    run.refused = mark.metadata is not None
    for name in ("progress", "message", "metadata"):
        if getattr(run, name) == getattr(mark, name):  # else the task has told a new one meanwhile
            setattr(run, name, None)
