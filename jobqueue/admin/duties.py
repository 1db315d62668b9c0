"""The admin of `BackgroundJobLease`: the leader of each duty, its last run and its problem; and the action to release a duty."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import BadRequest
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from jobqueue import clock
from jobqueue.admin import columns, figures
from jobqueue.admin.base import ReadOnlyAdmin, audited
from jobqueue.admin.formatting import NOTHING, ago, duration, excerpt, moment
from jobqueue.admin.labels import translated
from jobqueue.db import Now
from jobqueue.duties import leadership
from jobqueue.insight import duties
from jobqueue.models import BackgroundJobLease

COLUMNS = ("duty", "shown_problem", "shown_leader", "held_for", "every", "last_run", "took", "did", "errors")
BRIEF_CHARACTERS = 200


class DutyAdmin(ReadOnlyAdmin[BackgroundJobLease]):
    """The admin of the duties."""

    list_display = COLUMNS
    list_per_page = 100
    sortable_by = ("duty",)
    search_fields = ("job_name",)
    actions = ("release",)
    fields = (*COLUMNS, "heard", "set_aside", "last_error")
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[BackgroundJobLease]:
        """Return the duties with the database's time, against which their times are compared."""
        return super().get_queryset(request).annotate(now=Now())

    @audited
    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list, or run an action on it; reject names that no duty can have."""
        if any("\0" in name for name in request.POST.getlist(ACTION_CHECKBOX_NAME)):
            raise BadRequest("The name of a duty must not contain NUL.")
        return super().changelist_view(request, {"title": _("Duties"), "is_nav_sidebar_enabled": False, **(extra_context or {})})

    def has_release_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may release duties."""
        return request.user.has_perm("jobqueue.release_backgroundjoblease")

    @admin.action(description=gettext_lazy("Release: another worker becomes the leader"), permissions=["release"])
    def release(self, request: HttpRequest, queryset: QuerySet[BackgroundJobLease]) -> None:
        """Release the selected duties from their leaders."""
        free = []
        for row in queryset.order_by("pk"):
            if holder := leadership.release(row.pk):
                self.log_verb(request, row, "release", f"Released from worker {holder}.")
                self.message_user(
                    request,
                    _("%(duty)s was released from worker %(worker)s; the next worker that checks it becomes its leader.")
                    % {"duty": row.pk, "worker": holder},
                    messages.SUCCESS,
                )
            else:
                free.append(row.pk)
        if free:
            self.message_user(request, _("No worker leads %(duties)s.") % {"duties": ", ".join(free)}, messages.INFO)

    @admin.display(description=gettext_lazy("duty"), ordering="job_name")
    def duty(self, row: BackgroundJobLease) -> SafeString:
        """Return its name."""
        return format_html("<bdi>{}</bdi>", row.job_name)

    @admin.display(description=gettext_lazy("led by"))
    def shown_leader(self, row: BackgroundJobLease) -> SafeString | str:
        """Return the process that leads it."""
        leader = _leader_of(row)
        return format_html("<bdi>{}</bdi>", leader.process or leader.worker_id) if leader.worker_id else _("nobody")

    @admin.display(description=gettext_lazy("led for"))
    def held_for(self, row: BackgroundJobLease) -> str:
        """Return how long its leader has led it."""
        return _length(_leader_of(row).held_seconds)

    @admin.display(description=gettext_lazy("last heartbeat"))
    def heard(self, row: BackgroundJobLease) -> str:
        """Return how long ago the leader renewed it."""
        seconds = _leader_of(row).heard_seconds
        return NOTHING if seconds is None else _("%(duration)s ago") % {"duration": duration(seconds)}

    @admin.display(description=gettext_lazy("interval"))
    def every(self, row: BackgroundJobLease) -> str:
        """Return its interval."""
        return _length(_leader_of(row).interval_seconds)

    @admin.display(description=gettext_lazy("last run"))
    def last_run(self, row: BackgroundJobLease) -> SafeString | str:
        """Return when the last completed run began."""
        when = duties.moment(_leader_of(row).last_run_at)
        return ago(when, _now(row)) if when else NOTHING

    @admin.display(description=gettext_lazy("last run took"))
    def took(self, row: BackgroundJobLease) -> str:
        """Return how long the last run took."""
        return _length(_leader_of(row).last_duration_seconds)

    @admin.display(description=gettext_lazy("items handled"))
    def did(self, row: BackgroundJobLease) -> str:
        """Return how many items the last run handled, and how many all runs have handled."""
        leader = _leader_of(row)
        text = ngettext("%(last)s (of %(items)s in %(runs)s run)", "%(last)s (of %(items)s in %(runs)s runs)", leader.runs)
        numbers = {"last": leader.last_items, "items": leader.items, "runs": leader.runs}
        return text % {name: figures.count(number) for name, number in numbers.items()}

    @admin.display(description=gettext_lazy("set aside"))
    def set_aside(self, row: BackgroundJobLease) -> str:
        """Return how many rows were set aside; the log has the reasons."""
        return figures.count(_leader_of(row).set_aside)

    @admin.display(description=gettext_lazy("errors"))
    def errors(self, row: BackgroundJobLease) -> str:
        """Return how many runs failed."""
        return figures.count(_leader_of(row).errors)

    @admin.display(description=gettext_lazy("last error"))
    def last_error(self, row: BackgroundJobLease) -> SafeString | str:
        """Return the last error and its time."""
        leader = _leader_of(row)
        when = duties.moment(leader.last_error_at)
        return (
            format_html("{} ({})", leader.last_error, moment(when, _now(row)))
            if leader.last_error and when
            else leader.last_error or NOTHING
        )

    @admin.display(description=gettext_lazy("state"))
    def shown_problem(self, row: BackgroundJobLease) -> SafeString:
        """Return its state, with emphasis if there is a problem."""
        leader = _leader_of(row)
        if leader.problem:
            return format_html('<strong class="jq-alarm">{}</strong>', excerpt(translated(leader.problem), BRIEF_CHARACTERS))
        return columns.badge("success", _("OK")) if leader.worker_id else columns.badge("pending", _("Free"))


def _leader_of(row: BackgroundJobLease) -> duties.Leader:
    leader: Any = row.__dict__.get("_leader") or row.__dict__.setdefault("_leader", duties.leader(row, _now(row)))
    return leader  # type: ignore[no-any-return]


def _now(row: BackgroundJobLease) -> datetime:
    now: datetime = getattr(row, "now", None) or clock.now()
    return now


def _length(seconds: float | None) -> str:
    return NOTHING if seconds is None else duration(seconds)
