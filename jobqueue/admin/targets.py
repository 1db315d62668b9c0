"""The page of targets: the job that holds each of them, the jobs that wait, and what an operator can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _

from jobqueue.admin import columns, figures, listing
from jobqueue.admin.actions import MAX_AT_ONCE, ActingAdmin
from jobqueue.admin.base import audited
from jobqueue.admin.formatting import NOTHING, ago, between
from jobqueue.admin.verbs import CANCEL, PAUSE, RESUME, Verb
from jobqueue.core import masking
from jobqueue.core.targets import Target
from jobqueue.db import overview as overview_sql
from jobqueue.db.overview import TargetHead
from jobqueue.insight.narrowed import summaries_with_heads_for
from jobqueue.insight.targets import TargetSummary
from jobqueue.models import Job

MAX_SHOWN = 100
SEARCH, TENANT, TARGET, FROM, STUCK = "q", "tenant", "target", "from", "stuck"
HOLDER_VERBS = (RESUME, PAUSE, CANCEL)


@dataclass(frozen=True, slots=True)
class TargetRow:
    """One row of the page; the texts are plain or safe."""

    summary: TargetSummary
    name: str
    tenant: str
    changelist_url: str
    holder: Job | None
    badge: str
    held_for: str
    waiting: str
    oldest_waits: str
    next_id: int | None
    verbs: list[tuple[Verb, str]]
    clear_url: str


@method_decorator(transaction.non_atomic_requests, name="clear_view")
class TargetsAdmin(ActingAdmin):
    """The admin with the page of targets and the verb to clear one."""

    def get_urls(self) -> list[URLPattern]:
        """Add the page, and the URL for its buttons."""
        wrap = self.admin_site.admin_view
        return [
            path("targets/", wrap(self.targets_view), name="jobqueue_job_targets"),
            path("targets/clear/", wrap(self.clear_view), name="jobqueue_job_clear_target"),
            *super().get_urls(),
        ]

    def targets_view(self, request: HttpRequest) -> HttpResponse:
        """Show the lines, first those that wait for an operator."""
        if request.method not in ("GET", "HEAD") or not self.has_view_permission(request):
            raise PermissionDenied
        search, tenant = request.GET.get(SEARCH, "").strip(), request.GET.get(TENANT)
        has_null = "\0" in search or "\0" in (tenant or "")
        lines = [] if has_null else self._visible(request, summaries_with_heads_for(request.user, search=search, tenant=tenant))
        if stuck := bool(request.GET.get(STUCK)):
            lines = [(summary, head) for summary, head in lines if summary.stuck]
        shown = lines[:MAX_SHOWN]
        request.current_app = self.admin_site.name
        context = {
            **self.admin_site.each_context(request),
            "title": _("Targets"),
            "is_nav_sidebar_enabled": False,
            "opts": self.opts,
            "media": self.media,
            "targets": self._rows(request, shown),
            "more": len(lines) > len(shown),
            "limit": MAX_SHOWN,
            "search": search,
            "tenant": tenant,
            "stuck": stuck,
            "tenants": any(summary.tenant for summary, _ in shown),
            "without_tenant": f"?{urlencode({SEARCH: search})}",
        }
        return TemplateResponse(request, "jobqueue/admin/targets.html", context)

    @audited
    def clear_view(self, request: HttpRequest) -> HttpResponse:
        """Cancel all jobs that hold or block one target, by POST, so that its next job can run."""
        if not self.has_view_permission(request) or not CANCEL.allowed(request):
            raise PermissionDenied
        page = self.back(request, None)
        if request.method != "POST":
            return page
        target = Target(request.GET.get(TENANT, ""), request.GET.get(TARGET, ""))
        jobs: Any = self.get_queryset(request).defer(*listing.BIG_COLUMNS)
        blocking = [] if "\0" in "".join(target) else list(jobs.blocking(target)[:MAX_AT_ONCE])
        if blocking:
            return self.act(request, CANCEL, blocking, on_list=False) or page
        self.log_missing(request, "clear", [f"target {target.name} of tenant {target.tenant!r}"])
        self.message_user(request, _("No job holds or blocks target %(name)s now.") % {"name": repr(_name(target.name))}, messages.WARNING)
        return page

    def back(self, request: HttpRequest, job_id: int | None) -> HttpResponse:
        """Redirect to this page if the button was on it."""
        if request.GET.get(FROM) != "targets":
            return super().back(request, job_id)
        parameters = {name: request.GET[name] for name in (SEARCH, STUCK) if request.GET.get(name)}
        return HttpResponseRedirect(f"{self._url('targets')}{f'?{urlencode(parameters)}' if parameters else ''}")

    def _visible(self, request: HttpRequest, lines: list[tuple[TargetSummary, TargetHead]]) -> list[tuple[TargetSummary, TargetHead]]:
        """Return the lines of which the user may see a job: a project can restrict that by `get_queryset`."""
        ids = {job_id for _, head in lines for job_id in head.job_ids}
        seen = set(self.get_queryset(request).filter(pk__in=ids).values_list("pk", flat=True))
        return [(summary, head) for summary, head in lines if seen.intersection(head.job_ids)]

    def _rows(self, request: HttpRequest, lines: list[tuple[TargetSummary, TargetHead]]) -> list[TargetRow]:
        holders = [summary.holder_id for summary, _ in lines if summary.holder_id is not None]
        jobs = {job.pk: job for job in self.get_queryset(request).defer(*listing.BIG_COLUMNS).filter(pk__in=holders)}
        now = next((columns.now_of(job) for job in jobs.values()), overview_sql.clock(Job.objects.database) if lines else None)
        return [self._row(request, summary, head, jobs.get(summary.holder_id or 0), now) for summary, head in lines]

    def _row(self, request: HttpRequest, summary: TargetSummary, head: TargetHead, job: Job | None, now: Any) -> TargetRow:
        parameters = {FROM: "targets", **{name: request.GET[name] for name in (SEARCH, STUCK) if request.GET.get(name)}}
        # A URL is shown, stored and logged, so no URL contains a target or tenant with a secret.
        plain = all(_name(name) == name for name in (summary.target, summary.tenant))
        behind = {TENANT: summary.tenant, TARGET: summary.target}
        of_tenant = {TENANT: summary.tenant} if summary.tenant else {}
        able = [verb for verb in HOLDER_VERBS if job is not None and verb.possible(job) and verb.allowed(request)]
        may_clear = plain and job is not None and CANCEL.allowed(request)
        return TargetRow(
            summary=summary,
            name=_name(summary.target),
            tenant=_name(summary.tenant) or NOTHING,
            changelist_url=f"{self._url('changelist')}?{urlencode({TARGET: summary.target, **of_tenant})}" if plain else "",
            holder=job,
            badge=columns.status(job) if job is not None else columns.badge("queued", _("Free")) if not summary.holder_status else NOTHING,
            held_for=ago(summary.since, now) if summary.since is not None else NOTHING,
            waiting=figures.count(summary.waiting, more=summary.waiting_is_capped),
            oldest_waits=between(summary.oldest_waiting_at, now) if summary.oldest_waiting_at is not None else NOTHING,
            next_id=next((job_id for job_id in (head.queued, head.parked) if job_id is not None), None)
            if not summary.holder_status
            else None,
            verbs=[(verb, f"{self._url('act', summary.holder_id, verb.name)}?{urlencode(parameters)}") for verb in able],
            clear_url=f"{self._url('clear_target')}?{urlencode({**parameters, **behind})}" if may_clear else "",
        )

    def _url(self, name: str, *args: Any) -> str:
        return reverse(f"admin:jobqueue_job_{name}", args=args, current_app=self.admin_site.name)


def _name(target: str) -> str:
    return masking.mask_text(target)
