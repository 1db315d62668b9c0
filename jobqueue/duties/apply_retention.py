"""The duty of retention: it marks ended jobs as stale, deletes them, and deletes old events (see ``retention/apply.py``)."""

from __future__ import annotations

from datetime import datetime

from jobqueue import conf
from jobqueue.duties.base import Duty, Report
from jobqueue.models import Job
from jobqueue.retention.apply import Sweep, by_settings
from jobqueue.retention.events import OldEvents

EVENTS_SECONDS = 0.5
# The interval grows with the shortest age. A job may be deleted minutes late, and an idle worker sends fewer statements.
SHARE_OF_AGE, MAX_SECONDS = 1 / 1000, 600.0
SHORTER_SECONDS = 10.0  # limit of one run on a database with one writer: there, a hook that hangs blocks all other writers


class ApplyRetention(Duty):
    """The duty that applies `STALE_AFTER`, `DELETE_AFTER`, `QUEUE_RETENTION` and `EVENT_DELETE_AFTER`, about a second at a time."""

    name = "apply_retention"
    interval_seconds = 60.0

    def __init__(self) -> None:
        """Prepare to start with the oldest job and the oldest event; set the interval by the shortest age."""
        ages = [age for rules in conf.retention() for age in rules.ages()]
        shortest = min([*ages, *([] if (of_events := conf.event_age()) is None else [of_events])], default=0.0)
        self.interval_seconds = min(max(self.interval_seconds, shortest * SHARE_OF_AGE), MAX_SECONDS)
        if Job.objects.database.one_writer:
            self.longest_run_seconds = SHORTER_SECONDS
        self._sweep: Sweep | None = None
        self._events: OldEvents | None = None

    def can_run(self) -> bool:
        """Return whether the settings have a rule of retention."""
        return any(conf.retention()) or conf.event_age() is not None

    def run_once(self, now: datetime) -> Report:
        """Continue where the last run ended, and request the next run at once if there is more to do."""
        if self._sweep is None or self._events is None:
            self._sweep, self._events = by_settings(), OldEvents(conf.event_age())
        done = self._sweep.run()
        events, more = self._events.run(EVENTS_SECONDS)
        return Report(items=done.deleted + done.stale + events, set_aside=done.set_aside, again=done.more or more)
