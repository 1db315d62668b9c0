"""The admin of `AuditRecord`: who did what to which object, from the admin, REST and the command line."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.contrib.admin import DateFieldListFilter, SimpleListFilter
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from jobqueue.admin import listing
from jobqueue.admin.base import ReadOnlyAdmin
from jobqueue.admin.formatting import moment
from jobqueue.core.texts import clean
from jobqueue.insight.activity import records
from jobqueue.models import AuditRecord

NEWEST, MAX_CHOICES = 1000, 100
SOURCES = {"admin": _("admin"), "rest": _("REST"), "command": _("command line"), "bulk": _("bulk action")}


class ValueFilter(SimpleListFilter):
    """A filter by one column, whose choices are the values of the newest records."""

    column: str

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the choices, and the current value even if it is not one of them."""
        newest = records(request.user).values_list(self.column, flat=True)[:NEWEST]
        found = sorted({value for value in newest if value})[:MAX_CHOICES]
        chosen = clean(self.value() or "")
        return [(value, value) for value in ([*found] if chosen in ("", *found) else [*found, chosen])]

    def queryset(self, request: HttpRequest, queryset: QuerySet[AuditRecord]) -> QuerySet[AuditRecord]:
        """Return the records with the value."""
        value = self.value()
        if not value:
            return queryset
        return queryset.none() if "\0" in value else queryset.filter(**{self.column: value})


class UserFilter(ValueFilter):
    """A filter by the name of the user or operator."""

    title = _("user")
    parameter_name, column = "user", "name"


class VerbFilter(ValueFilter):
    """A filter by verb."""

    title = _("verb")
    parameter_name, column = "verb", "verb"


class TimeFilter(DateFieldListFilter):
    """Django's filter by time, which offers yesterday, too."""

    def __init__(self, *args: Any, **options: Any) -> None:
        """Add yesterday behind today."""
        super().__init__(*args, **options)
        today: Any = self.links[1][1][self.lookup_kwarg_since]
        limits: Any = {self.lookup_kwarg_since: today - timedelta(days=1), self.lookup_kwarg_until: today}
        self.links = (*self.links[:2], (_("Yesterday"), limits), *self.links[2:])


class ActivityAdmin(ReadOnlyAdmin[AuditRecord]):
    """The admin of the activity, which only shows it."""

    list_display = ("when", "who", "verb", "shown_object", "result", "origin")
    list_display_links = None
    list_filter = (UserFilter, VerbFilter, ("at", TimeFilter))
    list_per_page = 100
    list_max_show_all = 100
    sortable_by = ()
    actions = None
    ordering = ("-id",)
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    paginator = listing.CappedPaginator

    def get_queryset(self, request: HttpRequest) -> QuerySet[AuditRecord]:
        """Return the records that the user may see."""
        return records(request.user)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list without the sidebar."""
        return super().changelist_view(request, {"title": _("Activity"), "is_nav_sidebar_enabled": False, **(extra_context or {})})

    def change_view(self, request: HttpRequest, object_id: str, *args: Any, **options: Any) -> HttpResponse:
        """Refuse the page of one record: the list shows all of it."""
        raise PermissionDenied

    @admin.display(description=_("when"))
    def when(self, record: AuditRecord) -> SafeString:
        """Return the time."""
        return moment(record.at)

    @admin.display(description=_("who"))
    def who(self, record: AuditRecord) -> SafeString:
        """Return the user; the tooltip shows the full name and the address."""
        return format_html('<bdi title="{} ({})">{}</bdi>', record.actor, record.address, record.name)

    @admin.display(description=_("object"))
    def shown_object(self, record: AuditRecord) -> SafeString:
        """Return the object, as a link if it has a page."""
        try:
            url = reverse(f"admin:jobqueue_{record.model}_change", args=[quote(record.key)], current_app=self.admin_site.name)
        except NoReverseMatch:
            return format_html("<bdi>{}</bdi>", record.object)
        return format_html('<a href="{}"><bdi>{}</bdi></a>', url, record.object)

    @admin.display(description=_("result"))
    def result(self, record: AuditRecord) -> SafeString:
        """Return what was done, as a sentence."""
        return format_html('<span dir="auto">{}</span>', record.text or record.verdict)

    @admin.display(description=_("from"))
    def origin(self, record: AuditRecord) -> str:
        """Return where it was done."""
        return str(SOURCES.get(record.source, record.source))
