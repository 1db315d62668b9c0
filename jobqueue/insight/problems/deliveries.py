"""Problems of webhooks: deliveries that were given up, that are retried, and that are due and not sent."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from jobqueue.core.sentences import bounded, counted, sentence
from jobqueue.db import Now, counting
from jobqueue.insight.problems.base import MAX_COUNTED, PageLink, Problem, Severity, Thresholds, above, within
from jobqueue.models import Job, WebhookDelivery

Status = WebhookDelivery.Status
PAGE = "jobqueue_webhookdelivery_changelist"


def failed_webhooks(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem if too many deliveries were given up recently."""
    rows = WebhookDelivery.objects.current.filter(status=Status.FAILED, finished_at__gt=Now() - timedelta(seconds=given.since))
    number, more = _count(rows.order_by("-finished_at"), "finished_at", given.max_failed_webhooks)
    if above(number, given.max_failed_webhooks):
        text = counted(
            "%(number)s webhook delivery was given up %(within)s.",
            "%(number)s webhook deliveries were given up %(within)s.",
            bounded(number, more),
            within=within(given.since),
        )
        fix = sentence("Check the last response of each; correct the receiver or its URL, and redeliver.")
        link = PageLink(PAGE, query={"status": Status.FAILED, "ended_within": f"{given.since:g}"})
        yield Problem("failed_webhooks", Severity.WARNING, text, fix, count=number, more=more, link=link)


def retried_webhooks(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem if too many deliveries have failed and wait for another attempt."""
    number, more = _count(WebhookDelivery.objects.current.retried().order_by("pk"), "pk", given.max_retried_webhooks)
    if above(number, given.max_retried_webhooks):
        text = counted(
            "%(number)s webhook delivery was not accepted by the receiver and is retried.",
            "%(number)s webhook deliveries were not accepted by the receiver and are retried.",
            bounded(number, more),
        )
        fix = sentence("Check the last response of each; correct the receiver, or move the deliveries to the right URL.")
        link = PageLink(PAGE, query={"status": Status.PENDING, "retried": "1"})
        yield Problem("retried_webhooks", Severity.WARNING, text, fix, count=number, more=more, link=link)


def late_webhooks(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem if a delivery has been due for too long without a worker that sends it."""
    rows: Any = WebhookDelivery.objects.current.filter(status=Status.PENDING).annotate(now=Now()).order_by("next_attempt_at")
    for due, now in rows.values_list("next_attempt_at", "now")[:1]:
        late = (now - due).total_seconds()
        if above(late, given.max_webhook_delay):
            text = sentence("A webhook delivery has been due for %(seconds)s s and is not sent.", seconds=f"{late:.0f}")
            fix = sentence("Check that a worker runs the duty deliver_webhooks and has the extra 'webhooks' installed.")
            yield Problem("late_webhooks", Severity.ERROR, text, fix, link=PageLink(PAGE, query={"status": Status.PENDING}))


def _count(rows: Any, column: str, threshold: float | None) -> tuple[int, bool]:
    if threshold is None:
        return 0, False
    number = counting.count_in_order(Job.objects.database, rows, max(MAX_COUNTED, int(threshold) + 1), column)
    return number, number >= MAX_COUNTED
