"""Operations on deliveries: list the newest ones and those of one job, and send one again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jobqueue import conf
from jobqueue.core.sentences import sentence
from jobqueue.db import Now
from jobqueue.models import Job, WebhookDelivery
from jobqueue.webhooks import outbox
from jobqueue.webhooks.queues import queue_webhook

Status = WebhookDelivery.Status
NO_SUCH = sentence("there is no such delivery; it may have been deleted")
STILL_TO_BE_SENT = sentence("it has not been sent yet, or is being sent")
NOT_TO_BE_SENT = sentence("it was delivered or given up: redeliver it")
ENDED_ALREADY = sentence("it was already delivered or given up")
DELIVERED = sentence("it was delivered")
NO_URL = sentence("neither its job nor its queue has a webhook URL now")
SAME_URL = sentence("it already goes to the current URL")


@dataclass(frozen=True, slots=True)
class RedeliveryAnswer:
    """The result of a request: whether the delivery was changed, and if not, the reason."""

    delivery_id: int
    done: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.done


def redeliver(delivery_id: int) -> RedeliveryAnswer:
    """Send a message that was delivered or given up again: with the same id and body, and all attempts."""
    if outbox.redeliver(delivery_id):
        return RedeliveryAnswer(delivery_id, done=True)
    there = WebhookDelivery.objects.current.filter(pk=delivery_id).exists()
    return RedeliveryAnswer(delivery_id, done=False, reason=STILL_TO_BE_SENT if there else NO_SUCH)


def send_now(delivery_id: int) -> RedeliveryAnswer:
    """Make the next attempt of a pending delivery due immediately."""
    with Job.objects.database.atomic():
        row = _locked(delivery_id)
        reason = _busy(row, NOT_TO_BE_SENT)
        if row is not None and not reason:
            WebhookDelivery.objects.current.filter(pk=row.pk).update(next_attempt_at=Now())
    return RedeliveryAnswer(delivery_id, done=not reason, reason=reason)


def give_up(delivery_id: int) -> RedeliveryAnswer:
    """End a pending delivery as FAILED; an attempt under way still reaches the receiver, but its result is not written."""
    with Job.objects.database.atomic():
        row = _locked(delivery_id)
        reason = NO_SUCH if row is None else "" if row.status == Status.PENDING else ENDED_ALREADY
        if row is not None and not reason:
            outbox.give_up(row)
    return RedeliveryAnswer(delivery_id, done=not reason, reason=reason)


def use_current_url(delivery_id: int) -> RedeliveryAnswer:
    """Send a message that was not delivered to the current URL of its job, or else of its queue, with all attempts."""
    with Job.objects.database.atomic():
        row = _locked(delivery_id)
        reason = _busy(row, DELIVERED, and_failed=True)
        if row is not None and not reason:
            url = current_url(row)
            reason = NO_URL if not url else SAME_URL if url == row.url else ""
            if not reason:
                outbox.send_to(row, url)
    return RedeliveryAnswer(delivery_id, done=not reason, reason=reason)


def current_url(row: WebhookDelivery) -> str:
    """Return the current URL for the events of a delivery's job: its own, or else that of its queue; empty if there is none."""
    own_url = Job.objects.current.numbered(row.job_id).values_list("webhook_url", flat=True).first()
    return own_url or queue_webhook(row.queue).url


def _locked(delivery_id: int) -> Any:
    rows: Any = WebhookDelivery.objects.current.annotate(now=Now()).filter(pk=delivery_id)
    # The job is locked first, as in all changes of deliveries: a transaction that deletes the job uses this order.
    if (job_id := rows.values_list("job_id", flat=True).first()) is not None:
        Job.objects.current.numbered(job_id).select_for_update(no_key=True).values_list("pk").first()
    return rows.select_for_update(no_key=True, of=("self",)).first()


def _busy(row: Any, ended: str, *, and_failed: bool = False) -> str:
    """Return why a delivery cannot be sent immediately; empty if it can.

    The row does not show whether an attempt is under way. So a delivery that is due within the time of an attempt
    is left unchanged. Otherwise, the result of a running attempt would not be written, and the message would be
    sent twice.
    """
    if row is None:
        return NO_SUCH
    if row.status == Status.FAILED and and_failed:
        return ""
    if row.status != Status.PENDING:
        return ended
    longest = conf.current().webhook_timeout_seconds + outbox.VISIBLE_AFTER_SECONDS
    ahead = (row.next_attempt_at - row.now).total_seconds()
    if not row.attempts or not 0 < ahead <= longest:
        return ""
    return sentence("it is being sent, or will be sent within %(seconds)s s", seconds=f"{longest:g}")


def newest(limit: int, status: str = "") -> list[WebhookDelivery]:
    """Return the newest deliveries, with the database's time, from which durations are counted."""
    rows = WebhookDelivery.objects.current.annotate(now=Now()).defer("body", "facts", "history").order_by("-pk")
    return list((rows.filter(status=status) if status else rows)[:limit])


def find(delivery_id: int) -> WebhookDelivery | None:
    """Return a delivery, with the database's time; None if there is no such delivery."""
    return WebhookDelivery.objects.current.annotate(now=Now()).filter(pk=delivery_id).first()


def of_job(job_id: int, limit: int) -> list[WebhookDelivery]:
    """Return the newest deliveries of a job."""
    rows = WebhookDelivery.objects.current.annotate(now=Now()).filter(job_id=job_id).defer("body", "facts", "history")
    return list(rows.order_by("-pk")[:limit])
