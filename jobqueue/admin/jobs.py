"""The admin of `Job`: the list, the page of one job, and the four verbs on both.

A verb is checked where it acts: permission, `get_queryset` (a project may narrow what a user sees), and the state of the locked row.
Jobs that run are interrupted only after a page has named them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import BadRequest, PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.utils.safestring import SafeString

from jobqueue.admin import cells, detail, filters, listing
from jobqueue.admin.base import ReadOnlyAdmin
from jobqueue.admin.confirm import Confirmation
from jobqueue.admin.tally import GONE, Tally, perform
from jobqueue.admin.verbs import CANCEL, PAUSE, RESUME, RUN_NOW, VERBS, Verb
from jobqueue.models import Job

MOST_AT_ONCE = 500  # jobs in one request: each is a transaction, and a browser sends one field for each


@method_decorator(transaction.non_atomic_requests, name="changelist_view")
@method_decorator(transaction.non_atomic_requests, name="verb_view")
class JobAdmin(ReadOnlyAdmin[Job]):
    """Show jobs, and let people cancel, pause, resume and hurry them."""

    list_display = ("number", "state", "where", "what", "rank", "bar", "waited", "ran", "runs", "runs_on")
    sortable_by = ("number",)  # no other order has an index
    list_filter = (filters.StatusFilter, filters.WaitingForFilter, filters.QueueFilter, filters.TaskFilter)
    list_per_page = 50
    list_max_show_all = 100
    ordering = ("-id",)
    search_fields = ("id",)
    search_help_text = "A job's number, or a part of a task's path."
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    paginator = listing.CappedPaginator
    actions = ("cancel", "pause", "resume", "run_now")

    # The list

    def get_queryset(self, request: HttpRequest) -> QuerySet[Job]:
        """Return the jobs with the database's time, from which durations are counted."""
        return super().get_queryset(request).annotate(now=Now())

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[listing.JobChangeList]:
        """Return our list."""
        return listing.JobChangeList

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Allow our filters only: ``?kwargs__password__startswith=a`` would tell a secret letter by letter."""
        return lookup in {each.parameter_name for each in self.list_filter}

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Job], search_term: str) -> tuple[QuerySet[Job], bool]:
        """Search by number or task."""
        return (queryset.none() if listing.has_nul(request) else listing.search(queryset, search_term)), False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list or do a bulk action; a selection that is no number is a bad request."""
        for value in request.POST.getlist(ACTION_CHECKBOX_NAME):
            if (listing.as_id(value) or listing.LARGEST_ID + 1) > listing.LARGEST_ID:
                raise BadRequest("A selected job is not a number.")
        return super().changelist_view(request, extra_context)

    @admin.display(description="job", ordering="id")
    def number(self, job: Job) -> str:
        """Return the job's number."""
        return f"#{job.pk}"

    @admin.display(description="status")
    def state(self, job: Job) -> SafeString:
        """Return the status."""
        return cells.status(job)

    @admin.display(description="queue")
    def where(self, job: Job) -> str:
        """Return the queue."""
        return job.queue

    @admin.display(description="task")
    def what(self, job: Job) -> SafeString:
        """Return the task, and what the job says."""
        return cells.task(job, getattr(job, "brief", ""))

    @admin.display(description="priority")
    def rank(self, job: Job) -> int:
        """Return the priority."""
        return job.priority

    @admin.display(description="progress")
    def bar(self, job: Job) -> SafeString | str:
        """Return the progress."""
        return cells.progress(job)

    @admin.display(description="waited")
    def waited(self, job: Job) -> str:
        """Return how long it waited."""
        return cells.waited(job, _now(job))

    @admin.display(description="ran")
    def ran(self, job: Job) -> str:
        """Return how long it ran."""
        return cells.ran(job, _now(job))

    @admin.display(description="attempt")
    def runs(self, job: Job) -> SafeString | str:
        """Return the attempt."""
        return cells.attempt(job)

    @admin.display(description="worker")
    def runs_on(self, job: Job) -> SafeString | str:
        """Return the worker."""
        return cells.worker(job, getattr(job, "worker", None))

    # Permissions of the verbs, also for the list of actions

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may cancel."""
        return CANCEL.allowed(request)

    def has_pause_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may pause."""
        return PAUSE.allowed(request)

    def has_resume_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may resume."""
        return RESUME.allowed(request)

    def has_run_now_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may let a scheduled job run now."""
        return RUN_NOW.allowed(request)

    # The verbs on the list

    @admin.action(description="Cancel", permissions=("cancel",))
    def cancel(self, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse | None:
        """Cancel the selected jobs."""
        return self._act_on_selected(request, queryset, CANCEL)

    @admin.action(description="Pause", permissions=("pause",))
    def pause(self, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse | None:
        """Pause the selected jobs."""
        return self._act_on_selected(request, queryset, PAUSE)

    @admin.action(description="Resume", permissions=("resume",))
    def resume(self, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse | None:
        """Resume the selected jobs."""
        return self._act_on_selected(request, queryset, RESUME)

    @admin.action(description="Run now", permissions=("run_now",))
    def run_now(self, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse | None:
        """Let the selected scheduled jobs run now."""
        return self._act_on_selected(request, queryset, RUN_NOW)
