"""The reporter writes the starts and the progress of running jobs, in one statement for the whole worker, and what they log.

A run shorter than `BEGUN_SECONDS` costs nothing here. The first progress of a run is written at once, later progress once a second. The
outcome contains the last value. The reporter never writes in the transaction of a task, and never waits for the lock of a row.
"""

from __future__ import annotations

import logging
import time

from django.db import Error

from jobqueue import db
from jobqueue.core import repeats
from jobqueue.core.service import ErrorHandler
from jobqueue.db import Lease, Mark, leases
from jobqueue.lifecycle import phases
from jobqueue.lifecycle.aside import reason_of
from jobqueue.models import Job
from jobqueue.worker.base import DatabaseService
from jobqueue.worker.reporting import run_logs
from jobqueue.worker.running.run import Run, Runs
from jobqueue.worker.running.stuck import notice

BEGUN_SECONDS = 0.2
PAUSE_SECONDS = 1.0
LOCKED_SECONDS = 0.02


class Reporter(DatabaseService):
    """The thread that writes starts, progress, messages and metadata of `runs`."""

    name = "reporter"

    def __init__(self, runs: Runs, on_error: ErrorHandler, log_seconds: float = 0.0) -> None:
        """Prepare the thread; what a running job logs is written every `log_seconds`."""
        super().__init__(on_error)
        self._runs, self._log_seconds = runs, log_seconds

    def flush(self, run: Run) -> None:
        """Write soon: a run has a new value."""
        self.wake()

    def turn(self) -> float | None:
        """Do the side writes of runs, then write the values that are due; return the seconds to the next turn."""
        later = self._do_side_writes()
        now = time.monotonic()
        due = [run for run in self._runs if run.began is not None and run.ended is None and _is_due(run, now)]
        if due:
            self._write(due, now)
        run_logs.write(
            run for run in self._runs if run.log is not None and run.ended is None and now - run.log.taken_at >= self._log_seconds
        )
        if later:
            return LOCKED_SECONDS
        return BEGUN_SECONDS if len(self._runs) else None

    def _do_side_writes(self) -> bool:
        """Do the side writes that runs wait for; return whether some must be retried because another session has locked a row."""
        later = False
        for run in self._runs:
            if run.side_writes is not None and not run.side_writes.attempt_all():
                later = True
        return later

    def _write(self, due: list[Run], now: float) -> None:
        waiting = {}
        marks = []
        for run in due:
            progress = run.own_progress()
            waiting[run.lease] = progress.saved
            progress.dirty_since = None  # before the values are read: a value that is set meanwhile is written in the next turn
            marks.append(Mark(*run.lease, now - (run.began or now), progress.percent, notice(run) or progress.message, progress.metadata))
        try:
            written = self._mark(due, marks)
        except BaseException:
            for run in due:
                run.own_progress().dirty_since = now
            raise
        for run in due:
            progress = run.own_progress()
            if run.lease in written:
                progress.marked_at = now
                if (saved := waiting[run.lease]) is not None:
                    saved.set()
            else:  # the row is locked, or the lease is lost; the heartbeat finds out which
                progress.dirty_since = progress.dirty_since or now

    def _mark(self, due: list[Run], marks: list[Mark]) -> set[Lease]:
        try:
            return _written(due, marks)
        except (Error, ValueError, TypeError) as error:
            if not db.is_refusal(error):
                raise
            if len(marks) > 1:  # one bad value must not stop the values of other runs
                return {lease for run, mark in zip(due, marks, strict=True) for lease in self._mark([run], [mark])}
            # If the database refuses even this, the values are not the cause: it raises, and the next turn retries.
            written = set(leases.mark(Job.objects.database, [marks[0]._replace(progress=None, message=None, metadata=None)]))
            _drop(due[0], marks[0], error)
            return written


def _is_due(run: Run, now: float) -> bool:
    progress = run.progress
    if progress is None or progress.marked_at is None:
        return (progress is not None and progress.dirty_since is not None) or now - (run.began or now) >= BEGUN_SECONDS
    if progress.saved is not None and not progress.saved.is_set():
        return True
    return progress.dirty_since is not None and now - progress.marked_at >= PAUSE_SECONDS


def _written(due: list[Run], marks: list[Mark]) -> set[Lease]:
    """Write marks, and in the same transaction, under the locks of the rows of the jobs, the states of their phases."""
    if all(run.pipeline is None for run in due):
        return set(leases.mark(Job.objects.database, marks))
    with Job.objects.database.atomic():
        written = set(leases.mark(Job.objects.database, marks))
        for run in due:
            if run.lease in written and run.pipeline is not None and (shown := run.pipeline.shown) is not None:
                phases.show(run.job.id, shown)
    return written


def _drop(run: Run, mark: Mark, error: Exception) -> None:
    """Discard values that the database refuses, so that neither the next turn nor the outcome contains them."""
    repeats.log(
        logging.WARNING,
        "Job %s: the database refuses its progress, message or metadata, which are dropped: %s",
        run.job.id,
        reason_of(error),
    )
    run.own_progress().drop(mark.progress, mark.message, mark.metadata)
