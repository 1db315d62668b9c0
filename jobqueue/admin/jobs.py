"""The admin of `Job`: the list, and the page of one job; the verbs are in ``actions``, the targets in ``targets``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import SEARCH_VAR
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext as _

from jobqueue.access import visible
from jobqueue.admin import columns, deliveries_of_job, detail, filters, listing
from jobqueue.admin.errors import ErrorsAdmin
from jobqueue.admin.job_log import log_section
from jobqueue.admin.labels import translated
from jobqueue.admin.new_job import NewJobAdmin
from jobqueue.admin.rerun import RerunAdmin
from jobqueue.admin.tasks import TasksAdmin
from jobqueue.admin.verbs import VERBS
from jobqueue.db import Now
from jobqueue.exceptions import JobDoesNotExist
from jobqueue.insight.narrowed import why_for
from jobqueue.insight.reruns import reruns_of
from jobqueue.insight.why import Why
from jobqueue.models import Job

PART_HEADER = "X-Jobqueue-Part"


class JobAdmin(ErrorsAdmin, NewJobAdmin, TasksAdmin, RerunAdmin):
    """The admin of jobs, with verbs to cancel, pause, resume, run now and delete them."""

    list_display = (
        columns.number,
        columns.status,
        columns.queue,
        columns.task,
        columns.arguments,
        columns.priority,
        columns.progress,
        columns.when,
        columns.waited,
        columns.ran,
        columns.attempt,
        columns.worker,
    )
    sortable_by = (columns.number,)  # type: ignore[assignment]  # no other order has an index
    list_filter = (
        filters.StatusFilter,
        filters.WaitingForFilter,
        filters.QueueFilter,
        filters.TaskFilter,
        filters.TargetFilter,
        filters.TenantFilter,
        filters.EndedJobFilter,
        filters.BeforeFilter,
    )
    list_per_page = 50
    list_max_show_all = 100
    ordering = ("-id",)
    search_fields = ("id",)
    search_help_text = '7, order_id=7, error:"timed out", queue:mail'
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    paginator = listing.CappedPaginator

    def get_queryset(self, request: HttpRequest) -> QuerySet[Job]:
        """Return the jobs that the user may see, with the database's time, from which durations are counted."""
        return visible.narrow(request.user, super().get_queryset(request)).annotate(now=Now())

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[listing.JobChangeList]:
        """Return `JobChangeList`."""
        return listing.JobChangeList

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Job], search_term: str) -> tuple[QuerySet[Job], bool]:
        """Search in the search language."""
        # Django's form would ignore a search text with a NUL.
        return listing.search(queryset, request.GET.get(SEARCH_VAR, search_term)), False

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show one job, or for its live page only the part about the job; there is no form to submit."""
        if request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        job = self.get_object(request, unquote(object_id))
        if not self.has_view_permission(request, job):
            raise PermissionDenied
        part = PART_HEADER in request.headers
        if job is None:
            if part:
                raise Http404("There is no such job; it may have been deleted.")
            return self.redirect_missing(request, object_id)
        request.current_app = self.admin_site.name
        context = {
            **self.admin_site.each_context(request),
            "title": _("Job %(number)s") % {"number": job.pk},
            "is_nav_sidebar_enabled": False,
            "opts": self.opts,
            "media": self.media,
            "original": job,
            "page": detail.job_page(request, job),
            "why": _why(request, job),
            **deliveries_of_job.context(request, job.pk),
            "events_address": self.events_address(job),
            "log": log_section(request, job),
            "reruns": reruns_of(request.user, job),
            "may_run_again": self.may_run_again(request, job),
            "verbs": [verb.named_for(job) for verb in VERBS.values() if verb.possible(job) and verb.allowed(request)],
            **(extra_context or {}),
        }
        # The part alone shows no messages; they are for the next whole page.
        response = TemplateResponse(request, f"jobqueue/admin/{'job' if part else 'detail'}.html", context)
        patch_vary_headers(response, [PART_HEADER])
        return response


def _why(request: HttpRequest, job: Job) -> Why | None:
    """Return the reason why the job waits; None if it does not wait, or is deleted."""
    try:
        why = why_for(request.user, job)
        return None if why is None else replace(why, text=translated(why.text))
    except JobDoesNotExist:
        return None
