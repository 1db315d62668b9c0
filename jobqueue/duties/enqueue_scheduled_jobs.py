"""The duty of schedules: make the jobs whose nominal time has come, each exactly once.

Leadership keeps two workers from doing the same work; what keeps a time from getting two jobs is the transaction of each tick (see
``schedules/ticks.py``), which holds with two leaders, and with none.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta
from functools import partial

from jobqueue import conf, db
from jobqueue.bounded import Calls
from jobqueue.core import repeats
from jobqueue.core.masking import PLAIN
from jobqueue.core.texts import exception_summary
from jobqueue.duties.base import Duty, Report
from jobqueue.exceptions import LeadershipLost, is_for_the_process
from jobqueue.lifecycle.aside import reason_of
from jobqueue.lifecycle.batches import SET_ASIDE_SECONDS, Batches
from jobqueue.lifecycle.glance import Glances
from jobqueue.models import Schedule
from jobqueue.schedules import plans, ticks
from jobqueue.schedules.jobs import DefinitionChangedError, calls_project, enqueue_scheduled, own

BATCH = 100  # schedules that one run looks at
REPLAN_SECONDS = 1.0
REPLAN_BATCH = 1000
BUDGET_SECONDS = 5.0  # after which a run begins no other one
MAX_PAUSE_SECONDS = 5.0
LOCKED_PAUSE_SECONDS = 1.0  # where a row is due that somebody else has locked
CALL_SECONDS = 5.0  # for the project's code that a task's key or target comes from
FORGET_SECONDS = 600.0
FORGET_BATCH = 2000


class EnqueueScheduledJobs(Duty):
    """Enqueue what schedules say; sleep to the next of their times, at most 5 s."""

    name = "enqueue_scheduled_jobs"
    interval_seconds = MAX_PAUSE_SECONDS

    def __init__(self, glances: Glances | None = None) -> None:
        """Begin with a look at old ticks; `glances` may tell that there are no schedules.

        Each service has a leader of its own, since a worker of another service does not know the tasks.
        """
        self.service = conf.service()
        self.name = conf.scoped(EnqueueScheduledJobs.name)
        self._recounted = False
        self._replan_at = 0.0
        self._forget_at: datetime | None = None
        self._glances = glances if glances is not None else Glances()
        self._heard = False
        self._calls = Calls(CALL_SECONDS)
        self._unwritable = Batches("Enqueueing scheduled jobs", BATCH)
        self._inactive = Batches("Forgetting the next time of a schedule that is not enqueued", REPLAN_BATCH)

    def hear(self) -> None:
        """Look, whatever was seen before."""
        self._heard = True

    def run_once(self, now: datetime) -> Report:
        """Make the jobs that are due at `now`, one short transaction each, for about 5 s; forget some old ticks now and then."""
        heard, self._heard = self._heard, False
        glance = self._glances.fresh
        if glance is not None and not glance.schedules and not heard and self._forget_at is not None:
            return Report(pause_seconds=MAX_PAUSE_SECONDS)
        self._replan(now)
        ready = Schedule.objects.current.of(self.service).due(now).exclude(pk__in=self._unwritable.set_aside)
        due = list(ready.order_by("next_at").values_list("pk", "name", "task")[:BATCH])
        made = aside = 0
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
            except BaseException as error:  # one bad schedule must not stop the others
                if is_for_the_process(error):
                    raise
                self._set_aside(schedule_id, name, now, error)
                aside += 1
            else:
                made += ticked.jobs
                more = more or ticked.more
        if self._forget_at is None or abs(now - self._forget_at) >= timedelta(seconds=FORGET_SECONDS):
            forgotten = ticks.forget_ticks(now, FORGET_BATCH)
            self._forget_at = None if forgotten == FORGET_BATCH else now
        more = more or (len(due) == BATCH and (made > 0 or aside > 0))
        return Report(items=made, set_aside=aside, again=more, pause_seconds=None if more else self._pause(now))

    def _tick(self, schedule_id: int, path: str, now: datetime) -> ticks.Ticked:
        """Make the jobs of one schedule.

        What code of the project returns is asked for in another thread, which may hang, and before the transaction, which on SQLite
        keeps every other writer away. Each job has its own.
        """
        if not calls_project(path):
            return ticks.tick(schedule_id, now, enqueue_scheduled)
        row = Schedule.objects.current.due(now).filter(pk=schedule_id).first()
        if row is None:
            return ticks.Ticked()
        try:
            found = self._calls(schedule_id, partial(own, row))
        except TimeoutError as error:
            raise TimeoutError(f"{error} This is the import, unique_key or target of {path}.") from error
        return ticks.tick(schedule_id, now, partial(enqueue_scheduled, own=found), at_once=1)

    def _replan(self, now: datetime) -> None:
        """Compute the next times anew whose timing has changed, and at the start of a term all that the present rules put elsewhere."""
        if time.monotonic() < self._replan_at:
            return
        self._replan_at = time.monotonic() + REPLAN_SECONDS
        aside = self._unwritable.set_aside
        found = plans.outdated(self.service, now, REPLAN_BATCH, aside)
        if not self._recounted:
            found = list(dict.fromkeys(found + plans.moved(self.service)))
        for schedule_id, name in found:
            try:
                plans.replan(schedule_id, now)
            except LeadershipLost:
                raise
            except BaseException as error:  # one bad schedule must not stop the others
                if is_for_the_process(error):
                    raise
                self._set_aside(schedule_id, name, now, error)
        self._recounted = True
        self._forget_inactive()

    def _set_aside(self, schedule_id: int, name: str, now: datetime, error: BaseException) -> None:
        """Note on a schedule why it could not be enqueued; if its row takes no change at all, leave it alone for a while."""
        try:
            # If it is the database that fails, this fails, too, and ends the run.
            if ticks.set_aside(schedule_id, now, error):
                repeats.log(logging.WARNING, "Schedule %s is set aside for now: %s", name, exception_summary(error, PLAIN), kind=name)
        except Exception as refusal:
            if not db.is_refusal(refusal):
                raise
            self._unwritable.leave(schedule_id)
            text = "Schedule %s is not enqueued, and left alone for %g s: its row cannot be written: %s"
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
