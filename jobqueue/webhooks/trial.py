"""A test of a queue's webhook: one signed message, sent from this process at once, and what the receiver responded.

It passes the same checks as any delivery. It belongs to no job, is sent once, and is not stored.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from jobqueue import conf
from jobqueue.bounded import Calls
from jobqueue.core.masking import PLAIN
from jobqueue.core.sentences import sentence
from jobqueue.core.texts import exception_summary, safe_repr
from jobqueue.core.webhook_rules import origin, secrets_of, shown_url
from jobqueue.exceptions import InvalidOption
from jobqueue.webhooks import outbox
from jobqueue.webhooks.queues import queue_webhook
from jobqueue.webhooks.senders import PATIENCE_SECONDS

if TYPE_CHECKING:
    from jobqueue.webhooks.sending import AttemptResult

EVENT = "jobqueue.test"
UNSIGNED = "Not sent: WEBHOOK_SIGNED_ONLY is set, and WEBHOOK_SECRET has no secret for this queue."

# A test that hangs is not repeated, so it occupies one thread for each queue.
_calls = Calls(0.0)


@dataclass(frozen=True, slots=True)
class WebhookTest:
    """The result of a test: whether the receiver accepted the message, and the beginning of its response, with masked secrets."""

    queue: str
    url: str
    delivered: bool
    signed: bool
    status: int | None
    milliseconds: int | None
    error: str
    excerpt: str


def send_test(queue: str) -> WebhookTest:
    """Send a test message to the receiver of a queue; raise `InvalidOption` if it has none, and `JobQueueError` without the extra."""
    url = queue_webhook(queue).url
    if not url:
        raise InvalidOption(sentence("Queue %(queue)s has no webhook URL: set one first.", queue=safe_repr(PLAIN(queue))))
    outbox.check_packages()
    secrets: tuple[str, ...] = ()

    def send() -> AttemptResult:
        nonlocal secrets
        secrets = secrets_of(conf.webhook_secret(), queue, "", origin(url))
        return _send(queue, url, secrets)

    try:
        # In another thread: the resolution of a name, and a callable of the project, cannot be limited from within.
        _calls.seconds = conf.current().webhook_timeout_seconds + PATIENCE_SECONDS
        result = _calls(queue, send)
    except Exception as error:  # noqa: BLE001 - a callable of the project can raise any exception
        return WebhookTest(queue, shown_url(url), False, False, None, None, exception_summary(error, PLAIN), "")
    return WebhookTest(
        *(queue, shown_url(url), result.delivered, bool(secrets)),
        *(result.status, result.milliseconds, result.error, result.excerpt),
    )


def _send(queue: str, url: str, secrets: tuple[str, ...]) -> AttemptResult:
    from jobqueue.webhooks.sending import AttemptResult, send

    settings = conf.current()
    if settings.webhook_signed_only and not secrets:
        return AttemptResult(error=UNSIGNED)
    body = json.dumps({"type": EVENT, "timestamp": datetime.now(UTC).isoformat(), "data": {"queue": queue}}, separators=(",", ":"))
    return send(
        url,
        f"msg_{uuid.uuid4().hex}",
        body,
        secrets=secrets,
        allowed=settings.webhook_allowed_hosts,
        seconds=settings.webhook_timeout_seconds,
        https_only=settings.webhook_https_only,
    )
