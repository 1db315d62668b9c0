"""The senders: a bounded number of threads that send messages to receivers and make no queries.

Each receiver gets at most `MAX_PER_RECEIVER` senders. It gets only one until it has answered once, and while its
last answer did not come in time. Half of all senders never serve slow receivers, and a part of this half never
serves receivers that have not answered yet. So receivers that never answer do not delay those that do, even if
there are many and all are new. New receivers take turns. The thread that leads the duty claims deliveries, passes
them to the senders, and writes the results.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db import DatabaseError

from jobqueue import conf
from jobqueue.core import repeats
from jobqueue.core.masking import PLAIN
from jobqueue.core.texts import exception_summary
from jobqueue.core.webhook_rules import origin, secrets_of
from jobqueue.db import is_outage, let_go
from jobqueue.webhooks import outbox
from jobqueue.webhooks.outbox import Message

if TYPE_CHECKING:
    from jobqueue.webhooks.sending import Answer

MAX_SENDERS = 32
MAX_PER_RECEIVER = 4
MAX_SLOW = 16  # the maximum of senders for receivers whose last answer did not come in time
MAX_UNSURE = 24  # the maximum of senders for these and for receivers that have not answered yet
PATIENCE_SECONDS = 2.0  # in addition to the time of an attempt, because the resolution of a name cannot be limited from within
MAX_REMEMBERED = 1000

logger = logging.getLogger("jobqueue")


@dataclass(eq=False, slots=True)
class Flight:
    """One attempt that is under way."""

    message: Message
    origin: str
    began: float
    in_secrets: bool = False  # WEBHOOK_SECRET, which can be a callable of the project, is being read
    thread: threading.Thread | None = None
    answer: Answer | None = None


class SenderPool:
    """The pool of sender threads for the outbox; only one thread calls its methods."""

    def __init__(self) -> None:
        """Create it without threads."""
        self.hurried = False
        self._flights: set[Flight] = set()
        self._lost: list[Flight] = []  # their threads hang in the resolution of a name
        self._slow: set[str] = set()  # receivers whose last answer did not come in time
        self._quick: dict[str, None] | None = None  # those whose last answer did, the latest last; None until the first read
        self._beginner = outbox.Beginner()
        self._unsigned: set[str] = set()  # queues without a secret that were logged
        self._landed = threading.Event()

    @property
    def in_flight(self) -> int:
        """The number of attempts that are under way."""
        return len(self._flights)

    def start_due(self) -> int:
        """Begin attempts of due deliveries while there are free senders; return their number."""
        self._lost = [flight for flight in self._lost if flight.thread is not None and flight.thread.is_alive()]
        free = MAX_SENDERS - len(self._flights) - len(self._lost)
        if free <= 0:
            return 0
        if self._quick is None:  # else, after each change of the leader, good receivers would wait behind unknown ones
            self._quick = dict.fromkeys(outbox.answered_lately())
        under_way = [flight.origin for flight in (*self._flights, *self._lost)]
        unsure = MAX_UNSURE - sum(one not in self._quick for one in under_way)
        slow = min(MAX_SLOW - sum(one in self._slow for one in under_way), unsure)
        full = {one for one in under_way if self._room(one) <= 0} | (self._slow if slow <= 0 else set())

        def room(receiver: str) -> int:
            nonlocal slow, unsure
            left = self._room(receiver)
            if left <= 0 or self._is_quick(receiver):
                return left
            if unsure <= 0 or (receiver in self._slow and slow <= 0):
                return 0
            unsure, slow = unsure - 1, slow - (receiver in self._slow)
            return left

        messages = self._beginner.claim(free, room, full)
        for message in messages:
            self._submit(message)
        return len(messages)

    def collect(self, seconds: float) -> tuple[int, int]:
        """Wait up to `seconds` for the first attempt to end, and write all ended ones; return how many succeeded and how many did not."""
        good = bad = 0
        if self._flights:
            self._landed.wait(seconds)
        self._landed.clear()  # before the check: an attempt that ends during it is seen next time
        for flight in [one for one in self._flights if one.answer is not None]:
            delivered = self._write(flight, flight.answer or _failed(""))
            good, bad = good + delivered, bad + (not delivered)
        return good, bad + self._give_up()

    def end(self, seconds: float) -> list[str]:
        """Wait up to `seconds` for attempts, write them, and release the rest for a retry; return the receivers that did not answer."""
        deadline = time.monotonic() + seconds
        while self._flights and not self.hurried and (rest := deadline - time.monotonic()) > 0:
            self.collect(min(rest, 0.2))
        silent = sorted({flight.origin for flight in self._flights})
        for flight in list(self._flights):
            self._write(flight, _failed("The worker ended before the receiver had answered."))
        return silent

    def _room(self, receiver: str) -> int:
        """Return how many more attempts to a receiver may begin."""
        most = MAX_PER_RECEIVER if self._is_quick(receiver) else 1
        return most - sum(flight.origin == receiver for flight in (*self._flights, *self._lost))

    def _is_quick(self, receiver: str) -> bool:
        return self._quick is not None and receiver in self._quick

    def _submit(self, message: Message) -> None:
        flight = Flight(message, origin(message.url), time.monotonic())
        flight.thread = threading.Thread(target=self._send, args=(flight,), name=f"jobqueue-webhook-{message.delivery_id}", daemon=True)
        self._flights.add(flight)
        flight.thread.start()

    def _send(self, flight: Flight) -> None:
        """Send one message, in the thread of a sender."""
        from jobqueue.webhooks.sending import Answer, send

        message = flight.message
        try:
            settings = conf.current()
            flight.in_secrets = True
            secrets = self._secrets(message, flight.origin)
            flight.in_secrets = False
            if settings.webhook_signed_only and not secrets:
                flight.answer = Answer(error="Not sent: WEBHOOK_SIGNED_ONLY is set, and WEBHOOK_SECRET has no secret for this message.")
                return
            flight.answer = send(
                message.url,
                message.message_id,
                message.body,
                secrets=secrets,
                allowed=settings.webhook_allowed_hosts,
                seconds=settings.webhook_timeout_seconds,
                https_only=settings.webhook_https_only,
            )
        except BaseException as error:  # noqa: BLE001 - a thread that ends without an answer would count as under way
            flight.answer = Answer(error=exception_summary(error, PLAIN))
        finally:
            self._landed.set()

    def _secrets(self, message: Message, receiver: str) -> tuple[str, ...]:
        """Return the secrets that sign a message."""
        try:
            secrets = secrets_of(conf.webhook_secret(), message.queue, message.tenant, receiver)
        finally:
            let_go()  # a callable of the project may have used the database, and this thread ends
        if not secrets and message.queue not in self._unsigned:
            self._unsigned.add(message.queue)
            how = "not sent" if conf.current().webhook_signed_only else "sent unsigned"
            logger.warning("Webhooks of the queue %r are %s: WEBHOOK_SECRET has no secret for it.", message.queue, how)
        return secrets

    def _give_up(self) -> int:
        """Abandon attempts that take longer than the limit; return their number."""
        longest = conf.current().webhook_timeout_seconds + PATIENCE_SECONDS
        late = [flight for flight in self._flights if time.monotonic() - flight.began > longest]
        for flight in late:
            self._lost.append(flight)
            what = "WEBHOOK_SECRET did not return" if flight.in_secrets else "The name of the receiver was not resolved"
            self._write(flight, _failed(f"{what} in time."))
        return len(late)

    def _write(self, flight: Flight, answer: Answer) -> bool:
        """Write the result of an attempt; return whether the message was delivered. Raise in an outage, to write it later."""
        self._note_pace(flight.origin, answer)
        message = flight.message
        try:
            status = outbox.settle(message, **answer.outcome())
        except DatabaseError as error:
            if is_outage(error):
                raise
            repeats.log(
                logging.ERROR,
                "The result of webhook %s of job %s cannot be written; the webhook is sent again.",
                message.event,
                message.job_id,
                exc_info=True,
            )
            status = ""
        self._flights.discard(flight)
        if status == outbox.Status.FAILED:
            repeats.log(
                logging.WARNING,
                "Webhook %s of job %s is given up after %d attempts: %s",
                message.event,
                message.job_id,
                message.attempts,
                answer.error,
            )
        elif status == outbox.Status.PENDING:
            logger.info("Webhook %s of job %s has failed (attempt %d): %s", message.event, message.job_id, message.attempts, answer.error)
        return status == outbox.Status.DELIVERED

    def _note_pace(self, receiver: str, answer: Answer) -> None:
        quick = self._quick if self._quick is not None else {}
        quick.pop(receiver, None)
        if not answer.late:
            self._slow.discard(receiver)
            quick[receiver] = None
            if len(quick) > MAX_REMEMBERED:
                del quick[next(iter(quick))]
        elif len(self._slow) < MAX_REMEMBERED:
            self._slow.add(receiver)


def _failed(error: str) -> Answer:
    from jobqueue.webhooks.sending import Answer

    return Answer(error=error, late=True)
