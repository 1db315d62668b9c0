"""The admin of `WebhookDelivery`: what was sent where, what came of it, and sending again; and the deliveries of one job on its page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import BadRequest
from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobqueue.admin import cells, listing
from jobqueue.admin.base import ReadOnlyAdmin
from jobqueue.admin.wording import NOTHING, excerpt, moment, prose
from jobqueue.models import Job, WebhookDelivery
from jobqueue.webhook_rules import shown_url
from jobqueue.webhooks.outbox import redeliver

KINDS = {"PENDING": "pending", "DELIVERED": "success", "FAILED": "error"}
COLUMNS = ("number", "shown_status", "event", "of_job", "receiver", "attempts", "next_attempt", "last_answer", "created")
BRIEF_CHARACTERS = 120
MOST_AT_ONCE = 500
MOST_SHOWN = 20


# Each is sent again in a transaction of its own.
@method_decorator(transaction.non_atomic_requests, name="changelist_view")
class DeliveryAdmin(ReadOnlyAdmin[WebhookDelivery]):
    """Show the deliveries."""

    list_display = COLUMNS
    list_filter = ("status", "event")
    list_per_page = 50
    show_full_result_count = False
    sortable_by = ("number",)
    actions = ("redeliver",)
    fields = ("message_id", *COLUMNS[1:5], "queue", *COLUMNS[5:], "finished", "shown_body")
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[WebhookDelivery]:
        """Return the deliveries with the database's time."""
        return super().get_queryset(request).annotate(now=Now())

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Allow our filters only: others would tell a secret of a URL letter by letter."""
        return lookup in ("status__exact", "event__exact", "event", "job", "job__exact")

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list, or do an action on it; refuse what is no number."""
        for value in request.POST.getlist(ACTION_CHECKBOX_NAME):
            if (found := listing.as_id(value)) is None or found > listing.LARGEST_ID:
                raise BadRequest("A selected delivery is not a number.")
        return super().changelist_view(request, {"title": "Webhook deliveries", "is_nav_sidebar_enabled": False, **(extra_context or {})})

    def has_redeliver_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may send messages again."""
        return request.user.has_perm("jobqueue.redeliver_webhookdelivery")

    @admin.action(description="Redeliver: send the same message again", permissions=["redeliver"])
    def redeliver(self, request: HttpRequest, queryset: QuerySet[WebhookDelivery]) -> None:
        """Send the selected messages again, but for those that are still to be sent."""
        done = left = 0
        for row in queryset.order_by("pk")[:MOST_AT_ONCE]:
            with Job.objects.database.atomic():
                sent = redeliver(row.pk)
                if sent:
                    self.log_change(request, row, "Sent again.")
            done, left = done + sent, left + (not sent)
        if done:
            self.message_user(request, f"{done:,} of the messages will be sent again, each with the same id.", messages.SUCCESS)
        if left:
            self.message_user(request, f"{left:,} of the messages are still to be sent.", messages.INFO)

    @admin.display(description="delivery", ordering="id")
    def number(self, row: WebhookDelivery) -> str:
        """Return the delivery's number."""
        return f"#{row.pk}"

    @admin.display(description="status")
    def shown_status(self, row: WebhookDelivery) -> SafeString:
        """Return the status."""
        return cells.badge(KINDS.get(row.status, "pending"), row.get_status_display())

    @admin.display(description="job")
    def of_job(self, row: WebhookDelivery) -> SafeString | str:
        """Return the job, as a link."""
        return format_html('<a href="{}">#{}</a>', reverse("admin:jobqueue_job_change", args=[row.job_id]), row.job_id)

    @admin.display(description="receiver")
    def receiver(self, row: WebhookDelivery) -> str:
        """Return the URL, its secrets hidden."""
        return excerpt(shown_url(row.url), BRIEF_CHARACTERS)

    @admin.display(description="next attempt")
    def next_attempt(self, row: WebhookDelivery) -> SafeString | str:
        """Return when it is tried next."""
        return moment(row.next_attempt_at, _now(row)) if row.status == WebhookDelivery.Status.PENDING else NOTHING

    @admin.display(description="last answer")
    def last_answer(self, row: WebhookDelivery) -> str:
        """Return what came of the last attempt."""
        return answer(row)

    @admin.display(description="created", ordering="id")
    def created(self, row: WebhookDelivery) -> SafeString:
        """Return when the event was."""
        return moment(row.created_at, _now(row))

    @admin.display(description="finished")
    def finished(self, row: WebhookDelivery) -> SafeString | str:
        """Return when it was delivered or given up."""
        return moment(row.finished_at, _now(row)) if row.finished_at else NOTHING

    @admin.display(description="body")
    def shown_body(self, row: WebhookDelivery) -> SafeString | str:
        """Return the message as it is sent."""
        return format_html('<pre class="jq-pre">{}</pre>', prose(row.body)) if row.body else "It is made at the first attempt."


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """Show one delivery on the page of its job."""

    delivery_id: int
    event: str
    badge: str
    receiver: str
    attempts: int
    answer: str


def rows(request: HttpRequest, job: Job) -> list[DeliveryRow]:
    """Return the newest deliveries of a job; none where the user may not see deliveries."""
    if not request.user.has_perm("jobqueue.view_webhookdelivery"):
        return []
    return [
        DeliveryRow(
            row.pk,
            row.event,
            cells.badge(KINDS.get(row.status, "pending"), row.get_status_display()),
            excerpt(shown_url(row.url), BRIEF_CHARACTERS),
            row.attempts,
            answer(row),
        )
        for row in WebhookDelivery.objects.current.filter(job_id=job.pk).defer("body", "facts")[:MOST_SHOWN]
    ]


def answer(row: WebhookDelivery) -> str:
    """Return what came of the last attempt of a delivery."""
    if row.error:
        return prose(row.error)
    return str(row.response_status) if row.response_status else NOTHING


def _now(row: WebhookDelivery) -> Any:
    return getattr(row, "now", None) or timezone.now()
