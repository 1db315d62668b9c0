"""A thread that runs duties: the short ones of a worker share a thread, and each long one has its own.

The shared thread first asks, in one statement, which duties have work (`Duty.questions`), and runs only those. It also asks for the duties
with a thread of their own, and wakes them. If the statement fails, each duty runs and checks for work itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from jobqueue import db
from jobqueue.core.service import ErrorHandler
from jobqueue.db import questions
from jobqueue.models import Job
from jobqueue.worker.base import DatabaseService
from jobqueue.worker.duties.runner import DutyRunner

ASK_SECONDS = 1.0
WITHOUT_ASKING_SECONDS = 5.0  # after a statement of questions that failed
TOGETHER_SECONDS = 0.25  # the duties that are due within this time use the same results
IDLE_SECONDS = 60.0  # a thread that is idle for longer keeps no connection

logger = logging.getLogger("jobqueue")


class AskedQuestions(NamedTuple):
    """The statement of all questions, with the duties of this process and how many questions each of them has."""

    runners: tuple[DutyRunner, ...]
    counts: dict[DutyRunner, int]
    statement: questions.Statement


class DutyThread(DatabaseService):
    """A thread that runs duties when they are due; `name` is that of the thread."""

    def __init__(self, name: str, clock: Callable[[], datetime], on_error: ErrorHandler, *, asks: bool = False) -> None:
        """Prepare the thread; `clock` returns the time of the database. If `asks`, send the questions of the duties."""
        super().__init__(on_error)
        self.name, self._clock, self._asks = name, clock, asks
        self._lock = threading.Lock()
        self.runners: tuple[DutyRunner, ...] = ()
        self.others: tuple[DutyThread, ...] = ()  # the threads for whose duties this one also asks
        self.running: DutyRunner | None = None
        self._is_retired = False
        self._asked_at = self._ask_again_at = 0.0
        self.asking_since: float | None = None
        self._asked: AskedQuestions | None = None
        self.unended: list[str] = []

    def add(self, runner: DutyRunner) -> None:
        """Run a duty from now on."""
        with self._lock:
            self.runners = (*self.runners, runner)
        self.wake()

    def remove(self, runner: DutyRunner) -> None:
        """Do not run a duty again; a run in progress continues."""
        with self._lock:
            self.runners = tuple(other for other in self.runners if other is not runner)

    def retire(self, runner: DutyRunner) -> list[DutyRunner] | None:
        """End this thread after the current run; return its other duties, or None if it does not run `runner` any more."""
        with self._lock:
            if self.running is not runner:
                return None
            self._is_retired = True
            others = [other for other in self.runners if other is not runner]
            self.runners = (runner,)
        self.stop()
        return others

    def turn(self) -> float | None:
        """Run each duty that is due; return the seconds to the next run."""
        for runner in self._with_work():
            if not self._take(runner):
                continue
            try:
                runner.run(self._clock())
            except BaseException as error:  # noqa: BLE001 - an error of one duty must not stop another
                self._report_failure(runner, error)
            finally:
                self.running = None
        pause = self._seconds_to_next()
        if pause is not None and pause >= IDLE_SECONDS:
            db.hygiene.close_all()
        return pause

    def tear_down(self) -> None:
        """End the operations that the duties have begun, without the fence, since another worker may lead them already."""
        try:
            self.unended = [name for runner in self.runners for name in runner.duty.end()]
        finally:
            super().tear_down()

    def _take(self, runner: DutyRunner) -> bool:
        # Under the lock, so that a duty never runs in two threads: `retire` moves those that do not run now.
        with self._lock:
            if self._is_retired or self.stopping or runner not in self.runners:
                return False
            self.running = runner
        return True

    def _seconds_to_next(self) -> float | None:
        at = [0.0 if runner.is_notified else runner.next_at for runner in self.runners if not runner.is_over]
        if self.others:
            at.append(max(self._asked_at + ASK_SECONDS, self._ask_again_at))
        return max(min(at) - time.monotonic(), 0.0) if at else None

    def _report_failure(self, runner: DutyRunner, error: BaseException) -> None:
        if runner.is_given_up:
            db.hygiene.close_broken(Job.objects.database.alias)
            return
        try:
            self._after_error(runner, error, runner.failures)
        except Exception:
            logger.exception("The failure of the %s could not be reported: %s", runner.name, error)

    # Questions

    def _with_work(self) -> list[DutyRunner]:
        """Return the duties that are due and, if this thread asks, have work."""
        now = time.monotonic()
        due = [runner for runner in self.runners if runner.take_due(now)]
        if not self._asks or now < self._ask_again_at:
            return due
        asked = self._questions()
        if not any(runner in asked.counts for runner in due) and now < self._asked_at + ASK_SECONDS:
            return due
        self._asked_at = now
        if not asked.counts:
            return due
        self.asking_since = now
        try:
            at, answers = questions.ask(Job.objects.database, asked.statement)
        except Exception as error:
            self._ask_again_at = now + WITHOUT_ASKING_SECONDS
            self._run_others(asked)
            if db.is_outage(error):
                raise
            self._after_error(self, error, 1)
            return due
        finally:
            self.asking_since = None
        soon = [runner for runner in self.runners if runner in asked.counts and (runner in due or runner.is_due(now + TOGETHER_SECONDS))]
        return [runner for runner in due if runner not in asked.counts] + self._answered(soon, asked, at, answers)

    def _run_others(self, asked: AskedQuestions) -> None:
        """Run the duties of other threads, so that each checks itself whether there is work."""
        for thread in self.others:
            for runner in thread.runners:
                if runner in asked.counts:
                    runner.next_at = 0.0
            thread.wake()

    def _answered(self, due: Sequence[DutyRunner], asked: AskedQuestions, at: datetime, answers: Sequence[Any]) -> list[DutyRunner]:
        """Return the duties that are due and have work; let other threads run theirs earlier."""
        with_work, first = [], 0
        for runner, count in asked.counts.items():
            own_answers, first = answers[first : first + count], first + count
            if runner in due:
                if runner.answer(at, own_answers, self._asked_at):
                    with_work.append(runner)
            elif runner not in self.runners and runner.hasten(at, own_answers):
                for thread in self.others:
                    thread.wake()
        return with_work

    def _questions(self) -> AskedQuestions:
        """Return the statement for the current duties; it is compiled only when they change."""
        runners = (*self.runners, *(runner for thread in self.others for runner in thread.runners))
        if self._asked is None or self._asked.runners != runners:
            by_runner = {runner: runner.duty.questions() for runner in runners}
            counts = {runner: len(own_questions) for runner, own_questions in by_runner.items() if own_questions}
            queries = [query for own_questions in by_runner.values() for query in own_questions]
            self._asked = AskedQuestions(runners, counts, questions.compile_questions(Job.objects.database, queries))
        return self._asked
