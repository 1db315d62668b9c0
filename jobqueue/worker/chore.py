"""One thread for one duty, so that a duty that hangs stops no other one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from jobqueue import db, texts
from jobqueue.duties.base import Duty, Report
from jobqueue.duties.leadership import Term
from jobqueue.exceptions import LeadershipLost
from jobqueue.service import ErrorHandler
from jobqueue.worker.base import DatabaseService

LONGEST_TEXT = 500

logger = logging.getLogger("jobqueue")


class Chore(DatabaseService):
    """Run one duty again and again: in a term of leadership, or (`term` None) for itself alone, as every worker does."""

    longest_backoff_seconds = 5.0

    def __init__(
        self, duty: Duty, term: Term | None, now: Callable[[], datetime], done: Callable[[Report], None], on_error: ErrorHandler
    ) -> None:
        """Prepare the thread; `now` is the database's time, `done` is told of each run that let jobs in."""
        super().__init__(on_error)
        self.name = f"duty {duty.name}"
        self.duty, self.term = duty, term
        self.told: dict[str, Any] = dict(term.metadata) if term is not None else {}
        self.told.update(interval_seconds=duty.interval_seconds, strategy=duty.strategy)
        self._now, self._done = now, done
        self.completed_at = time.monotonic()
        self.given_up = self.aborted = False

    @property
    def over(self) -> bool:
        """Whether its term has ended, so that it is to do nothing more."""
        return self.term is not None and self.term.ended

    def hear(self) -> None:
        """Look now: there may be new work."""
        self.duty.hear()
        self.wake()

    def turn(self) -> float | None:
        """Run the duty once, if we may; return how long to rest."""
        if self.over:
            return None
        if self.term is not None and not self.term.trusted:
            return 0.2  # a renewal is late: whoever renews decides
        began, now, self.aborted = time.monotonic(), self._now(), False
        try:
            report = self._run(now)
        except LeadershipLost as lost:
            logger.warning("This worker stops leading a duty in the middle of a run, which wrote nothing more: %s", lost)
            return 0.2
        except BaseException as error:
            self._note_error(error, now)
            raise
        self._note(report, now, time.monotonic() - began)
        if report.items and self.duty.lets_jobs_in:
            self._done(report)
        pause = self.duty.interval_seconds if report.pause_seconds is None else report.pause_seconds
        return 0.0 if report.again else pause

    def _run(self, now: datetime) -> Report:
        if self.term is None:
            return self.duty.run_once(now)
        with db.fenced(self.term.check):
            return self.duty.run_once(now)

    def _note(self, report: Report, now: datetime, seconds: float) -> None:
        self.completed_at = time.monotonic()
        told = self.told  # a new one each time: another thread writes it into the row meanwhile
        self.told = {
            **told,
            "last_run_at": _iso(now),
            "last_duration_seconds": round(seconds, 4),
            "last_items": report.items,
            "items": _count(told, "items") + report.items,
            "set_aside": _count(told, "set_aside") + report.set_aside,
            "runs": _count(told, "runs") + 1,
            "failures_in_a_row": 0,
        }

    def _note_error(self, error: BaseException, now: datetime) -> None:
        told = self.told
        self.told = {
            **told,
            "errors": _count(told, "errors") + 1,
            "failures_in_a_row": _count(told, "failures_in_a_row") + 1,
            "last_error": texts.shorten(texts.exception_summary(error), LONGEST_TEXT),
            "last_error_at": _iso(now),
        }

    def _report_error(self, error: BaseException) -> None:
        if not self.given_up:
            super()._report_error(error)


def _count(told: dict[str, Any], name: str) -> int:
    """Return a number of the row, whatever somebody has written into it."""
    value = told.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _iso(when: datetime) -> str:
    """Return a time with its zone, also where the project has none (USE_TZ = False)."""
    return (when if when.tzinfo else when.astimezone()).isoformat()
