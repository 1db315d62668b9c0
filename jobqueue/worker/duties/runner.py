"""One duty of a worker: its runs, their fence, and the report on them that the row of the duty shows."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import random
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from jobqueue import db
from jobqueue.core import masking, texts
from jobqueue.core.forks import exit_if_forked
from jobqueue.duties.base import Duty, Report
from jobqueue.duties.leadership import Term
from jobqueue.exceptions import MAX_DELAY_SECONDS, JobQueueError, LeadershipLost

MAX_TEXT = 500
MAX_COUNT = 2**53
UNTRUSTED_SECONDS = 0.2
MAX_BACKOFF_SECONDS = 5.0

logger = logging.getLogger("jobqueue")


class DutyRunner:
    """One duty that this worker does; `term` is None for a duty that every worker does."""

    def __init__(self, duty: Duty, term: Term | None, place: str, released: Callable[[], None]) -> None:
        """Prepare the first run; `released` is called after each run that released or recovered jobs."""
        self.name = f"duty {duty.name}"
        self.duty, self.term = duty, term
        self.metadata: dict[str, Any] = dict(term.metadata) if term is not None else {}
        self.metadata.update(interval_seconds=duty.interval_seconds, strategy=duty.strategy, process=place)
        self._released = released
        self.next_at = time.monotonic() + duty.first_pause_seconds if duty.first_pause_seconds else 0.0
        self.is_notified = False
        self.began: float | None = None
        self.last_good_turn = time.monotonic()
        self.failures = 0
        self.is_given_up = self.is_aborted = False
        self.details: dict[str, float | str] = {}

    @property
    def is_over(self) -> bool:
        """Whether the term has ended, so that the duty must not run any more."""
        return self.term is not None and self.term.ended

    @property
    def busy_seconds(self) -> float:
        """How long the current run has lasted; 0 between runs."""
        began = self.began
        return 0.0 if began is None else time.monotonic() - began

    def notify(self) -> None:
        """Run the duty at once, since there may be new work. Any thread may call this."""
        self.duty.notify()
        self.is_notified = True

    def take_due(self, now: float) -> bool:
        """Return whether the duty is to run now. A notification that arrives later counts for the next call."""
        if self.is_notified:
            self.is_notified, self.next_at = False, 0.0
        return self.is_due(now)

    def is_due(self, now: float) -> bool:
        """Return whether the time of the next run has come, and the term is trusted."""
        if self.is_over:
            return False
        if self.term is not None and not self.term.trusted:
            self.next_at = now + UNTRUSTED_SECONDS  # a renewal is late; the contender renews or ends the term
            return False
        return now >= self.next_at

    def answer(self, now: datetime, answers: Sequence[Any], asked_at: float) -> bool:
        """Return whether the duty is to run now, by the results of its questions; if not, plan the next time and count an empty run."""
        seconds = self.duty.seconds_to_work(now, answers)
        if seconds is not None and seconds <= 0:
            return True
        self._record(Report(), now, 0.0)
        pause = self.duty.pause_seconds
        self.next_at = asked_at + (pause if seconds is None else min(seconds, pause))
        return False

    def hasten(self, now: datetime, answers: Sequence[Any]) -> bool:
        """Advance the next run if the results show that it would find work earlier; return whether it was advanced."""
        seconds = self.duty.seconds_to_work(now, answers)
        at = None if seconds is None else time.monotonic() + max(seconds, 0.0)
        if at is None or at >= self.next_at:
            return False
        self.next_at = at
        return True

    def run(self, now: datetime) -> None:
        """Run the duty once, and plan the next run; raise the error of the run."""
        self.is_aborted = False
        self.began = began = time.monotonic()
        try:
            report = self._run(now)
        except LeadershipLost as lost:
            logger.warning("This worker lost a duty during a run, and the rest of the run wrote nothing: %s", lost)
            self.next_at = time.monotonic() + UNTRUSTED_SECONDS
            return
        except BaseException as error:
            self._record_error(error, now)
            raise
        finally:
            self.began = None
        self._record(report, now, time.monotonic() - began)
        if report.items and self.duty.releases_jobs:
            self._released()

    def _run(self, now: datetime) -> Report:
        pid = os.getpid()
        try:
            with db.fenced(self.term.check) if self.term is not None else contextlib.nullcontext():
                # In a copy of the context, so that a time zone or another variable that the duty sets ends with the run.
                report = contextvars.copy_context().run(self.duty.run_once, now)
        except BaseException as error:
            exit_if_forked(pid, error)
            raise
        exit_if_forked(pid, None)
        if left_open := db.hygiene.end_transactions():
            raise JobQueueError(f"The duty left a transaction open ({', '.join(left_open)}): what it wrote there is rolled back.")
        return report

    def _record(self, report: Report, now: datetime, seconds: float) -> None:
        pause = report.pause_seconds
        if not isinstance(pause, int | float) or not 0 <= pause <= MAX_DELAY_SECONDS:
            pause = self.duty.pause_seconds
        self.last_good_turn = time.monotonic()
        self.next_at = self.last_good_turn + (0.0 if report.again else pause)
        self.failures = 0
        before = self.metadata  # replaced, never changed: another thread writes it into the row
        self.metadata = {
            **before,
            "last_run_at": now.isoformat(),
            "last_duration_seconds": round(seconds, 4),
            "last_items": _whole(report.items),
            "items": _whole(_count(before, "items") + _whole(report.items)),
            "set_aside": _whole(_count(before, "set_aside") + _whole(report.set_aside)),
            "runs": _count(before, "runs") + 1,
            "failures_in_a_row": 0,
        }

    def _record_error(self, error: BaseException, now: datetime) -> None:
        self.failures += 1
        ceiling = min(0.1 * 2.0 ** min(self.failures, 10), MAX_BACKOFF_SECONDS)
        self.next_at = time.monotonic() + ceiling * random.uniform(0.5, 1.0)  # noqa: S311 - workers must not retry in step
        before = self.metadata
        self.metadata = {
            **before,
            "errors": _count(before, "errors") + 1,
            "failures_in_a_row": _count(before, "failures_in_a_row") + 1,
            "last_error": texts.shorten(texts.exception_summary(error, masking.PLAIN), MAX_TEXT),
            "last_error_at": now.isoformat(),
        }


def _whole(value: object) -> int:
    """Return a count as a whole number that every JSON parser can read; 0 if it is none."""
    return min(max(value, 0), MAX_COUNT) if isinstance(value, int) else 0


def _count(metadata: dict[str, Any], name: str) -> int:
    """Return a number of the metadata; 0 if the row holds no whole number there."""
    value = metadata.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
