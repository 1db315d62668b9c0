"""The thread that contends for duties, renews the terms of this worker, and watches the threads that run its duties.

It runs no duty itself. So a duty that hangs or fails neither stops the renewal of other terms nor keeps its own term for ever. The short
duties share a thread. If a run in it lasts longer than `SPLIT_SECONDS`, the other short duties continue in a new thread. If a duty has
completed no run for too long, this worker gives it up: it cuts the connection of the duty, abandons its thread, and does not contend for
the duty for a while. The term of the duty has ended, so the abandoned thread can write nothing more.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable

from django.db import DatabaseError

from jobqueue import conf
from jobqueue.core import repeats
from jobqueue.core.service import ErrorHandler, Named
from jobqueue.db import is_outage
from jobqueue.duties.builtin import Factories
from jobqueue.duties.deliver_webhooks import DeliverWebhooks
from jobqueue.duties.leadership import Leadership, Term
from jobqueue.duties.promote_due_jobs import PromoteDueJobs
from jobqueue.insight.duties import stuck_seconds
from jobqueue.lifecycle import wakeup
from jobqueue.worker.base import DatabaseService
from jobqueue.worker.duties.runner import DutyRunner
from jobqueue.worker.duties.threads import DutyThreads

# Shares of a lease: with the default of 10 s, workers contend every 1 to 5 s, and 5 s after an error.
CONTEND_SHARES = (0.1, 0.5)
LEAVE_TO_OTHERS_SHARE = 0.6
# A worker that leads every duty contends seldom: its renewals report lost terms and the time of the database.
LEAD_ALL_SHARE = 3.0
END_SECONDS = 0.5  # for the threads of a worker that has no duty
ENDED_SECONDS = 0.25  # between notifications of ended jobs; after one, the duty polls closely for longer than that
REPORT_EACH = 5  # renewals for one that writes the metadata, which is most of the cost, and which only operators read

logger = logging.getLogger("jobqueue")


class Duties(DatabaseService):
    """The duties of one worker process: those that it leads, and those that every worker runs."""

    name = "duties"
    longest_backoff_seconds = 1.0

    def __init__(
        self,
        worker_id: str,
        find_factories: Callable[[Callable[[], float]], Factories],
        *,
        place: str,
        heartbeat_seconds: float,
        released: Callable[[], None],
        on_error: ErrorHandler,
    ) -> None:
        """Prepare the thread.

        `find_factories` returns the factories of all duties. Its argument is a function that returns the monotonic time before which no
        expired lease is recovered. `place` names this process on pages and in commands. `released` is called when a duty has released
        or recovered jobs. `heartbeat_seconds` is the interval at which workers renew the leases of jobs.
        """
        super().__init__(on_error)
        self._leadership = Leadership(worker_id)
        settings = conf.current()
        self._lease_seconds, self._renew_seconds = settings.duty_lease_seconds, settings.duty_heartbeat_seconds
        self._find_factories, self._place, self._heartbeat_seconds = find_factories, place, heartbeat_seconds
        self._report_failure = on_error
        self._threads = DutyThreads(self._leadership.clock.now, self._failed)
        self._released = released
        self._runners: dict[str, DutyRunner] = {}
        self._factories: Factories = {}
        self._names: set[str] | None = None
        self._not_before: dict[str, float] = {}
        self._contend_at = self._renew_at = 0.0
        self._renewals = 0
        self._turned_at = time.monotonic()
        self.no_sweep_before = 0.0
        self._trouble_at = 0.0
        self._ended_at = 0.0

    @property
    def runners(self) -> list[DutyRunner]:
        """The duties that this worker does now."""
        return list(self._runners.values())

    @property
    def end_seconds(self) -> float:
        """The seconds that the duties may take to end."""
        return max((runner.duty.end_seconds for runner in self.runners), default=END_SECONDS)

    @property
    def lingering(self) -> list[str]:
        """The names of the threads that still run after they were asked to stop."""
        return self._threads.lingering

    @property
    def unended(self) -> list[str]:
        """The names of the operations that duties had begun and could not complete."""
        return self._threads.unended

    def stop_waiting(self) -> None:
        """Make the duties end without waiting for operations in flight."""
        for runner in self.runners:
            runner.duty.stop_waiting()

    def notify(self, *names: str) -> None:
        """Run these duties at once if this process does them; without names, run all of them and contend. Call it from any thread."""
        for runner in self.runners:
            if not names or runner.duty.name in names:
                runner.notify()
                self._threads.wake(runner)
        if not names:
            self._contend_at = 0.0
            self.wake()

    def notify_due(self) -> None:
        """Promote due jobs at once if this process leads that duty."""
        self.notify(PromoteDueJobs.name)

    def notify_ended(self, retrying: bool) -> None:
        """Send webhooks at once if this process leads that duty, since jobs have ended here; promote jobs soon if one is `retrying`."""
        if retrying:  # the retry may be due before the next run of the duty
            self.notify_due()
        now = time.monotonic()
        if now - self._ended_at >= ENDED_SECONDS:
            self._ended_at = now
            self.notify(DeliverWebhooks.name)

    def turn(self) -> float | None:
        """Renew the terms, contend for free duties, and check the threads; return the seconds to the next turn."""
        now = time.monotonic()
        if now - self._turned_at > self._renew_seconds + self._heartbeat_seconds:
            # The process was stopped, and its heartbeat with it. Leases that have run out but are not recovered can still be renewed.
            self._note_trouble()
        self._turned_at = now
        if self._names is None:
            self._names = self._begin()
        self._give_up(now)
        self._threads.check()
        self._release(now)
        if now >= self._renew_at:
            self._renew_at = now + self._renew_seconds
            self._renew()
        if self._lacks_something:
            self._contend_at = min(self._contend_at, now + self._lease_seconds * CONTEND_SHARES[1])
        if now >= self._contend_at:
            # Set before `_contend`, since a notification may reset it meanwhile. It is random, so that workers contend at different times.
            share = random.uniform(*CONTEND_SHARES) if self._lacks_something else LEAD_ALL_SHARE  # noqa: S311
            self._contend_at = now + self._lease_seconds * share
            self._contend(now)
        self._release(now)
        return max(min(self._renew_at, self._contend_at) - time.monotonic(), 0.0)

    def stop(self) -> None:
        """Ask the duties to end after their current runs, and then this thread."""
        self._threads.stop()
        super().stop()

    def tear_down(self) -> None:
        """Stop the duties, and resign, so that other workers can lead them at once."""
        self._threads.stop()
        self._threads.join(time.monotonic() + self.end_seconds)
        try:
            self._resign(list(self._leadership.terms))
        finally:
            super().tear_down()

    # Terms

    def _begin(self) -> set[str]:
        """Start the duties that every worker runs, and return the names of those that one worker leads; skip whose `can_run` is false."""
        self._factories = self._find_factories(lambda: self.no_sweep_before)
        led = set()
        for name, make in self._factories.items():
            duty = make()
            if not duty.can_run():
                continue
            if duty.strategy == "everyone":
                self._start(name, None)
            else:
                led.add(name)
        return led

    def _renew(self) -> None:
        self._renewals += 1
        try:
            self._leadership.renew(self._metadata() if self._renewals % REPORT_EACH == 1 else {})
        except DatabaseError as error:
            if is_outage(error):
                raise
            repeats.log(logging.ERROR, "The state of the duties cannot be written; their leases are renewed without it.", exc_info=True)
            self._leadership.renew({})

    def _contend(self, now: float) -> None:
        names = {name for name in self._names or () if self._not_before.get(name, 0.0) <= now and name not in self._runners}
        terms = self._leadership.contend(names)
        for term in terms:
            self._start(term.name, term)
        if terms:
            logger.info("This worker now leads: %s.", ", ".join(sorted(term.name for term in terms)))

    @property
    def _lacks_something(self) -> bool:
        return any(name not in self._runners for name in self._names or ())

    def _start(self, name: str, term: Term | None) -> None:
        runner = self._runners[name] = DutyRunner(self._factories[name](), term, self._place, self._released)
        self._threads.start(runner)

    def _release(self, now: float) -> None:
        """Drop the duties whose terms have ended or are in doubt, and resign from those whose time to rotate has come."""
        lost = []
        for name, runner in list(self._runners.items()):
            term = runner.term
            if term is not None and not term.trusted:
                term.ended = True
                lost.append(name)
                self._drop(runner)
                self._leadership.forget(name)
            elif self._must_rotate(runner, now) and self._threads.stop_running(runner):  # else in a later turn, when its run has ended
                self._hand_over(runner, now, LEAVE_TO_OTHERS_SHARE * self._lease_seconds)
        if lost:  # one line, since an outage ends all terms
            logger.warning("This worker no longer leads: %s.", ", ".join(sorted(lost)))

    def _must_rotate(self, runner: DutyRunner, now: float) -> bool:
        after = runner.duty.rotate_after_seconds
        return runner.term is not None and after is not None and now - runner.term.began >= after

    def _give_up(self, now: float) -> None:
        for runner in self.runners:
            limit = runner.duty.longest_run_seconds
            if limit is not None and runner.busy_seconds > limit and not runner.is_aborted:
                logger.error(
                    "A run of the duty %s has lasted %.0f s; its database connection is cut.", runner.duty.name, runner.busy_seconds
                )
                runner.is_aborted = True
                self._threads.abort(runner)
            hangs = limit is not None and runner.busy_seconds > 2 * limit
            if hangs or now - max(runner.last_good_turn, self._trouble_at) > stuck_seconds(runner.duty.interval_seconds):
                self._give_up_on(runner, now)

    def _give_up_on(self, runner: DutyRunner, now: float) -> None:
        logger.error("The duty %s has completed no run for %.0f s; this worker gives it up.", runner.duty.name, now - runner.last_good_turn)
        runner.is_given_up = True
        runner.metadata = {**runner.metadata, "given_up": int(runner.metadata.get("given_up") or 0) + 1}
        self._threads.abort(runner)
        if runner.term is not None:
            self._hand_over(runner, now, 10 * LEAVE_TO_OTHERS_SHARE * self._lease_seconds)
        else:
            self._drop(runner)
            self._start(runner.duty.name, None)

    def _hand_over(self, runner: DutyRunner, now: float, seconds: float) -> None:
        self._not_before[runner.duty.name] = now + seconds
        self._resign([runner.duty.name], {runner.duty.name: runner.metadata})
        self._drop(runner)

    def _drop(self, runner: DutyRunner) -> None:
        self._threads.drop(runner)
        self._runners.pop(runner.duty.name, None)

    def _resign(self, names: Iterable[str], metadata: dict[str, dict[str, object]] | None = None) -> None:
        if self._leadership.resign(list(names), metadata or self._metadata()):
            wakeup.duties_changed()

    def _metadata(self) -> dict[str, dict[str, object]]:
        return {name: runner.metadata for name, runner in self._runners.items() if runner.term is not None}

    # Errors

    def _failed(self, failed: Named, error: BaseException, failures: int) -> None:
        # An outage in a duty of the project may concern another database than that of the jobs.
        if is_outage(error) and not (isinstance(failed, DutyRunner) and failed.duty.longest_run_seconds is None):
            self._note_trouble()
        self._report_failure(failed, error, failures)

    def _after_error(self, service: Named, error: BaseException, failures: int) -> None:
        self._contend_at = time.monotonic() + CONTEND_SHARES[1] * self._lease_seconds
        if is_outage(error):
            self._note_trouble()
        super()._after_error(service, error, failures)

    def _note_trouble(self) -> None:
        """Note an outage: workers get time to renew their leases before jobs are recovered, and no duty counts as stuck because of it."""
        self._trouble_at = time.monotonic()
        self.no_sweep_before = self._trouble_at + 2 * self._heartbeat_seconds
