"""The list of deliveries, for tables of any size: newest first, without a full count, and without filters that scan a large table."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import SimpleListFilter
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _lazy
from django.utils.translation import ngettext

from jobqueue.admin import figures, nothing
from jobqueue.admin.base import MAX_ID
from jobqueue.admin.labels import translated
from jobqueue.admin.listing import as_id
from jobqueue.core import masking, webhook_rules
from jobqueue.core.texts import clean
from jobqueue.insight.search import MAX_COUNTED, WINDOW
from jobqueue.models import WebhookDelivery

Status = WebhookDelivery.Status


class ChoiceFilter(SimpleListFilter):
    """A filter that compares one column with one of a few known values."""

    offered: tuple[tuple[str, str], ...] = ()

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the choices, and the current value even if it is not one of them."""
        chosen = self.value()
        more = [(chosen, masking.mask_text(clean(chosen)))] if chosen and chosen not in dict(self.offered) else []
        return [*((value, translated(label)) for value, label in self.offered), *more]

    def queryset(self, request: HttpRequest, queryset: QuerySet[WebhookDelivery]) -> QuerySet[WebhookDelivery]:
        """Return the deliveries whose column has the value."""
        value = self.value()
        if not value:
            return queryset
        return queryset.none() if "\0" in value else queryset.filter(**{str(self.parameter_name): value})


class StatusFilter(ChoiceFilter):
    """A filter by status."""

    title = _lazy("status")
    parameter_name = "status"
    offered = tuple((str(value), str(label)) for value, label in Status.choices)


class EventFilter(ChoiceFilter):
    """A filter by event."""

    title = _lazy("event")
    parameter_name = "event"
    offered = tuple((name, name) for name in webhook_rules.EVENTS)


class RetriedFilter(SimpleListFilter):
    """A filter for deliveries that have failed at least once and wait for another attempt."""

    title = _lazy("retried")
    parameter_name = "retried"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the only choice."""
        return [("1", _("failed, waiting for a retry"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[WebhookDelivery]) -> QuerySet[WebhookDelivery]:
        """Return the deliveries that wait for a retry, or all if the filter is not set."""
        rows: Any = queryset
        narrowed: QuerySet[WebhookDelivery] = rows.retried() if self.value() else rows
        return narrowed


def search(queryset: QuerySet[WebhookDelivery], text: str) -> QuerySet[WebhookDelivery]:
    """Return the deliveries of the job with this number, using an index."""
    wanted = text.strip()
    if not wanted:
        return queryset
    job_id = as_id(wanted)
    return queryset.none() if job_id is None or job_id > MAX_ID else queryset.filter(job_id=job_id)


class DeliveryChangeList(ChangeList):
    """The list, without reading the columns `body` and `facts`; filters without an index search only the newest deliveries."""

    newest_only = False

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[WebhookDelivery]:
        """Return the rows of the page."""
        queryset: QuerySet[WebhookDelivery] = super().get_queryset(request, exclude_parameters)
        status, event = self.params.get("status"), self.params.get("event")
        by_index = not event and (status == Status.PENDING or (status == Status.FAILED and bool(self.params.get("ended_within"))))
        by_index = by_index or as_id(self.query) is not None
        if not by_index and (status or event or self.params.get("ended_within") or self.params.get("retried")):
            newest = self.root_queryset.order_by("-pk").values_list("pk", flat=True).first() or 0
            self.newest_only = newest > WINDOW
            if self.newest_only:
                queryset = queryset.filter(pk__gt=newest - WINDOW)
        return queryset.defer("body", "facts", "history")

    @property
    def summary(self) -> str:
        """The number of deliveries; above `MAX_COUNTED` only a lower bound, because counting is expensive."""
        paginator: Any = self.paginator
        if paginator.more:
            most = figures.count(MAX_COUNTED)
            return _("%(number)s+ deliveries; only the first %(number)s are listed") % {"number": most}
        return ngettext("%(number)s delivery", "%(number)s deliveries", paginator.count) % {"number": figures.count(paginator.count)}

    @cached_property
    def nothing_found(self) -> nothing.NothingFound | None:
        """Return the scope of the search, if a search or a filter found nothing."""
        if self.result_count or not (self.query or self.has_active_filters):
            return None
        wanted = self.query.strip()
        scope = _("the newest %(number)s deliveries") % {"number": figures.count(WINDOW)} if self.newest_only else ""
        return nothing.deliveries(self, wanted, as_id(wanted), scope, MAX_COUNTED)

    @property
    def window_note(self) -> str:
        """A note if only a part was searched; empty otherwise."""
        only = _("Only the newest %(number)s deliveries were searched.")
        return only % {"number": figures.count(WINDOW)} if self.newest_only else ""
