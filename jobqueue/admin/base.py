"""The base classes of the admins: lists accept only the filters that they offer, and only verbs change data."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from django.contrib import admin
from django.contrib.admin import SimpleListFilter
from django.contrib.admin.exceptions import DisallowedModelAdminLookup
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.views.main import ERROR_FLAG, IGNORED_PARAMS, PAGE_VAR
from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import DateField, IntegerField, Model
from django.db.models.constants import LOOKUP_SEP
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from jobqueue.access import audit
from jobqueue.admin.formatting import NOTHING
from jobqueue.core.texts import clean, shorten

M = TypeVar("M", bound=Model)
MAX_ID = 2**63 - 1

# The lookups in the links of Django's own filters of a field. All compare whole values.
EXACT_LOOKUPS = ("exact", "isnull", "in")
GONE = gettext_noop("it no longer exists, or you may not change it")
DATE_LOOKUPS = (*EXACT_LOOKUPS, "gte", "lt")

if TYPE_CHECKING:

    class Generic(admin.ModelAdmin[M]):
        """The base admin for the type checker."""

else:

    class Generic(admin.ModelAdmin):
        """The base admin at run time, because it is not generic on Django 5.2."""

        def __class_getitem__(cls, model: Any) -> type:
            """Return the class itself: only the type checker uses the model."""
            return cls


def audited(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Return a view of an admin that records each change that its user may not make."""

    @functools.wraps(view)
    def wrapped(self: Any, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return view(self, request, *args, **kwargs)
        except PermissionDenied:
            if request.method == "POST":
                audit.log_line(request.user, "POST", request.path, audit.FORBIDDEN, audit.address_of(request))
            raise

    return wrapped


class Base(Generic[M]):
    """The base of all admins of jobqueue."""

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Allow only the filters that the list offers: ``?kwargs__password__startswith=a`` would reveal a secret letter by letter."""
        return any(lookup in self._lookups(list_filter) for list_filter in self.get_list_filter(request))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list, or run an action.

        The status is 400 for a filter that the list does not offer, with a page that lists the filters. It is also
        400 for a selected row that is not a number, if the rows have numbers.
        """
        if isinstance(self.opts.pk, IntegerField):
            for value in request.POST.getlist(ACTION_CHECKBOX_NAME):
                if not (value.isascii() and value.isdigit() and len(value) <= 19 and int(value) <= MAX_ID):
                    raise BadRequest(f"A selected {self.opts.verbose_name} is not a number.")
        try:
            return super().changelist_view(request, extra_context)
        except DisallowedModelAdminLookup:
            return self._unknown_filter(request)

    def _unknown_filter(self, request: HttpRequest) -> HttpResponse:
        offered = [min(map(str, self._lookups(list_filter))) for list_filter in self.get_list_filter(request)]
        known = {*offered, *IGNORED_PARAMS, PAGE_VAR, ERROR_FLAG}
        query = request.GET.copy()
        unknown = [name for name in query if name not in known and not self.lookup_allowed(name, "", request)]
        for name in unknown:
            del query[name]
        request.current_app = self.admin_site.name
        context = {
            **self.admin_site.each_context(request),
            "title": _("Unknown filter"),
            "opts": self.opts,
            "media": self.media,
            "unknown": [shorten(clean(name), 100) for name in unknown[:10]],
            "offered": offered,
            "without": f"?{query.urlencode()}",
        }
        return TemplateResponse(request, "jobqueue/admin/unknown_filter.html", context, status=400)

    # The audit. Django calls the first three for its own forms, and the verbs call them, too.

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Record an addition."""
        audit.log_line(request.user, "add", obj, audit.DONE, audit.address_of(request))
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Record a change."""
        text = message if isinstance(message, str) else "changed"
        audit.log_line(request.user, "change", obj, audit.DONE, audit.address_of(request), text)
        return super().log_change(request, obj, message)

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        """Record deletions."""
        for obj in queryset:
            audit.log_line(request.user, "delete", obj, audit.DONE, audit.address_of(request))
        return super().log_deletions(request, queryset)

    def log_verb(self, request: HttpRequest, obj: Model, verb: str, text: str) -> None:
        """Record that a verb was done."""
        audit.record(request.user, verb, obj, audit.DONE, audit.address_of(request), text=text)

    def log_refusal(self, request: HttpRequest, obj: Model, verb: str, reason: str) -> None:
        """Record that a verb was refused."""
        text = f"{verb.replace('_', ' ').capitalize()} was refused: {reason}."
        audit.record(request.user, verb, obj, audit.REFUSED, audit.address_of(request), text=text)

    def log_missing(self, request: HttpRequest, verb: str, names: Iterable[str]) -> None:
        """Record that a verb was refused for objects that do not exist, or that the user may not see."""
        for name in names:
            audit.log_line(request.user, verb, name, audit.REFUSED, audit.address_of(request), GONE)

    def _lookups(self, offered: Any) -> set[str | None]:
        """Return the parameters of the links of one filter."""
        if isinstance(offered, type) and issubclass(offered, SimpleListFilter):
            return {offered.parameter_name}
        name = offered[0] if isinstance(offered, list | tuple) else str(offered)
        *path, last = name.split(LOOKUP_SEP)
        field = None if path else self.opts.get_field(last)
        lookups = DATE_LOOKUPS if isinstance(field, DateField) else EXACT_LOOKUPS
        return {name, *(f"{name}{LOOKUP_SEP}{lookup}" for lookup in lookups)}


class ReadOnlyAdmin(Base[M]):
    """An admin without forms: run-time columns belong to the protocol, and a saved form would overwrite concurrent writes of workers."""

    empty_value_display = NOTHING

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return False."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        """Return False."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        """Return False."""
        return False

    class Media:
        css = {"all": ("jobqueue/admin.css", "jobqueue/labels.css")}
