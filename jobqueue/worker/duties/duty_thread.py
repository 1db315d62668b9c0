"""The thread of one duty: each duty has a thread, so that a duty that hangs stops no other duty."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from jobqueue import db
from jobqueue.core import masking, texts
from jobqueue.core.forks import leave_if_forked
from jobqueue.core.service import ErrorHandler
from jobqueue.duties.base import Duty, Report
from jobqueue.duties.leadership import Term
from jobqueue.exceptions import MAX_DELAY_SECONDS, JobQueueError, LeadershipLost
from jobqueue.worker.base import DatabaseService

MAX_TEXT = 500
MAX_COUNT = 2**53
RECKONED_SECONDS = 60.0

logger = logging.getLogger("jobqueue")


class DutyThread(DatabaseService):
    """A thread that runs one duty again and again, in a term of leadership; `term` is None for a duty that every worker runs."""

    longest_backoff_seconds = 5.0

    def __init__(
        self, duty: Duty, term: Term | None, now: Callable[[], datetime], done: Callable[[Report], None], on_error: ErrorHandler
    ) -> None:
        """Prepare the thread; `now` returns the time of the database, `done` is called after each run that released or recovered jobs."""
        super().__init__(on_error)
        self.name = f"duty {duty.name}"
        self.duty, self.term = duty, term
        duty.wake = self.wake
        self.told: dict[str, Any] = dict(term.metadata) if term is not None else {}
        self.told.update(interval_seconds=duty.interval_seconds, strategy=duty.strategy)
        self._now, self._done = now, done
        self._seen: tuple[datetime, float] | None = None
        self.completed_at = time.monotonic()
        self.given_up = self.aborted = False
        self.unended: list[str] = []

    @property
    def over(self) -> bool:
        """Whether the term has ended, so that the duty must not run any more."""
        return self.term is not None and self.term.ended

    def hear(self) -> None:
        """Run the duty now, since there may be new work."""
        self.duty.hear()
        self.wake()

    def turn(self) -> float | None:
        """Run the duty once if its term is trusted; return the seconds to the next run."""
        if self.over:
            return None
        if self.term is not None and not self.term.trusted:
            return 0.2  # a renewal is late; the contender renews or ends the term
        began, now, self.aborted = time.monotonic(), self._moment(), False
        try:
            report = self._run(now)
        except LeadershipLost as lost:
            logger.warning("This worker stops leading a duty during a run, and the rest of the run wrote nothing: %s", lost)
            return 0.2
        except BaseException as error:
            self._note_error(error, now)
            raise
        self._note(report, now, time.monotonic() - began)
        if report.items and self.duty.lets_jobs_in:
            self._done(report)
        pause = report.pause_seconds
        if not isinstance(pause, int | float) or not 0 <= pause <= MAX_DELAY_SECONDS:
            pause = self.duty.interval_seconds
        return 0.0 if report.again else pause

    def tear_down(self) -> None:
        """End the operations that the duty has begun, without the fence, since another worker may lead the duty already."""
        try:
            self.unended = self.duty.end()
        finally:
            super().tear_down()

    def _moment(self) -> datetime:
        """Return the time of the database; if the duty needs no exact time, compute it from an earlier answer and the local clock."""
        if self.duty.exact_now or self._seen is None or time.monotonic() - self._seen[1] > RECKONED_SECONDS:
            self._seen = (self._now(), time.monotonic())
        return self._seen[0] + timedelta(seconds=time.monotonic() - self._seen[1])

    def _run(self, now: datetime) -> Report:
        pid = os.getpid()
        try:
            with db.fenced(self.term.check) if self.term is not None else contextlib.nullcontext():
                # In a copy of the context, so that a time zone or another variable that the duty sets ends with the run.
                report = contextvars.copy_context().run(self.duty.run_once, now)
        except BaseException as error:
            leave_if_forked(pid, error)
            raise
        leave_if_forked(pid, None)
        if left := db.hygiene.end_transactions():
            raise JobQueueError(f"The duty left a transaction open ({', '.join(left)}): what it wrote there is rolled back.")
        return report

    def _note(self, report: Report, now: datetime, seconds: float) -> None:
        self.completed_at = time.monotonic()
        told = self.told  # replaced, never changed: another thread writes it into the row
        self.told = {
            **told,
            "last_run_at": now.isoformat(),
            "last_duration_seconds": round(seconds, 4),
            "last_items": _whole(report.items),
            "items": _whole(_count(told, "items") + _whole(report.items)),
            "set_aside": _whole(_count(told, "set_aside") + _whole(report.set_aside)),
            "runs": _count(told, "runs") + 1,
            "failures_in_a_row": 0,
        }

    def _note_error(self, error: BaseException, now: datetime) -> None:
        told = self.told
        self.told = {
            **told,
            "errors": _count(told, "errors") + 1,
            "failures_in_a_row": _count(told, "failures_in_a_row") + 1,
            "last_error": texts.shorten(texts.exception_summary(error, masking.PLAIN), MAX_TEXT),
            "last_error_at": now.isoformat(),
        }

    def _report_error(self, error: BaseException) -> None:
        if not self.given_up:
            super()._report_error(error)


def _whole(value: object) -> int:
    """Return a count as a whole number that every JSON parser can read; 0 if it is none."""
    return min(max(value, 0), MAX_COUNT) if isinstance(value, int) else 0


def _count(told: dict[str, Any], name: str) -> int:
    """Return a number of the metadata; 0 if the row holds no whole number there."""
    value = told.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
