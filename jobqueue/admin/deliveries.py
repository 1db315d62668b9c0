"""The admin of `WebhookDelivery`: the deliveries with their results, and verbs on them."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _lazy

from jobqueue.access import visible
from jobqueue.admin import delivery_columns as cells
from jobqueue.admin import delivery_list, listing
from jobqueue.admin.base import audited
from jobqueue.admin.delivery_verbs import DeliveryVerbsAdmin
from jobqueue.admin.filters import EndedFilter
from jobqueue.admin.formatting import excerpt, masked_json, moment, prose
from jobqueue.admin.job_runs import Row
from jobqueue.admin.pages import Pages
from jobqueue.core.webhook_rules import shown_url
from jobqueue.db import Now
from jobqueue.models import Job, Queue, WebhookDelivery

Status = WebhookDelivery.Status


# Each delivery is changed in a transaction of its own: one around all of them (ATOMIC_REQUESTS) would hold all
# locks.
@method_decorator(transaction.non_atomic_requests, name="changelist_view")
@method_decorator(transaction.non_atomic_requests, name="verb_view")
class DeliveryAdmin(DeliveryVerbsAdmin):
    """The admin of deliveries; their verbs are in ``delivery_verbs``."""

    list_display = (
        cells.number,
        cells.status,
        cells.event,
        cells.job,
        cells.receiver,
        cells.attempts,
        cells.next_attempt,
        cells.last_response,
    )
    sortable_by = (cells.number,)  # type: ignore[assignment]  # no other order has an index
    list_filter = (delivery_list.StatusFilter, delivery_list.EventFilter, delivery_list.RetriedFilter, EndedFilter)
    list_per_page = 50
    list_max_show_all = 100
    ordering = ("-id",)
    search_fields = ("job_id",)
    search_help_text = _lazy("The number or public id of a job.")
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    paginator = listing.CappedPaginator
    change_list_template = "admin/jobqueue/webhookdelivery/change_list.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[WebhookDelivery]:
        """Return the deliveries of jobs that the user may see, with the database's time, from which durations are counted."""
        return visible.narrow_deliveries(request.user, super().get_queryset(request)).annotate(now=Now())

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[delivery_list.DeliveryChangeList]:
        """Return `DeliveryChangeList`."""
        return delivery_list.DeliveryChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[WebhookDelivery], search_term: str
    ) -> tuple[QuerySet[WebhookDelivery], bool]:
        """Search by the number of a job."""
        return (queryset.none() if listing.has_nul(request) else delivery_list.search(queryset, search_term)), False

    @audited
    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list or run an action on the selected deliveries."""
        return super().changelist_view(
            request, {"title": _("Webhook deliveries"), "is_nav_sidebar_enabled": False, **(extra_context or {})}
        )

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
            return self.redirect_missing(request, object_id)
        context = {
            **self.page_context(request),
            "title": _("Delivery %(number)s") % {"number": delivery.pk},
            "original": delivery,
            "status": cells.status(delivery),
            "rows": _rows(delivery, Pages(request)),
            "webhook_url": self._webhook_url(request, delivery),
            "error": prose(delivery.error),
            "facts": masked_json(delivery.facts),
            "body": _body(delivery.body),
            "attempts": cells.attempt_rows(delivery),
            "verbs": self.verbs_of(request, delivery),
            **(extra_context or {}),
        }
        return TemplateResponse(request, "jobqueue/admin/delivery.html", context)

    def _webhook_url(self, request: HttpRequest, delivery: WebhookDelivery) -> str:
        """Return the URL of the form that corrects the URL of the queue; empty if the user may not, or if the job has its own URL."""
        if delivery.status == Status.DELIVERED or not request.user.has_perm("jobqueue.set_webhook_queue"):
            return ""
        if Job.objects.current.numbered(delivery.job_id).exclude(webhook_url="").exists():
            return ""
        pages = Pages(request)
        return pages.url("jobqueue_queue_webhook", queue=delivery.queue, delivery=delivery.pk) if pages.may_view(Queue) else ""


def _rows(delivery: WebhookDelivery, pages: Pages) -> list[Row]:
    now = cells.now_of(delivery)
    times = (
        (_("Created"), delivery.created_at),
        (_("Next attempt"), delivery.next_attempt_at if delivery.status == Status.PENDING else None),
        (_("Ended"), delivery.finished_at),
    )
    return [
        Row(_("Event"), delivery.event),
        Row(_("Job"), cells.job(delivery)),
        Row(_("Queue"), _queue(delivery, pages)),
        Row(_("Receiver"), excerpt(shown_url(delivery.url))),
        Row(_("Message id"), str(delivery.message_id)),
        Row(_("Attempts"), str(delivery.attempts)),
        Row(
            _("Last response"),
            _("none") if delivery.response_status is None else _("status %(status)s") % {"status": delivery.response_status},
        ),
        *(Row(name, moment(when, now)) for name, when in times if when is not None),
    ]


def _queue(delivery: WebhookDelivery, pages: Pages) -> str:
    """Return the name of the queue, as a link if the user may view its page."""
    url = pages.url("jobqueue_queue_change", delivery.queue) if pages.may_view(Queue) else ""
    return format_html('<a href="{}"><bdi>{}</bdi></a>', url, delivery.queue) if url else prose(delivery.queue)


def _body(text: str) -> str:
    """Return the message as it is sent, indented, with masked secrets; empty if it does not exist yet."""
    try:
        return masked_json(json.loads(text)) if text else ""
    except ValueError:
        return prose(text)
