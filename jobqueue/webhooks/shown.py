"""Deliveries and their attempts as JSON values, with masked secrets, for the admin, REST and the command line."""

from __future__ import annotations

from typing import Any

from jobqueue import public_ids
from jobqueue.core import webhook_rules
from jobqueue.core.json_columns import as_dict, as_list
from jobqueue.core.masking import PLAIN, mask_text
from jobqueue.models import WebhookDelivery

MAX_NAME_BYTES = 200
# The columns of an attempt, and the type of each: a row can have been edited by hand.
ATTEMPT: dict[str, type] = {"attempt": int, "at": str, "url": str, "status": int, "milliseconds": int, "error": str, "excerpt": str}


def as_json(delivery: WebhookDelivery) -> dict[str, Any]:
    """Return the state of a delivery."""
    pending = delivery.status == WebhookDelivery.Status.PENDING
    return {
        "delivery": delivery.pk,
        "message_id": str(delivery.message_id),
        "status": delivery.status,
        "event": delivery.event,
        "job": delivery.job_id,
        "public_id": public_ids.public_id(delivery.job_id),
        "queue": PLAIN.cut(delivery.queue, MAX_NAME_BYTES),
        "url": webhook_rules.shown_url(delivery.url),
        "attempts": delivery.attempts,
        "created_at": delivery.created_at.isoformat(),
        "next_attempt_at": delivery.next_attempt_at.isoformat() if pending else None,
        "finished_at": delivery.finished_at.isoformat() if delivery.finished_at else None,
        "response_status": delivery.response_status,
        "error": mask_text(delivery.error),
    }


def attempts_of(delivery: WebhookDelivery) -> list[dict[str, Any]]:
    """Return the newest attempts of a delivery, the oldest first."""
    return [_attempt(as_dict(entry)) for entry in as_list(delivery.history)]


def _attempt(entry: dict[str, Any]) -> dict[str, Any]:
    values = {name: value if type(value := entry.get(name)) is kind else None for name, kind in ATTEMPT.items()}
    shown = {name: mask_text(str(value)) if name in ("error", "excerpt") and value else value for name, value in values.items()}
    return {**shown, "url": webhook_rules.shown_url(str(values["url"])) if values["url"] else values["url"]}
