"""The senders: a bounded number of threads that send messages to receivers and make no queries.

Each receiver (an origin: scheme, host and port) gets at most `MAX_PER_ORIGIN` senders. It gets only one until it has responded once, and
while its last response did not come in time. After a timeout, a receiver gets no message for a while; this pause doubles with each further
timeout. `RESERVED` senders serve only receivers that have responded in time. So receivers that never respond do not delay those that do,
even if there are many and all are new.

The thread that leads the duty claims deliveries, passes them to the senders, and writes the results.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db import DatabaseError

from jobqueue import conf, tracing
from jobqueue.core import repeats
from jobqueue.core.masking import PLAIN
from jobqueue.core.texts import exception_summary
from jobqueue.core.webhook_rules import origin, secrets_of
from jobqueue.db import close_idle, is_outage
from jobqueue.models import Job
from jobqueue.webhooks import outbox
from jobqueue.webhooks.outbox import Message

if TYPE_CHECKING:
    from jobqueue.webhooks.sending import AttemptResult

MAX_SENDERS = 32
MAX_PER_ORIGIN = 4
RESERVED = 8
BACK_OFF_SECONDS, MAX_BACK_OFF_SECONDS = 1.0, 60.0
PATIENCE_SECONDS = 2.0  # in addition to the time of an attempt, because the resolution of a name cannot be limited from within
MAX_REMEMBERED = 1000

logger = logging.getLogger("jobqueue")


@dataclass(eq=False, slots=True)
class Attempt:
    """One attempt that is under way."""

    message: Message
    origin: str
    began: float
    trace: dict[str, str]  # the headers of the trace in which the job was enqueued
    in_secrets: bool = False  # WEBHOOK_SECRET, which can be a callable of the project, is being read
    thread: threading.Thread | None = None
    result: AttemptResult | None = None


@dataclass(slots=True)
class Origin:
    """What is known of a receiver: whether it has ever responded, and its timeouts since; times are monotonic."""

    has_responded: bool = False
    timeouts: int = 0  # in a row; attempts at the same time count once
    timed_out_at: float = 0.0
    rests_until: float = 0.0

    @property
    def is_good(self) -> bool:
        """Whether its last response came in time."""
        return self.has_responded and not self.timeouts

    def record(self, attempt: Attempt, result: AttemptResult, now: float) -> None:
        """Record the result of an attempt."""
        if not result.late:
            self.has_responded, self.timeouts, self.rests_until = True, 0, 0.0
        elif attempt.began >= self.timed_out_at:
            self.timeouts, self.timed_out_at = self.timeouts + 1, now
            self.rests_until = now + min(BACK_OFF_SECONDS * 2.0 ** min(self.timeouts - 1, 10), MAX_BACK_OFF_SECONDS)


UNKNOWN = Origin()


class SenderPool:
    """The pool of sender threads for the outbox; only one thread calls its methods."""

    def __init__(self) -> None:
        """Create it without threads."""
        self.hurried = False
        self._attempts: set[Attempt] = set()
        self._hanging: list[Attempt] = []  # their threads hang in the resolution of a name
        self._origins: dict[str, Origin] | None = None  # the one that responded last is the last; None until the first read
        self._claimer = outbox.DeliveryClaimer()
        self._unsigned: set[str] = set()  # queues without a secret that were logged
        self._ended = threading.Event()

    @property
    def in_flight(self) -> int:
        """The number of attempts that are under way."""
        return len(self._attempts)

    def start_due(self) -> int:
        """Begin attempts of due deliveries while there are free senders; return their number."""
        self._hanging = [attempt for attempt in self._hanging if attempt.thread is not None and attempt.thread.is_alive()]
        free = MAX_SENDERS - len(self._attempts) - len(self._hanging)
        if free <= 0:
            return 0
        if self._origins is None:  # otherwise, after each change of the leader, good receivers would wait behind unknown ones
            self._origins = {origin: Origin(has_responded=True) for origin in outbox.recent_receivers()}
        now = time.monotonic()
        busy = Counter(attempt.origin for attempt in (*self._attempts, *self._hanging))
        unproven = MAX_SENDERS - RESERVED - sum(number for origin, number in busy.items() if not self._known(origin).is_good)
        resting = {origin for origin, known in self._origins.items() if known.rests_until > now}

        def room(origin: str) -> int:
            nonlocal unproven
            if self._known(origin).is_good:
                return MAX_PER_ORIGIN - busy[origin]
            if busy[origin] or origin in resting or unproven <= 0:
                return 0
            unproven -= 1
            return 1

        full = resting | {origin for origin, number in busy.items() if number >= (MAX_PER_ORIGIN if self._known(origin).is_good else 1)}
        messages = self._claimer.claim(free, room, full)
        traces = _traces(messages)
        for message in messages:
            self._submit(message, traces.get(message.job_id, {}))
        return len(messages)

    def collect(self, seconds: float) -> tuple[int, int]:
        """Wait up to `seconds` for the first attempt to end, and write all ended ones; return how many succeeded and how many did not."""
        succeeded = failed = 0
        if self._attempts:
            self._ended.wait(seconds)
        self._ended.clear()  # before the check: an attempt that ends during it is seen next time
        for attempt in [pending for pending in self._attempts if pending.result is not None]:
            delivered = self._write(attempt, attempt.result or _failed(""))
            succeeded, failed = succeeded + delivered, failed + (not delivered)
        return succeeded, failed + self._give_up()

    def end(self, seconds: float) -> list[str]:
        """Wait up to `seconds` for attempts, write them, and release the rest for a retry; return the receivers that did not respond."""
        deadline = time.monotonic() + seconds
        while self._attempts and not self.hurried and (remaining := deadline - time.monotonic()) > 0:
            self.collect(min(remaining, 0.2))
        silent = sorted({attempt.origin for attempt in self._attempts})
        for attempt in list(self._attempts):
            self._write(attempt, _failed("The worker ended before the receiver responded."))
        return silent

    def _known(self, origin: str) -> Origin:
        return (self._origins or {}).get(origin) or UNKNOWN

    def _submit(self, message: Message, trace: dict[str, str]) -> None:
        attempt = Attempt(message, origin(message.url), time.monotonic(), trace)
        attempt.thread = threading.Thread(target=self._send, args=(attempt,), name=f"jobqueue-webhook-{message.delivery_id}", daemon=True)
        self._attempts.add(attempt)
        attempt.thread.start()

    def _send(self, attempt: Attempt) -> None:
        """Send one message, in the thread of a sender."""
        from jobqueue.webhooks.sending import AttemptResult, send

        message = attempt.message
        try:
            settings = conf.current()
            attempt.in_secrets = True
            secrets = self._secrets(message, attempt.origin)
            attempt.in_secrets = False
            if settings.webhook_signed_only and not secrets:
                attempt.result = AttemptResult(
                    error="Not sent: WEBHOOK_SIGNED_ONLY is set, and WEBHOOK_SECRET has no secret for this message."
                )
                return
            attempt.result = send(
                message.url,
                message.message_id,
                message.body,
                secrets=secrets,
                allowed=settings.webhook_allowed_hosts,
                seconds=settings.webhook_timeout_seconds,
                https_only=settings.webhook_https_only,
                trace=attempt.trace,
            )
        except BaseException as error:  # noqa: BLE001 - a thread that ends without a result would count as under way
            attempt.result = AttemptResult(error=exception_summary(error, PLAIN))
        finally:
            self._ended.set()

    def _secrets(self, message: Message, receiver: str) -> tuple[str, ...]:
        """Return the secrets that sign a message."""
        try:
            secrets = secrets_of(conf.webhook_secret(), message.queue, message.tenant, receiver)
        finally:
            close_idle()  # a callable of the project may have used the database, and this thread ends
        if not secrets and message.queue not in self._unsigned:
            self._unsigned.add(message.queue)
            how = "not sent" if conf.current().webhook_signed_only else "sent unsigned"
            logger.warning("Webhooks of the queue %r are %s: WEBHOOK_SECRET has no secret for it.", message.queue, how)
        return secrets

    def _give_up(self) -> int:
        """Abandon attempts that take longer than the limit; return their number."""
        longest = conf.current().webhook_timeout_seconds + PATIENCE_SECONDS
        late = [attempt for attempt in self._attempts if time.monotonic() - attempt.began > longest]
        for attempt in late:
            self._hanging.append(attempt)
            cause = "WEBHOOK_SECRET did not return" if attempt.in_secrets else "The name of the receiver was not resolved"
            self._write(attempt, _failed(f"{cause} in time."))
        return len(late)

    def _write(self, attempt: Attempt, result: AttemptResult) -> bool:
        """Write the result of an attempt; return whether the message was delivered. Raise in an outage, to write it later."""
        self._record(attempt, result)
        message = attempt.message
        try:
            status = outbox.write_result(message, **result.outcome())
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
        self._attempts.discard(attempt)
        if status == outbox.Status.FAILED:
            repeats.log(
                logging.WARNING,
                "Webhook %s of job %s is given up after %d attempts: %s",
                message.event,
                message.job_id,
                message.attempts,
                result.error,
            )
        elif status == outbox.Status.PENDING:
            logger.info("Webhook %s of job %s has failed (attempt %d): %s", message.event, message.job_id, message.attempts, result.error)
        return status == outbox.Status.DELIVERED

    def _record(self, attempt: Attempt, answer: AttemptResult) -> None:
        origins = self._origins if self._origins is not None else {}
        origins[attempt.origin] = known = origins.pop(attempt.origin, None) or Origin()
        known.record(attempt, answer, time.monotonic())
        if len(origins) > MAX_REMEMBERED:
            del origins[next(iter(origins))]


def _traces(messages: Sequence[Message]) -> dict[int, dict[str, str]]:
    """Return the headers of the traces in which the jobs of messages were enqueued, if this process uses OpenTelemetry."""
    if not messages or tracing.tracer() is None:
        return {}
    try:
        jobs = Job.objects.current.filter(pk__in={message.job_id for message in messages if isinstance(message.job_id, int)})
        return {job_id: tracing.carrier_of(options) for job_id, options in jobs.values_list("pk", "options")}
    except Exception:  # noqa: BLE001 - the messages are claimed, and must be sent
        repeats.log(logging.WARNING, "The traces of webhooks cannot be read; the webhooks are sent without them.", exc_info=True)
        return {}


def _failed(error: str) -> AttemptResult:
    from jobqueue.webhooks.sending import AttemptResult

    return AttemptResult(error=error, late=True)
