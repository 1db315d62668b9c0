"""What people see and do about deliveries: the newest ones, those of one job, and sending one again."""

from __future__ import annotations

from dataclasses import dataclass

from jobqueue.db import Now
from jobqueue.models import WebhookDelivery
from jobqueue.webhooks import outbox

NO_SUCH = "there is no such delivery (any more)"
STILL_TO_BE_SENT = "it is still to be sent, or is being sent"


@dataclass(frozen=True, slots=True)
class Redelivered:
    """Tell whether a message is sent again, and if not, why."""

    delivery_id: int
    done: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.done


def redeliver(delivery_id: int) -> Redelivered:
    """Send a message that was delivered or given up once more: the same id and body, and all attempts anew."""
    if outbox.redeliver(delivery_id):
        return Redelivered(delivery_id, done=True)
    there = WebhookDelivery.objects.current.filter(pk=delivery_id).exists()
    return Redelivered(delivery_id, done=False, reason=STILL_TO_BE_SENT if there else NO_SUCH)


def newest(limit: int, status: str = "") -> list[WebhookDelivery]:
    """Return the newest deliveries, with the database's time, from which durations are counted."""
    rows = WebhookDelivery.objects.current.annotate(now=Now()).defer("body", "facts").order_by("-pk")
    return list((rows.filter(status=status) if status else rows)[:limit])


def of_job(job_id: int, limit: int) -> list[WebhookDelivery]:
    """Return the newest deliveries of a job."""
    rows = WebhookDelivery.objects.current.annotate(now=Now()).filter(job_id=job_id).defer("body", "facts")
    return list(rows.order_by("-pk")[:limit])
