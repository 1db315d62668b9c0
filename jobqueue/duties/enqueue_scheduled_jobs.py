"""The duty of schedules: it enqueues each job whose nominal time has come, exactly once.

Leadership keeps two workers from doing the same work. The transaction of each tick (see ``schedules/ticks.py``) ensures that no nominal
time gets two jobs, even with two leaders or none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db.models import QuerySet

from jobqueue import conf, db
from jobqueue.bounded import Calls
from jobqueue.core import repeats
from jobqueue.core.masking import PLAIN
from jobqueue.core.texts import exception_summary
from jobqueue.duties.base import Duty, Report
from jobqueue.exceptions import LeadershipLost, is_for_the_process
from jobqueue.lifecycle.aside import reason_of
from jobqueue.lifecycle.batches import SET_ASIDE_SECONDS, Batches
from jobqueue.models import Schedule
from jobqueue.schedules import plans, ticks
from jobqueue.schedules.jobs import DefinitionChangedError, calls_project, enqueue_scheduled, own

BATCH = 100  # schedules per run
REPLAN_SECONDS = 1.0
REPLAN_BATCH = 1000
BUDGET_SECONDS = 5.0  # after which a run starts no further schedule
MAX_PAUSE_SECONDS = 5.0
LOCKED_PAUSE_SECONDS = 1.0  # if a due row is locked by another session
CALL_SECONDS = 5.0  # limit for the code of the project that returns the key or the target of a task
FORGET_SECONDS = 600.0
FORGET_BATCH = 2000


class EnqueueScheduledJobs(Duty):
    """The duty that enqueues the jobs of schedules; it pauses until the next nominal time, for at most `MAX_PAUSE_SECONDS`."""

    name = "enqueue_scheduled_jobs"
    interval_seconds = MAX_PAUSE_SECONDS
    is_short = True

    def __init__(self) -> None:
        """Prepare the duty.

        Each service has its own leader, since workers of another service do not have the tasks.
        """
        self.service = conf.service()
        self.name = conf.scoped(EnqueueScheduledJobs.name)
        self._recounted = False
        self._replan_at = 0.0
        self._forget_at: datetime | None = None
        self._calls = Calls(CALL_SECONDS)
        self._unwritable = Batches("Enqueueing scheduled jobs", BATCH)
        self._inactive = Batches("Forgetting the next time of a schedule that is not enqueued", REPLAN_BATCH)

    def questions(self) -> Sequence[QuerySet[Any]]:
        """Return the query of the schedules that are enabled."""
        return [Schedule.objects.current.active().values_list("pk")]

    def seconds_to_work(self, now: datetime, answers: Sequence[Any]) -> float | None:
        """Run if there are schedules. The first run of a term also deletes old ticks."""
        return 0.0 if self._forget_at is None else super().seconds_to_work(now, answers)

    def run_once(self, now: datetime) -> Report:
        """Enqueue the jobs that are due at `now`, in one short transaction each, for up to about `BUDGET_SECONDS`.

        Every `FORGET_SECONDS`, also delete a batch of old ticks.
        """
        self._replan(now)
        ready = Schedule.objects.current.of(self.service).due(now).exclude(pk__in=self._unwritable.set_aside)
        due = list(ready.order_by("next_at").values_list("pk", "name", "task")[:BATCH])
        jobs = aside = 0
        more = False
        until = time.monotonic() + BUDGET_SECONDS
        for number, (schedule_id, name, path) in enumerate(due):
            if number and time.monotonic() >= until:
                more = True
                break
            try:
                ticked = self._tick(schedule_id, path, now)
            except LeadershipLost:
                raise
            except DefinitionChangedError:
                more = True
            except BaseException as error:  # one bad schedule must not stop the rest
                if is_for_the_process(error):
                    raise
                self._set_aside(schedule_id, name, now, error)
                aside += 1
            else:
                jobs += ticked.jobs
                more = more or ticked.more
        if self._forget_at is None or abs(now - self._forget_at) >= timedelta(seconds=FORGET_SECONDS):
            forgotten = ticks.forget_ticks(now, FORGET_BATCH)
            self._forget_at = None if forgotten == FORGET_BATCH else now
        more = more or (len(due) == BATCH and (jobs > 0 or aside > 0))
        return Report(items=jobs, set_aside=aside, again=more, pause_seconds=None if more else self._pause(now))

    def _tick(self, schedule_id: int, path: str, now: datetime) -> ticks.Ticked:
        """Enqueue the due jobs of one schedule.

        Code of the project is called in another thread, since it may hang, and before the transaction, which blocks all other writers on
        SQLite. Each job has its own call and its own transaction.
        """
        if not calls_project(path):
            return ticks.tick(schedule_id, now, enqueue_scheduled)
        row = Schedule.objects.current.due(now).filter(pk=schedule_id).first()
        if row is None:
            return ticks.Ticked()
        try:
            calls = self._calls(schedule_id, partial(own, row))
        except TimeoutError as error:
            raise TimeoutError(f"{error} It was raised by the import, unique_key or target of {path}.") from error
        return ticks.tick(schedule_id, now, partial(enqueue_scheduled, own=calls), at_once=1)

    def _replan(self, now: datetime) -> None:
        """Compute the next time of each schedule whose timing has changed.

        The first call of a term also corrects the next times that differ from those that the current rules give.
        """
        if time.monotonic() < self._replan_at:
            return
        self._replan_at = time.monotonic() + REPLAN_SECONDS
        aside = self._unwritable.set_aside
        ids = plans.outdated(self.service, now, REPLAN_BATCH, aside)
        if not self._recounted:
            ids = list(dict.fromkeys(ids + plans.moved(self.service)))
        for schedule_id, name in ids:
            try:
                plans.replan(schedule_id, now)
            except LeadershipLost:
                raise
            except BaseException as error:  # one bad schedule must not stop the rest
                if is_for_the_process(error):
                    raise
                self._set_aside(schedule_id, name, now, error)
        self._recounted = True
        self._forget_inactive()

    def _set_aside(self, schedule_id: int, name: str, now: datetime, error: BaseException) -> None:
        """Write into a schedule why it could not be enqueued; if its row cannot be written, skip it for `SET_ASIDE_SECONDS`."""
        try:
            # If the database has failed, this fails, too, and ends the run.
            if ticks.set_aside(schedule_id, now, error):
                repeats.log(logging.WARNING, "Schedule %s is set aside for now: %s", name, exception_summary(error, PLAIN), kind=name)
        except Exception as refusal:
            if not db.is_refusal(refusal):
                raise
            self._unwritable.set_row_aside(schedule_id)
            text = "Schedule %s is skipped for %g s: its row cannot be written: %s"
            repeats.log(logging.ERROR, text, name, SET_ASIDE_SECONDS, reason_of(refusal), kind=name)

    def _forget_inactive(self) -> None:
        rows = plans.to_forget(self.service).exclude(pk__in=self._inactive.set_aside)
        self._inactive.run(
            lambda size: plans.forget_inactive(rows, size),
            lambda size: list(rows.values_list("pk", flat=True)[:size]),
            lambda schedule_id: plans.forget_inactive(rows.filter(pk=schedule_id), 1),
        )

    def _pause(self, now: datetime) -> float:
        wake = Schedule.objects.next_wake(self.service)
        return _seconds_until(wake, now)


def _seconds_until(wake: datetime | None, now: datetime) -> float:
    if wake is None:
        return MAX_PAUSE_SECONDS
    return min((wake - now).total_seconds(), MAX_PAUSE_SECONDS) if wake > now else LOCKED_PAUSE_SECONDS
