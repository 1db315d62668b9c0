"""The admin of `Schedule`: the schedules, their next times and errors; a form, and verbs with a permission each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple
from zoneinfo import available_timezones

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop

from jobqueue import clock, conf
from jobqueue.admin import schedule_columns as cells
from jobqueue.admin.base import Base, audited
from jobqueue.admin.filters import FailingFilter
from jobqueue.admin.labels import error_text, translated
from jobqueue.admin.schedule_form import ScheduleForm
from jobqueue.db import Now, overview
from jobqueue.exceptions import InvalidOption, JobQueueError
from jobqueue.models import Job, Schedule
from jobqueue.schedules import ticks as verbs
from jobqueue.schedules.jobs import run_schedule_now

WHAT: Final = ("name", "task", "args", "kwargs", "queue", "priority", "tenant", "target")
WHEN: Final = ("cron", "interval_seconds", "time_zone", "missed", "missed_limit")
SHOWN: Final = (cells.source, cells.state, cells.upcoming, cells.last_time, cells.error)
MASKED: Final[dict[str, Any]] = {"name": cells.name, "args": cells.args, "kwargs": cells.kwargs, "target": cells.target}


class VerbResult(NamedTuple):
    """The result of a verb, and the job that it created, if any."""

    text: str
    job_id: int | None = None

    def shown(self, name: str) -> str:
        """Return the message about a schedule, with a link to the job."""
        if self.job_id is None:
            return _("Schedule %(name)s: %(text)s") % {"name": name, "text": translated(self.text)}
        address = reverse("admin:jobqueue_job_change", args=[self.job_id])
        text = _('Schedule {name}: <a href="{url}">job {number}</a> was enqueued.')
        return format_html(text, name=name, url=address, number=self.job_id)


def _run_now(name: str) -> VerbResult:
    job_id = int(run_schedule_now(name))
    return VerbResult(f"Job {job_id} was enqueued.", job_id)


def _enable(name: str) -> VerbResult:
    return VerbResult(gettext_noop("Enabled.") if verbs.enable_schedule(name).changed else gettext_noop("Enabled (no change)."))


def _disable(name: str) -> VerbResult:
    return VerbResult(gettext_noop("Disabled.") if verbs.disable_schedule(name).changed else gettext_noop("Disabled (no change)."))


VERBS: Final[dict[str, tuple[Promise, Callable[[str], VerbResult]]]] = {
    "run_now": (gettext_lazy("Run now"), _run_now),
    "enable": (gettext_lazy("Enable"), _enable),
    "disable": (gettext_lazy("Disable"), _disable),
}


@method_decorator(transaction.non_atomic_requests, name="act_view")
class ScheduleAdmin(Base[Schedule]):
    """The admin of the schedules; those of the code cannot be edited, but enabled, disabled and run."""

    form = ScheduleForm
    list_display = (cells.name, cells.task, cells.when, cells.state, cells.next_time, cells.last_time, cells.error)
    sortable_by = (cells.name, cells.next_time, cells.last_time)  # type: ignore[assignment]  # callables, as above
    search_fields = ("name", "task")
    list_filter = (FailingFilter,)
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 100
    actions = ("run_now_selected", "enable_selected", "disable_selected")
    change_form_template = "jobqueue/admin/schedule.html"

    class Media:
        css = {"all": ("jobqueue/admin.css", "jobqueue/labels.css")}

    # Permissions

    def has_change_permission(self, request: HttpRequest, obj: Schedule | None = None) -> bool:
        """Return False for schedules of the code: the next start of a worker would undo a change."""
        return super().has_change_permission(request, obj) and (obj is None or obj.source == Schedule.Source.ADMIN)

    def has_view_permission(self, request: HttpRequest, obj: Schedule | None = None) -> bool:
        """Allow users who may change schedules to view all of them."""
        return super().has_view_permission(request, obj) or super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Schedule | None = None) -> bool:
        """Return False for schedules of the code: the next start would create them again, without their ticks."""
        may_be_deleted = obj is None or obj.source == Schedule.Source.ADMIN or obj.retired_at is not None
        return super().has_delete_permission(request, obj) and may_be_deleted

    def has_run_now_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may create jobs of schedules."""
        return self._may(request, "run_now")

    def has_enable_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may enable schedules."""
        return self._may(request, "enable")

    def has_disable_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may disable schedules."""
        return self._may(request, "disable")

    def _may(self, request: HttpRequest, verb: str) -> bool:
        return request.user.has_perm(f"jobqueue.{verb}_schedule")

    # The form

    def get_queryset(self, request: HttpRequest) -> QuerySet[Schedule]:
        """Return the schedules with the database's time."""
        return super().get_queryset(request).annotate(now=Now())

    def get_fieldsets(self, request: HttpRequest, obj: Schedule | None = None) -> Any:
        """Return the fields; users who may only view see the arguments with masked secrets."""
        editable = self.has_change_permission(request, obj) if obj else True
        columns = WHAT if editable else tuple(MASKED.get(name, name) for name in WHAT)
        if obj is None:
            may = ("enabled",) if self._may(request, "enable") else ()
            return ((None, {"fields": columns}), (_("When"), {"fields": (*WHEN, *may)}))
        return ((None, {"fields": columns}), (_("When"), {"fields": WHEN}), (_("State"), {"fields": SHOWN}))

    def get_readonly_fields(self, request: HttpRequest, obj: Schedule | None = None) -> Any:
        """Return the fields that are only shown."""
        return (*SHOWN, *MASKED.values())

    def save_model(self, request: HttpRequest, obj: Schedule, form: Any, change: bool) -> None:
        """Write only the fields of the form, so that concurrent writes of a leader stay."""
        names = [name for name in (*WHAT, *WHEN) if name in form.fields]
        if obj.enabled and not self._may(request, "enable") and (not change or any(name in WHAT for name in form.changed_data)):
            # A definition by a user without that permission must not run before another user has seen it.
            obj.enabled = False
            names.append("enabled")
            self.message_user(
                request,
                _("Schedule %(name)s is disabled: you do not have the permission to enable schedules.") % {"name": obj},
                messages.WARNING,
            )
        if change:
            verbs.define(obj, names)
        else:
            obj.source, obj.service = Schedule.Source.ADMIN, conf.service()
            if not verbs.create(obj):
                raise InvalidOption(f"Another user has just created a schedule {obj.name!r}; reload the list.")

    def delete_model(self, request: HttpRequest, obj: Schedule) -> None:
        """Delete a schedule; this is safe while a leader works on it."""
        verbs.remove(obj)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Name only the schedules: they can have hundreds of thousands of ticks."""
        return [str(obj) for obj in objs], {_("schedules"): len(objs)}, set(), []

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> Any:
        """Remove the bulk deletion: each deletion is confirmed on the schedule's own page."""
        # Django 6.1 passes it; older versions do not have this parameter
        more = {} if action_location is None else {"action_location": action_location}
        return {name: action for name, action in super().get_actions(request, **more).items() if name != "delete_selected"}

    # Pages

    def get_urls(self) -> list[URLPattern]:
        """Add the URLs of the buttons and of the preview."""
        wrap = self.admin_site.admin_view
        return [
            path("preview/", wrap(self.preview_view), name="jobqueue_schedule_preview"),
            path("<int:schedule_id>/act/<slug:verb>/", wrap(self.act_view), name="jobqueue_schedule_act"),
            *super().get_urls(),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list without the sidebar."""
        return super().changelist_view(request, {"title": _("Schedules"), "is_nav_sidebar_enabled": False, **(extra_context or {})})

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show one schedule with its buttons."""
        row = self.get_object(request, unquote(object_id)) if object_id else None
        may_preview = self.has_change_permission(request, row) if row is not None else self.has_add_permission(request)
        more: dict[str, Any] = {"may_preview": may_preview, "zones": sorted(available_timezones()) if may_preview else []}
        if row is not None and self.has_view_permission(request, row) and request.user.has_perm("jobqueue.view_job"):
            more["history"] = cells.history_rows(request.user, row)
        able = [(verb, label) for verb, (label, _act) in VERBS.items() if self._may(request, verb)] if object_id else []
        return super().changeform_view(request, object_id, form_url, {"verbs": able, **more, **(extra_context or {})})

    @audited
    def act_view(self, request: HttpRequest, schedule_id: int, verb: str) -> HttpResponse:
        """Run a verb on one schedule, by POST; a GET (as after a login) only redirects to its page."""
        if verb not in VERBS:
            raise Http404(f"Schedules have no action {verb!r}.")
        schedule = self.get_object(request, str(schedule_id))
        if not self.has_view_permission(request, schedule) or not self._may(request, verb):
            raise PermissionDenied
        if schedule is None:
            if request.method == "POST":
                self.log_missing(request, verb, [f"schedule {schedule_id}"])
            return HttpResponseRedirect(reverse("admin:jobqueue_schedule_changelist", current_app=self.admin_site.name))
        if request.method == "POST":
            self._act(request, verb, [schedule])
        return HttpResponseRedirect(reverse("admin:jobqueue_schedule_change", args=[schedule.pk], current_app=self.admin_site.name))

    def preview_view(self, request: HttpRequest) -> HttpResponse:
        """Show the next times for the values of the form, saved or not."""
        if not (self.has_add_permission(request) or self.has_change_permission(request)):
            raise PermissionDenied
        try:
            timing, error = cells.timing_of(request.POST), ""
            timing.check(clock.now())
            times = cells.next_times(timing, overview.clock(Job.objects.database))
        except InvalidOption as problem:
            times, error = [], str(problem)
        context = {**self.admin_site.each_context(request), "title": _("Next times"), "opts": self.opts, "times": times, "error": error}
        part = request.headers.get("X-Jobqueue-Part") == "1"  # the script of the form shows it beside the field
        return TemplateResponse(request, f"jobqueue/admin/{'times' if part else 'next_times'}.html", context)

    # Actions

    @admin.action(description=gettext_lazy("Run now: enqueue a job of each"), permissions=["run_now"])
    def run_now_selected(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        """Create a job of each selected schedule."""
        self._act(request, "run_now", queryset)

    @admin.action(description=gettext_lazy("Enable"), permissions=["enable"])
    def enable_selected(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        """Enable the selected schedules."""
        self._act(request, "enable", queryset)

    @admin.action(description=gettext_lazy("Disable"), permissions=["disable"])
    def disable_selected(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        """Disable the selected schedules."""
        self._act(request, "disable", queryset)

    def _act(self, request: HttpRequest, verb: str, schedules: Any) -> None:
        for schedule in schedules:
            try:
                # The change and its record are committed together.
                with Job.objects.database.atomic():
                    result = VERBS[verb][1](schedule.name)
                    self.log_verb(request, schedule, verb, result.text)
            except JobQueueError as error:
                self.log_refusal(request, schedule, verb, str(error))
                self.message_user(request, _("Schedule %(name)s: %(text)s") % {"name": schedule, "text": error_text(error)}, messages.ERROR)
            else:
                self.message_user(request, result.shown(str(schedule)), messages.SUCCESS)
