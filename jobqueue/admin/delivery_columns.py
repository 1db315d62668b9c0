"""The columns of the list of deliveries. URLs and responses come from outside, so they are masked, shortened and escaped."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobqueue import clock
from jobqueue.admin.columns import badge
from jobqueue.admin.formatting import NOTHING, ago, between, moment, prose
from jobqueue.admin.labels import translated
from jobqueue.core.webhook_rules import shown_url
from jobqueue.insight.duties import moment as read_moment
from jobqueue.models import WebhookDelivery
from jobqueue.webhooks.shown import attempts_of

BRIEF_URL = 80
MAX_ERROR = 160
KINDS = {"PENDING": "pending", "DELIVERED": "success", "FAILED": "error"}


def now_of(delivery: WebhookDelivery) -> datetime:
    """Return the database's time at which the delivery was read."""
    now: datetime = getattr(delivery, "now", None) or clock.now()
    return now


@admin.display(description=gettext_lazy("delivery"), ordering="id")
def number(delivery: WebhookDelivery) -> str:
    """Return the delivery's number."""
    return f"#{delivery.pk}"


@admin.display(description=gettext_lazy("status"))
def status(delivery: WebhookDelivery) -> SafeString:
    """Return the status, with a note if an attempt failed and another one follows."""
    note = _("is tried again") if delivery.status == WebhookDelivery.Status.PENDING and delivery.attempts else ""
    return badge(KINDS.get(delivery.status, "pending"), translated(delivery.get_status_display()), note)


@admin.display(description=gettext_lazy("event"))
def event(delivery: WebhookDelivery) -> str:
    """Return the name of the event."""
    return delivery.event


@admin.display(description=gettext_lazy("job"))
def job(delivery: WebhookDelivery) -> SafeString:
    """Return the job's number as a link to its page."""
    return format_html('<a href="{}">#{}</a>', reverse("admin:jobqueue_job_change", args=[delivery.job_id]), delivery.job_id)


@admin.display(description=gettext_lazy("receiver"))
def receiver(delivery: WebhookDelivery) -> SafeString:
    """Return the URL with masked secrets and a shortened middle; not as a link, because a click must not open it."""
    url = shown_url(delivery.url)
    short = url if len(url) <= BRIEF_URL else f"{url[: BRIEF_URL - 20]}…{url[-19:]}"
    return format_html('<bdi class="jq-url">{}</bdi>', short)


@admin.display(description=gettext_lazy("attempts"))
def attempts(delivery: WebhookDelivery) -> str:
    """Return the number of attempts."""
    return str(delivery.attempts)


@admin.display(description=gettext_lazy("next attempt"))
def next_attempt(delivery: WebhookDelivery) -> SafeString | str:
    """Return when the next attempt is due, or when the delivery ended."""
    now = now_of(delivery)
    if delivery.status == WebhookDelivery.Status.PENDING:
        due = _("in %(duration)s") % {"duration": between(now, delivery.next_attempt_at)}
        return due if delivery.next_attempt_at > now else _("due now")
    if delivery.finished_at is None:
        return NOTHING
    return format_html('<span class="jq-quiet">{} {}</span>', _("ended"), ago(delivery.finished_at, now))


@admin.display(description=gettext_lazy("last response"))
def last_response(delivery: WebhookDelivery) -> SafeString | str:
    """Return the result of the last attempt: the status of the response, and the error."""
    error = prose(delivery.error, MAX_ERROR).strip().partition("\n")[0]
    if delivery.response_status is None and not error:
        return NOTHING
    code = "" if delivery.response_status is None else str(delivery.response_status)
    # The text of an error usually contains the number.
    code = "" if error and code and code in error else code
    kind = "error" if error else "success"
    return format_html('<span class="jq-response jq-response-{}">{}</span>', kind, " ".join(part for part in (code, error) if part))


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt on the page of a delivery."""

    number: str
    at: SafeString | str
    receiver: str
    result: SafeString | str
    took: str
    excerpt: str


def attempt_rows(delivery: WebhookDelivery) -> list[AttemptRow]:
    """Return the attempts of a delivery, the newest first."""
    now = now_of(delivery)
    return [_attempt(entry, now) for entry in reversed(attempts_of(delivery))]


def _attempt(entry: dict[str, Any], now: datetime) -> AttemptRow:
    when, number, took = read_moment(entry["at"] or ""), entry["attempt"], entry["milliseconds"]
    response = prose(entry["error"] or "", MAX_ERROR).strip().partition("\n")[0] or _("status %(status)s") % {"status": entry["status"]}
    return AttemptRow(
        "" if number is None else str(number),
        moment(when, now) if when is not None else NOTHING,
        entry["url"] or "",
        format_html('<span class="jq-response jq-response-{}">{}</span>', "error" if entry["error"] else "success", response),
        "" if took is None else _("%(number)s ms") % {"number": f"{took:,}"},
        prose(entry["excerpt"] or ""),
    )
