"""The outbox: claim due deliveries, write the results of attempts, and redeliver on request.

A delivery is claimed by moving its `next_attempt_at` ahead by more than an attempt can last, in one short
transaction. The message is sent outside of any transaction. The sender that writes the result names the attempt and
that time: if another sender has claimed the delivery since, nothing is written. If a sender dies between sending
and writing, the row becomes due again. The same message, with the same id and body, is then sent a second time. So
a message is delivered at least once.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from jobqueue import conf, db, public_ids
from jobqueue.core import masking, repeats, webhook_rules
from jobqueue.core.json_columns import as_list
from jobqueue.db import Now, overview
from jobqueue.db.aside import PREFIX
from jobqueue.events.record import record
from jobqueue.exceptions import JobQueueError
from jobqueue.insight.duties import moment
from jobqueue.lifecycle.aside import reason_of
from jobqueue.lifecycle.batches import SET_ASIDE_SECONDS, Batches
from jobqueue.models import Job, WebhookDelivery

VISIBLE_AFTER_SECONDS = 10.0  # in addition to the time of an attempt
UNWRITTEN_ATTEMPTS = 5  # in addition to WEBHOOK_MAX_ATTEMPTS: senders may have died before they wrote a result
BATCH = 100
MAX_BATCHES = 50
MAX_KNOWN = 1000
MAX_MESSAGE_BYTES = 4000
MAX_HISTORY = 20
GIVEN_UP = "Given up by an operator"
Status = WebhookDelivery.Status


@dataclass(frozen=True, slots=True)
class Message:
    """One attempt that has begun: the message, and the columns that identify the attempt."""

    delivery_id: int
    job_id: int
    message_id: str
    event: str
    queue: str
    url: str
    body: str
    attempts: int
    until: datetime
    at: datetime
    tenant: str = ""
    history: tuple[Any, ...] = ()  # the attempts before


class DeliveryClaimer:
    """The part of the outbox that claims due deliveries; bad rows do not stop it."""

    def __init__(self) -> None:
        """Create it without rows that are set aside."""
        self._aside = Batches("Beginning an attempt of a webhook delivery", BATCH)

    def claim(self, limit: int, room: Callable[[str], int], full: Collection[str] = ()) -> list[Message]:
        """Begin an attempt of up to `limit` due deliveries; skip rows that are locked, and receivers that already have enough attempts.

        `room` returns how many more attempts to a receiver may begin, and is called once for each receiver. Rows of receivers in
        `full` are not read. A row that cannot be read or written ends as FAILED with the reason. If the database
        rejects that, too, the row is skipped for a while.
        """
        with Job.objects.database.atomic():
            now = overview.clock(Job.objects.database)
            deliveries = _choose(now, limit, room, set(full), self._aside.set_aside, self._end)
            until = now + timedelta(seconds=conf.current().webhook_timeout_seconds + VISIBLE_AFTER_SECONDS)
            try:
                with Job.objects.database.atomic():  # a savepoint: an error rolls back only this block
                    return [_begin(row, now, until) for row in deliveries]
            except Exception as error:
                if not _is_of_a_row(error):
                    raise
            return [message for row in deliveries if (message := self._begin_alone(row, now, until)) is not None]

    def _begin_alone(self, row: WebhookDelivery, now: datetime, until: datetime) -> Message | None:
        try:
            with Job.objects.database.atomic():
                return _begin(row, now, until)
        except Exception as error:
            if not _is_of_a_row(error):
                raise
            self._end(row.pk, error)
            return None

    def _end(self, delivery_id: int, error: Exception) -> None:
        """End a bad delivery, by a statement that does not read its row."""
        reason = reason_of(error)
        ended: dict[str, Any] = {"status": Status.FAILED, "finished_at": Now(), "next_attempt_at": Now(), "attempts": 0}
        try:
            with Job.objects.database.atomic():
                WebhookDelivery.objects.current.filter(pk=delivery_id).update(**ended, error=f"{PREFIX}{reason}")
        except Exception as refusal:
            if not _is_of_a_row(refusal):
                raise
            self._aside.set_row_aside(delivery_id)
            text = "Webhook delivery %d cannot be sent or given up, and is skipped for %g s: %s"
            repeats.log(logging.ERROR, text, delivery_id, SET_ASIDE_SECONDS, reason)
        else:
            repeats.log(logging.ERROR, "Webhook delivery %d is given up: %s", delivery_id, reason)


def _is_of_a_row(error: Exception) -> bool:
    return db.is_refusal(error) or db.was_given_up(error)


End = Callable[[int, Exception], None]


def _choose(
    now: datetime, limit: int, room: Callable[[str], int], full: set[str], aside: Collection[int], end: End
) -> list[WebhookDelivery]:
    chosen: list[WebhookDelivery] = []
    seen = set(aside)
    free: dict[str, int] = {}
    for _ in range(MAX_BATCHES):
        rows = WebhookDelivery.objects.current.due(now).without_receivers(full).exclude(pk__in=seen)
        read = _read(rows.select_for_update(skip_locked=True, no_key=True)[:BATCH], end)
        for row in read:
            seen.add(row.pk)
            origin = webhook_rules.origin(row.url)
            if origin not in free:
                free[origin] = room(origin)
            if free[origin] <= 0:
                full.add(origin)
            elif len(chosen) < limit:
                free[origin] -= 1
                chosen.append(row)
        if len(chosen) >= limit or len(read) < BATCH:
            break
    return chosen


def _read(rows: QuerySet[WebhookDelivery], end: End) -> list[WebhookDelivery]:
    """Return the rows that can be read; end the rest."""
    try:
        with Job.objects.database.atomic():
            return list(rows)
    except Exception as error:
        if not _is_of_a_row(error):
            raise
    read: list[WebhookDelivery] = []
    for delivery_id in list(rows.values_list("pk", flat=True)):
        try:
            with Job.objects.database.atomic():
                read.append(WebhookDelivery.objects.current.get(pk=delivery_id))
        except Exception as error:
            if not _is_of_a_row(error):
                raise
            end(delivery_id, error)
    return read


def recent_receivers() -> list[str]:
    """Return the receivers that responded to the last attempt of one of the newest messages, with any status; the latest is last."""
    newest = WebhookDelivery.objects.current.order_by("-pk").values_list("url", "response_status")[:MAX_KNOWN]
    return list(dict.fromkeys(webhook_rules.origin(url) for url, status in reversed(newest) if status is not None))


def _begin(row: WebhookDelivery, now: datetime, until: datetime) -> Message:
    most = conf.current().webhook_max_attempts
    if row.attempts >= most + UNWRITTEN_ATTEMPTS:  # the database refuses their results, so the message would be sent for ever
        raise ValueError(
            f"It had {row.attempts - most} attempts more than the maximum of {most}, because their results could not be stored."
        )
    body, attempts = row.body or body_of(row), row.attempts + 1
    WebhookDelivery.objects.current.filter(pk=row.pk).update(body=body, attempts=attempts, next_attempt_at=until)
    names = (f"msg_{row.message_id.hex}", row.event, row.queue, row.url, body)
    return Message(row.pk, row.job_id, *names, attempts, until, now, _tenant(row), (*as_list(row.history),))


def _tenant(row: WebhookDelivery) -> str:
    tenant = row.facts.get("tenant") if isinstance(row.facts, dict) else ""
    return tenant if isinstance(tenant, str) else ""


def body_of(row: WebhookDelivery) -> str:
    """Return the message of a delivery: the event and its data, with masked secrets."""
    facts: dict[str, Any] = {"public_id": public_ids.public_id(row.job_id), **(row.facts if isinstance(row.facts, dict) else {})}
    # PostgreSQL writes the time in the zone of the session, which is the project's if USE_TZ is False.
    at = (moment(str(facts.pop("at", ""))) or row.created_at).astimezone(UTC).isoformat()
    if isinstance(facts.get("message"), str):
        facts["message"] = masking.PLAIN.cut(facts["message"], MAX_MESSAGE_BYTES)
    return json.dumps({"type": row.event, "timestamp": at, "data": masking.mask(facts)}, separators=(",", ":"))


def write_result(
    message: Message,
    *,
    delivered: bool,
    final: bool,
    status: int | None,
    error: str,
    retry_after: float | None,
    excerpt: str = "",
    milliseconds: int | None = None,
) -> str:
    """Write the result of an attempt and record it on the job; return the delivery's status, or "" if another sender claimed it."""
    database = Job.objects.database
    with database.atomic():
        # The job is locked first, because a transaction that deletes the job takes the locks in this order.
        job = _locked(message.job_id)
        claimed = WebhookDelivery.objects.current.claimed(message.delivery_id, message.attempts, message.until)
        given_up = final or message.attempts >= conf.current().webhook_max_attempts
        history = _history(message, status=status, milliseconds=milliseconds, error=error, excerpt=excerpt)
        values: dict[str, Any] = {"response_status": status, "error": error, "history": history}
        if delivered or given_up:
            values |= {"status": Status.DELIVERED if delivered else Status.FAILED, "finished_at": Now()}
        else:
            seconds = webhook_rules.delay_seconds(conf.current().webhook_retry_seconds, message.attempts, retry_after)
            values |= {"next_attempt_at": overview.clock(database) + timedelta(seconds=seconds)}
        if not claimed.update(**values):
            return ""
        if job is not None and (delivered or given_up):
            if delivered and not job.webhook_sent:
                Job.objects.current.filter(pk=job.pk).update(webhook_sent=True)
            facts = {
                "event": message.event,
                "message_id": message.message_id,
                "host": webhook_rules.host(message.url),
                "attempts": message.attempts,
                "response_status": status,
            }
            name = "job.webhook.delivered" if delivered else "job.webhook.failed"
            record(job, name, facts if delivered else {**facts, "error": error})
    return str(values.get("status", Status.PENDING))


def _history(message: Message, **result: Any) -> list[Any]:
    """Return the newest attempts of a delivery, with this one."""
    began = {"attempt": message.attempts, "at": message.at.astimezone(UTC).isoformat(), "url": webhook_rules.shown_url(message.url)}
    return [*message.history, {**began, **result}][-MAX_HISTORY:]


def _locked(job_id: int) -> Job | None:
    rows = Job.objects.current.numbered(job_id).select_for_update(no_key=True)
    return rows.defer("args", "kwargs", "metadata", "options", "result", "history").first()


def redeliver(delivery_id: int) -> bool:
    """Make a message that was delivered or given up due again, with the same id and body; return False if it is in another state."""
    with Job.objects.database.atomic():
        rows = WebhookDelivery.objects.current.filter(pk=delivery_id)
        # Its attempts are counted from 0, so that it gets all of them again.
        return bool(rows.ended().update(status=Status.PENDING, attempts=0, next_attempt_at=Now(), finished_at=None))


def give_up(row: WebhookDelivery) -> None:
    """End a pending delivery, which the caller has locked after its job, and record that on the job."""
    error = masking.PLAIN.cut(f"{GIVEN_UP}. {row.error}" if row.error else f"{GIVEN_UP}.", MAX_MESSAGE_BYTES)
    WebhookDelivery.objects.current.filter(pk=row.pk).update(status=Status.FAILED, finished_at=Now(), error=error)
    if (job := _locked(row.job_id)) is not None:
        facts = {"event": row.event, "message_id": f"msg_{row.message_id.hex}", "host": webhook_rules.host(row.url)}
        record(job, "job.webhook.failed", {**facts, "attempts": row.attempts, "response_status": row.response_status, "error": error})


def send_to(row: WebhookDelivery, url: str) -> None:
    """Make a message due immediately at another URL; the caller has locked the row."""
    fresh = {"status": Status.PENDING, "attempts": 0, "next_attempt_at": Now(), "finished_at": None}
    WebhookDelivery.objects.current.filter(pk=row.pk).update(url=url, **fresh)


def pending() -> QuerySet[WebhookDelivery]:
    """Return the deliveries that wait for their next attempt, the earliest first."""
    return WebhookDelivery.objects.current.filter(status=Status.PENDING).order_by("next_attempt_at")


def next_due_seconds() -> float | None:
    """Return the seconds until the next attempt, below 0 if it is due; None if there is nothing to send."""
    row = pending().annotate(now=Now()).values_list("next_attempt_at", "now").first()
    return None if row is None else (row[0] - row[1]).total_seconds()


def check_packages() -> None:
    """Raise `JobQueueError` with the reason if this process cannot send."""
    if missing := webhook_rules.missing_packages():
        names = ", ".join(missing)
        raise JobQueueError(
            f"Webhooks cannot be sent from here: {names} cannot be imported. Install the extra: pip install 'jobqueue[webhooks]'."
        )
