"""The admin of `Job`: the list, and the page of one job; what can be done on both is in ``acting``, the targets are in ``targets``."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from jobqueue.admin import cells, detail, filters, listing, webhooks
from jobqueue.admin.targets import TargetsAdmin
from jobqueue.admin.verbs import VERBS
from jobqueue.exceptions import JobDoesNotExist
from jobqueue.lifecycle.why import Why, why_waiting
from jobqueue.models import Job


class JobAdmin(TargetsAdmin):
    """Show jobs, and let people cancel, pause, resume, hurry and delete them."""

    list_display = (
        cells.number,
        cells.status,
        cells.queue,
        cells.task,
        cells.priority,
        cells.progress,
        cells.waited,
        cells.ran,
        cells.attempt,
        cells.worker,
    )
    sortable_by = (cells.number,)  # type: ignore[assignment]  # no other order has an index
    list_filter = (
        filters.StatusFilter,
        filters.WaitingForFilter,
        filters.QueueFilter,
        filters.TaskFilter,
        filters.TargetFilter,
        filters.TenantFilter,
    )
    list_per_page = 50
    list_max_show_all = 100
    ordering = ("-id",)
    search_fields = ("id",)
    search_help_text = "A job's number, or a part of a task's path."
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    paginator = listing.CappedPaginator

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

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show one job; there is no form to submit."""
        if request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        job = self.get_object(request, unquote(object_id))
        if not self.has_view_permission(request, job):
            raise PermissionDenied
        if job is None:
            return self.gone(request, object_id)
        request.current_app = self.admin_site.name
        context = {
            **self.admin_site.each_context(request),
            "title": f"Job {job.pk}",
            "is_nav_sidebar_enabled": False,
            "opts": self.opts,
            "media": self.media,
            "original": job,
            "page": detail.page(job),
            "why": _why(job),
            "deliveries": webhooks.rows(request, job),
            "verbs": [verb for verb in VERBS.values() if verb.possible(job) and verb.allowed(request)],
            **(extra_context or {}),
        }
        return TemplateResponse(request, "jobqueue/admin/detail.html", context)


def _why(job: Job) -> Why | None:
    """Return what the job waits for; None where it waits for nothing, or is gone by now."""
    try:
        return why_waiting(job)
    except JobDoesNotExist:
        return None
