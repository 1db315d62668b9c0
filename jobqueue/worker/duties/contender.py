"""The thread that contends for duties, renews what it leads, and watches over the threads that do them.

It does no duty itself: so a duty that hangs or fails neither loses the leases of the others nor keeps its own for ever. One that has
completed no run for too long is given up on: its connection is cut, its thread left to itself (its term has ended, so it can write
nothing more), and the duty is left to another worker for a while.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable

from django.db import DatabaseError

from jobqueue import conf
from jobqueue.core import repeats
from jobqueue.core.service import ErrorHandler, Service
from jobqueue.db import is_outage
from jobqueue.duties.builtin import Makers
from jobqueue.duties.deliver_webhooks import DeliverWebhooks
from jobqueue.duties.leadership import Leadership, Term
from jobqueue.duties.promote_due_jobs import PromoteDueJobs
from jobqueue.insight.duties import stuck_seconds
from jobqueue.lifecycle import wakeup
from jobqueue.worker.base import DatabaseService
from jobqueue.worker.duties.duty_thread import DutyThread

# Of a lease: with the default of 10 s, contenders look every 1 to 5 s, and after an error in 5 s.
CONTEND_SHARES = (0.1, 0.5)
LEAVE_TO_OTHERS_SHARE = 0.6
# Who leads everything learns by its renewals what was taken from it, and what the time is.
LEAD_ALL_SHARE = 3.0
ENDED_SECONDS = 0.25  # between two words of ended jobs: whoever hears of one looks closely for longer than that
TELL_EACH = 5  # renewals: what duties tell of themselves is for people, and most of what a renewal costs

logger = logging.getLogger("jobqueue")


class Duties(DatabaseService):
    """Lead what nobody leads, in one worker process."""

    name = "duties"
    longest_backoff_seconds = 1.0

    def __init__(
        self,
        worker_id: str,
        makers: Callable[[Callable[[], float]], Makers],
        *,
        place: str,
        heartbeat_seconds: float,
        moved: Callable[[], None],
        on_error: ErrorHandler,
    ) -> None:
        """Prepare the thread.

        `makers` returns how each duty is made, given what tells before which monotonic time no lease is to be judged; `place` names
        this process for people, `moved` is told that a duty let jobs in, and `heartbeat_seconds` is how often workers renew the
        leases of jobs.
        """
        super().__init__(on_error)
        self._leadership = Leadership(worker_id)
        settings = conf.current()
        self._lease_seconds, self._renew_seconds = settings.duty_lease_seconds, settings.duty_heartbeat_seconds
        self._find_makers, self._place, self._heartbeat_seconds = makers, place, heartbeat_seconds
        self._moved, self._tell_of_error = moved, on_error
        self._chores: dict[str, DutyThread] = {}
        self._leaving: list[DutyThread] = []
        self._makers: Makers = {}
        self._names: set[str] | None = None
        self._not_before: dict[str, float] = {}
        self._contend_at = self._renew_at = 0.0
        self._renewals = 0
        self._turned_at = time.monotonic()
        self.no_sweep_before = 0.0
        self._trouble_at = 0.0
        self._ending: list[DutyThread] = []
        self._ended_at = 0.0

    @property
    def chores(self) -> list[DutyThread]:
        """The threads that do duties now."""
        return list(self._chores.values())

    @property
    def end_seconds(self) -> float:
        """How long its duties may take to end."""
        return max((chore.duty.end_seconds for chore in self.chores), default=0.0)

    @property
    def lingering(self) -> list[str]:
        """Name the threads of duties that go on after they were told to stop."""
        return [f"duty {chore.duty.name}" for chore in self._ending if chore.alive]

    @property
    def unended(self) -> list[str]:
        """Name what duties had begun and could not bring to an end."""
        return [name for chore in self._ending for name in chore.unended]

    def hurry(self) -> None:
        """Let the duties wait for nothing more."""
        for chore in self.chores:
            chore.duty.hurry()

    def hear(self, *names: str) -> None:
        """Let these duties look at once, where this process does them (none named: all, and look whether one is free); from any thread."""
        for chore in self.chores:
            if not names or chore.duty.name in names:
                chore.hear()
        if not names:
            self._contend_at = 0.0
            self.wake()

    def hear_of_due(self) -> None:
        """Let due jobs be looked for at once, where this process does it."""
        self.hear(PromoteDueJobs.name)

    def hear_of_ended(self) -> None:
        """Let webhooks be looked for at once, where this process does it: jobs have ended here."""
        now = time.monotonic()
        if now - self._ended_at >= ENDED_SECONDS:
            self._ended_at = now
            self.hear(DeliverWebhooks.name)

    def turn(self) -> float | None:
        """Renew, contend, and look after the threads; return how long to rest."""
        now = time.monotonic()
        if now - self._turned_at > self._renew_seconds + self._heartbeat_seconds:
            # The process stood still, and its heartbeat with it: leases that nobody has taken meanwhile can still be renewed.
            self._note_trouble()
        self._turned_at = now
        if self._names is None:
            self._names = self._begin()
        self._give_up(now)
        self._let_go(now)
        if now >= self._renew_at:
            self._renew_at = now + self._renew_seconds
            self._renew()
        if self._lacks_something:
            self._contend_at = min(self._contend_at, now + self._lease_seconds * CONTEND_SHARES[1])
        if now >= self._contend_at:
            # Before the look: what is heard meanwhile sets it anew. A fleet must not contend in step; who has everything looks seldom.
            share = random.uniform(*CONTEND_SHARES) if self._lacks_something else LEAD_ALL_SHARE  # noqa: S311
            self._contend_at = now + self._lease_seconds * share
            self._contend(now)
        self._let_go(now)
        return max(min(self._renew_at, self._contend_at) - time.monotonic(), 0.0)

    def stop(self) -> None:
        """Ask the duties to end after their present runs, and then itself."""
        for chore in self.chores:
            chore.stop()
        super().stop()

    def tear_down(self) -> None:
        """Stop the duties and hand them over at once."""
        for chore in (mine := self.chores):
            chore.stop()
        self._ending = mine
        began = time.monotonic()
        for chore in mine:
            chore.join(max(began + chore.duty.end_seconds - time.monotonic(), 0.0))
        try:
            self._resign(list(self._leadership.terms))
        finally:
            super().tear_down()

    # What is done

    def _begin(self) -> set[str]:
        """Start what every worker does, and return the names of what one worker leads, as far as this process can do it."""
        self._makers = self._find_makers(lambda: self.no_sweep_before)
        led = set()
        for name, make in self._makers.items():
            duty = make()
            if not duty.able():
                continue
            if duty.strategy == "everyone":
                self._start(name, None)
            else:
                led.add(name)
        return led

    def _renew(self) -> None:
        self._renewals += 1
        try:
            self._leadership.renew(self._told() if self._renewals % TELL_EACH == 1 else {})
        except DatabaseError as error:
            if is_outage(error):
                raise
            repeats.log(logging.ERROR, "What the duties tell of themselves cannot be written; they are renewed without it.", exc_info=True)
            self._leadership.renew({})

    def _contend(self, now: float) -> None:
        names = {name for name in self._names or () if self._not_before.get(name, 0.0) <= now and name not in self._chores}
        terms = self._leadership.contend(names)
        for term in terms:
            self._start(term.name, term)
        if terms:
            logger.info("This worker leads from now on: %s.", ", ".join(sorted(term.name for term in terms)))

    @property
    def _lacks_something(self) -> bool:
        return any(name not in self._chores for name in self._names or ())

    def _start(self, name: str, term: Term | None) -> None:
        chore = DutyThread(self._makers[name](), term, self._leadership.clock.now, lambda report: self._moved(), self._failed)
        chore.told["process"] = self._place
        self._chores[name] = chore
        chore.start()

    def _let_go(self, now: float) -> None:
        """End the threads of terms that are over or in doubt, and make room for others where a duty rotates."""
        lost = []
        for name, chore in list(self._chores.items()):
            term = chore.term
            if term is not None and not term.trusted:
                term.ended = True
                lost.append(name)
                self._drop(chore)
                self._leadership.forget(name)
            elif term is not None and (after := chore.duty.rotate_after_seconds) is not None and now - term.began >= after:
                self._rotate(chore, now)
        if lost:  # one line: in an outage it is all of them
            logger.warning("This worker does not lead any more: %s.", ", ".join(sorted(lost)))
        self._leaving = [chore for chore in self._leaving if chore.alive]

    def _rotate(self, chore: DutyThread, now: float) -> None:
        chore.stop()
        if not chore.alive:  # else at a later turn: its run is completed first
            self._leave(chore, now, LEAVE_TO_OTHERS_SHARE * self._lease_seconds)

    def _give_up(self, now: float) -> None:
        for chore in self.chores:
            limit = chore.duty.longest_run_seconds
            if limit is not None and chore.busy_seconds > limit and not chore.aborted:
                logger.error("The duty %s has been in one run for %.0f s; its connection is cut.", chore.duty.name, chore.busy_seconds)
                chore.aborted = True
                chore.abort()
            hangs = limit is not None and chore.busy_seconds > 2 * limit
            if hangs or now - max(chore.completed_at, self._trouble_at) > stuck_seconds(chore.duty.interval_seconds):
                self._replace(chore, now)

    def _replace(self, chore: DutyThread, now: float) -> None:
        logger.error("The duty %s has completed no run for %.0f s; it is given up on.", chore.duty.name, now - chore.completed_at)
        chore.given_up = True
        chore.told = {**chore.told, "given_up": int(chore.told.get("given_up") or 0) + 1}
        chore.abort()
        if chore.term is not None:
            self._leave(chore, now, 10 * LEAVE_TO_OTHERS_SHARE * self._lease_seconds)
        else:
            self._drop(chore)
            self._start(chore.duty.name, None)

    def _leave(self, chore: DutyThread, now: float, seconds: float) -> None:
        self._not_before[chore.duty.name] = now + seconds
        self._resign([chore.duty.name], {chore.duty.name: chore.told})
        self._drop(chore)

    def _drop(self, chore: DutyThread) -> None:
        chore.stop()
        self._chores.pop(chore.duty.name, None)
        self._leaving.append(chore)

    def _resign(self, names: Iterable[str], told: dict[str, dict[str, object]] | None = None) -> None:
        if self._leadership.resign(list(names), told or self._told()):
            wakeup.duties_changed()

    def _told(self) -> dict[str, dict[str, object]]:
        return {name: chore.told for name, chore in self._chores.items() if chore.term is not None}

    # Errors

    def _failed(self, service: Service, error: BaseException, failures: int) -> None:
        # A project's duty may fail to reach what is its own: that is no outage of the database of the jobs.
        if is_outage(error) and isinstance(service, DutyThread) and service.duty.longest_run_seconds is not None:
            self._note_trouble()
        self._tell_of_error(service, error, failures)

    def _after_error(self, service: Service, error: BaseException, failures: int) -> None:
        self._contend_at = time.monotonic() + CONTEND_SHARES[1] * self._lease_seconds
        if is_outage(error):
            self._note_trouble()
        super()._after_error(service, error, failures)

    def _note_trouble(self) -> None:
        """Let the heartbeats of all workers catch up before leases are judged, and count no duty as stuck for what it could not do."""
        self._trouble_at = time.monotonic()
        self.no_sweep_before = self._trouble_at + 2 * self._heartbeat_seconds
