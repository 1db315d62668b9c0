"""The admin of `WebhookDelivery`: what was sent and what came of it, and sending it again."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.core.exceptions import BadRequest, PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator

from jobqueue import visible
from jobqueue.admin import delivery_cells as cells
from jobqueue.admin import delivery_list, listing
from jobqueue.admin.base import ReadOnlyAdmin
from jobqueue.admin.detail import Row
from jobqueue.admin.filters import EndedFilter
from jobqueue.admin.wording import excerpt, masked_json, moment, prose
from jobqueue.db import Now
from jobqueue.models import Job, WebhookDelivery
from jobqueue.webhook_rules import shown_url
from jobqueue.webhooks.redelivery import NO_SUCH, STILL_TO_BE_SENT, redeliver

FIELD = "confirmed"
MOST_AT_ONCE = 500
MOST_SHOWN = 50
UNSELECTED = ("", "0", "false", "False")
Status = WebhookDelivery.Status


@admin.action(description="Redeliver", permissions=["redeliver"])
def redeliver_selected(modeladmin: DeliveryAdmin, request: HttpRequest, queryset: QuerySet[WebhookDelivery]) -> HttpResponse | None:
    """Send what is selected on the list again."""
    return modeladmin.redeliver_selected(request, queryset)


# Each delivery is changed in a transaction of its own: one around all of them (ATOMIC_REQUESTS) would hold the locks of all.
@method_decorator(transaction.non_atomic_requests, name="changelist_view")
@method_decorator(transaction.non_atomic_requests, name="redeliver_view")
class DeliveryAdmin(ReadOnlyAdmin[WebhookDelivery]):
    """Show deliveries, and let people send them again."""

    list_display = (
        cells.number,
        cells.status,
        cells.event,
        cells.job,
        cells.receiver,
        cells.attempts,
        cells.next_attempt,
        cells.answer,
    )
    sortable_by = (cells.number,)  # type: ignore[assignment]  # no other order has an index
    list_filter = (delivery_list.StatusFilter, delivery_list.EventFilter, delivery_list.RetriedFilter, EndedFilter)
    list_per_page = 50
    list_max_show_all = 100
    ordering = ("-id",)
    search_fields = ("job_id",)
    search_help_text = "The number of a job."
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    paginator = listing.CappedPaginator
    actions = (redeliver_selected,)
    change_list_template = "admin/jobqueue/webhookdelivery/change_list.html"

    def has_redeliver_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may send messages again."""
        return request.user.has_perm("jobqueue.redeliver_webhookdelivery")

    def get_urls(self) -> list[URLPattern]:
        """Add the address to which the button of a delivery's page is sent."""
        view = self.admin_site.admin_view(self.redeliver_view)
        return [path("<int:object_id>/redeliver/", view, name="jobqueue_webhookdelivery_redeliver"), *super().get_urls()]

    def get_queryset(self, request: HttpRequest) -> QuerySet[WebhookDelivery]:
        """Return the deliveries of jobs that the user may see, with the database's time, from which durations are counted."""
        return visible.narrow_deliveries(request.user, super().get_queryset(request)).annotate(now=Now())

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[delivery_list.DeliveryChangeList]:
        """Return our list."""
        return delivery_list.DeliveryChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[WebhookDelivery], search_term: str
    ) -> tuple[QuerySet[WebhookDelivery], bool]:
        """Search by the number of a job."""
        return (queryset.none() if listing.has_nul(request) else delivery_list.search(queryset, search_term)), False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list or send again what is selected; a selection that is no number is a bad request."""
        for value in request.POST.getlist(ACTION_CHECKBOX_NAME):
            delivery_id = listing.as_id(value)
            if delivery_id is None or delivery_id > listing.LARGEST_ID:
                raise BadRequest("A selected delivery is not a number.")
        return super().changelist_view(request, {"title": "Webhook deliveries", "is_nav_sidebar_enabled": False, **(extra_context or {})})

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show one delivery; there is no form to submit."""
        if request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        delivery = self.get_object(request, unquote(object_id))
        if not self.has_view_permission(request, delivery):
            raise PermissionDenied
        if delivery is None:
            return self._gone(request, object_id)
        context = {
            **self._context(request),
            "title": f"Delivery {delivery.pk}",
            "original": delivery,
            "status": cells.status(delivery),
            "rows": _rows(delivery),
            "error": prose(delivery.error),
            "facts": masked_json(delivery.facts),
            "body": _body(delivery.body),
            "may_redeliver": self.has_redeliver_permission(request) and delivery.status != Status.PENDING,
            **(extra_context or {}),
        }
        return TemplateResponse(request, "jobqueue/admin/delivery.html", context)

    def redeliver_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        """Send one message again, by POST; a GET (as after a login) only leads to its page."""
        delivery = self.get_object(request, str(object_id))
        if not self.has_view_permission(request, delivery) or not self.has_redeliver_permission(request):
            raise PermissionDenied
        if delivery is None:
            return self._gone(request, object_id)
        asked = self._redeliver(request, [delivery], on_list=False) if request.method == "POST" else None
        name = "admin:jobqueue_webhookdelivery_change"
        return asked or HttpResponseRedirect(reverse(name, args=[delivery.pk], current_app=self.admin_site.name))

    def redeliver_selected(self, request: HttpRequest, queryset: QuerySet[WebhookDelivery]) -> HttpResponse | None:
        """Send again what is selected on the list."""
        if not self.has_redeliver_permission(request):
            raise PermissionDenied
        if request.POST.get("select_across", "") in UNSELECTED:
            # Not by the list's filters: what has left them since is told about, not dropped in silence.
            selected = [int(value) for value in request.POST.getlist(ACTION_CHECKBOX_NAME)]
            return self._redeliver(request, list(self.get_queryset(request).filter(pk__in=selected)))
        rows = list(queryset.exclude(status=Status.PENDING)[: MOST_AT_ONCE + 1])
        if len(rows) > MOST_AT_ONCE:
            text = f"More than {MOST_AT_ONCE} were selected. Only the newest {MOST_AT_ONCE} are taken; repeat it for the rest."
            self.message_user(request, text, messages.INFO)
        return self._redeliver(request, rows[:MOST_AT_ONCE])

    def _redeliver(self, request: HttpRequest, rows: list[WebhookDelivery], *, on_list: bool = True) -> HttpResponse | None:
        """Send messages again and tell of how many; return the page that asks, where somebody must confirm first."""
        can = [row for row in rows if row.status != Status.PENDING]
        confirmed = {listing.as_id(part) for part in request.POST.get(FIELD, "").split(",")}
        if {row.pk for row in can} - confirmed:
            return self._ask(request, can, len(rows) - len(can), on_list=on_list)
        done, reasons = [], [STILL_TO_BE_SENT] * (len(rows) - len(can))
        for row in sorted(can, key=lambda row: row.pk):
            # The change and its record are committed together: there is none without the other.
            with Job.objects.database.atomic():
                if answer := redeliver(row.pk):
                    self.log_change(request, row, f"Redelivered; it was {row.status}.")
            (done.append(row.pk) if answer else reasons.append(answer.reason))
        if done:
            was = f"Delivery {done[0]} is" if len(done) == 1 else f"{len(done):,} deliveries are"
            self.message_user(request, f"{was} sent again.", messages.SUCCESS)
        for reason in dict.fromkeys(reasons):
            self.message_user(request, f"{reasons.count(reason):,} not sent again: {reason}.", messages.WARNING)
        if not rows:
            self.message_user(request, f"Nothing is sent again: {NO_SUCH}.", messages.WARNING)
        return None

    def _ask(self, request: HttpRequest, rows: list[WebhookDelivery], others: int, *, on_list: bool) -> HttpResponse:
        fields = [(FIELD, ",".join(str(row.pk) for row in rows))]
        if on_list:
            fields += [("action", redeliver_selected.__name__), *((ACTION_CHECKBOX_NAME, str(row.pk)) for row in rows)]
        noun = "delivery" if len(rows) == 1 else "deliveries"
        context = {
            **self._context(request),
            "title": f"Send {len(rows):,} {noun} again?",
            "rows": [(row, *(cell(row) for cell in CONFIRMED_CELLS)) for row in rows[:MOST_SHOWN]],
            "unnamed": max(len(rows) - MOST_SHOWN, 0),
            "others": others,
            "fields": fields,
            "button": f"Redeliver {noun} {rows[0].pk}" if len(rows) == 1 else f"Redeliver {len(rows):,} {noun}",
            "back": request.get_full_path() if on_list else reverse("admin:jobqueue_webhookdelivery_change", args=[rows[0].pk]),
        }
        return TemplateResponse(request, "jobqueue/admin/redeliver.html", context)

    def _context(self, request: HttpRequest) -> dict[str, Any]:
        request.current_app = self.admin_site.name
        return {**self.admin_site.each_context(request), "is_nav_sidebar_enabled": False, "opts": self.opts, "media": self.media}

    def _gone(self, request: HttpRequest, object_id: object) -> HttpResponse:
        self.message_user(request, f"There is no delivery {str(object_id)[:40]} (any more).", messages.WARNING)
        return HttpResponseRedirect(reverse("admin:jobqueue_webhookdelivery_changelist", current_app=self.admin_site.name))


CONFIRMED_CELLS = (cells.status, cells.event, cells.job, cells.receiver, cells.attempts, cells.answer)


def _rows(delivery: WebhookDelivery) -> list[Row]:
    now = cells.now_of(delivery)
    times = (
        ("Created", delivery.created_at),
        ("Next attempt", delivery.next_attempt_at if delivery.status == Status.PENDING else None),
        ("Ended", delivery.finished_at),
    )
    return [
        Row("Event", delivery.event),
        Row("Job", cells.job(delivery)),
        Row("Queue", delivery.queue),
        Row("Receiver", excerpt(shown_url(delivery.url))),
        Row("Message id", str(delivery.message_id)),
        Row("Attempts", str(delivery.attempts)),
        Row("Last answer", "none" if delivery.response_status is None else f"status {delivery.response_status}"),
        *(Row(name, moment(when, now)) for name, when in times if when is not None),
    ]


def _body(text: str) -> str:
    """Return the message as it is sent, indented, its secrets hidden; empty where it is not made yet."""
    try:
        return masked_json(json.loads(text)) if text else ""
    except ValueError:
        return prose(text)
