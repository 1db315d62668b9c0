"""The verbs on the list of jobs and on the page of one job.

A verb is checked when it acts: the permission, `get_queryset` (a project can restrict what a user sees), and the
state of the locked row. A confirmation page lists the jobs first if running jobs would be interrupted, any job
deleted, or more than one canceled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _

from jobqueue.access import audit
from jobqueue.admin import confirm, listing
from jobqueue.admin.base import GONE, ReadOnlyAdmin, audited
from jobqueue.admin.bulk_result import perform
from jobqueue.admin.labels import translated
from jobqueue.admin.verbs import DELETE, VERBS, Verb
from jobqueue.core.answers import Answer, Verdict
from jobqueue.models import Job

MAX_AT_ONCE = 500  # each job needs a transaction, and a field in the confirmation form; Django accepts at most 1000 fields
UNSELECTED = ("", "0", "false", "False")

Action = Callable[["ActingAdmin", HttpRequest, QuerySet[Job]], HttpResponse | None]


def action_of(verb: Verb) -> Action:
    """Return the bulk action for a verb."""

    def act(modeladmin: ActingAdmin, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse | None:
        return modeladmin.act_on_selected(request, queryset, verb)

    act.__name__ = verb.name
    act.short_description = verb.label  # type: ignore[attr-defined]
    # Not "delete": that is Django's own deletion, which does not know about targets, and is rejected.
    act.allowed_permissions = ("delete_job" if verb is DELETE else verb.name,)  # type: ignore[attr-defined]
    return act


# Each job is changed in a transaction of its own: one around all of them (ATOMIC_REQUESTS) would hold all locks.
@method_decorator(transaction.non_atomic_requests, name="changelist_view")
@method_decorator(transaction.non_atomic_requests, name="verb_view")
class ActingAdmin(ReadOnlyAdmin[Job]):
    """The admin with the verbs on jobs."""

    actions = tuple(action_of(verb) for verb in VERBS.values())

    # Django calls these before it offers an action.

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may cancel."""
        return VERBS["cancel"].allowed(request)

    def has_pause_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may pause."""
        return VERBS["pause"].allowed(request)

    def has_resume_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may resume."""
        return VERBS["resume"].allowed(request)

    def has_run_now_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may make scheduled jobs run now."""
        return VERBS["run_now"].allowed(request)

    def has_delete_job_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may delete."""
        return VERBS["delete"].allowed(request)

    def get_urls(self) -> list[URLPattern]:
        """Add the URL for the buttons of a job's page."""
        view = self.admin_site.admin_view(self.verb_view)
        return [path("<int:object_id>/act/<slug:name>/", view, name="jobqueue_job_act"), *super().get_urls()]

    @audited
    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list or run a bulk action."""
        # The list is wide, so the sidebar is off.
        return super().changelist_view(request, {"title": _("Jobs"), "is_nav_sidebar_enabled": False, **(extra_context or {})})

    def act_on_selected(self, request: HttpRequest, queryset: QuerySet[Job], verb: Verb) -> HttpResponse | None:
        """Run a verb on the selected jobs of the list."""
        if not verb.allowed(request):
            raise PermissionDenied
        if request.POST.get("select_across", "") in UNSELECTED:
            # The list's filters are not applied: a job that no longer matches them must be reported, not skipped.
            selected = {int(value) for value in request.POST.getlist(ACTION_CHECKBOX_NAME)}
            jobs = list(self.get_queryset(request).defer(*listing.BIG_COLUMNS).filter(pk__in=selected))
            return self.act(request, verb, jobs, missing=selected - {job.pk for job in jobs})
        jobs = list(queryset[: MAX_AT_ONCE + 1])
        if len(jobs) > MAX_AT_ONCE:
            if (redirect := self.act_on_all(request, verb)) is not None:
                return redirect
            jobs = list(queryset.filter(status__in=verb.statuses)[:MAX_AT_ONCE])
            left = _(
                "More than %(number)s jobs were selected. This action covers only the newest %(number)s that can be %(done)s; "
                "repeat it for the rest."
            )
            self.message_user(request, left % {"number": MAX_AT_ONCE, "done": translated(verb.done)}, messages.INFO)
        return self.act(request, verb, jobs)

    def act_on_all(self, request: HttpRequest, verb: Verb) -> HttpResponse | None:
        """Return the response that acts on all jobs of the list; None if only the newest ones can be changed."""
        return None

    @audited
    def verb_view(self, request: HttpRequest, object_id: int, name: str) -> HttpResponse:
        """Run a verb on one job, by POST; a GET (as after a login) only redirects to the job's page."""
        verb = VERBS.get(name)
        if verb is None:
            raise Http404(f"Jobs have no action {name!r}.")
        job = self.get_object(request, str(object_id))
        if not self.has_view_permission(request, job) or not verb.allowed(request):
            raise PermissionDenied
        if job is None:
            if request.method == "POST":
                self.log_missing(request, name, [f"job {object_id}"])
            return self.redirect_missing(request, object_id)
        if request.method != "POST":
            return self.back(request, job.pk)
        confirmation = self.act(request, verb, [job], on_list=False)
        if confirmation is not None:
            return confirmation
        # A deleted job has no page any more.
        is_deleted = verb is DELETE and self.get_object(request, str(object_id)) is None
        return self.back(request, None if is_deleted else job.pk)

    def back(self, request: HttpRequest, job_id: int | None) -> HttpResponse:
        """Redirect to the page of a job, or to the list if `job_id` is None."""
        name, args = ("change", [job_id]) if job_id is not None else ("changelist", [])
        return HttpResponseRedirect(reverse(f"admin:jobqueue_job_{name}", args=args, current_app=self.admin_site.name))

    def redirect_missing(self, request: HttpRequest, object_id: object) -> HttpResponse:
        """Report that there is no such job, and redirect to the list."""
        self.message_user(
            request, _("There is no job %(number)s; it may have been deleted.") % {"number": str(object_id)[:40]}, messages.WARNING
        )
        return HttpResponseRedirect(reverse("admin:jobqueue_job_changelist", current_app=self.admin_site.name))

    def act(
        self, request: HttpRequest, verb: Verb, jobs: list[Job], *, missing: set[int] | None = None, on_list: bool = True
    ) -> HttpResponse | None:
        """Run a verb on some jobs and report the result; return the confirmation page if the user must confirm first."""
        if {job.pk for job in confirm.doubtful(verb, jobs)} - confirm.confirmed(request):
            return self._ask(request, confirm.context(verb, jobs, on_list=on_list))
        result = perform(
            verb, sorted(jobs, key=lambda job: job.pk), lambda job, answer, text: self._record(request, verb, job, answer, text)
        )
        if missing:
            self.log_missing(request, verb.name, [f"job {job_id}" for job_id in sorted(missing)])
            result.refused[GONE].extend(missing)
        for level, text in result.messages():
            self.message_user(request, text, level)
        return None

    def _record(self, request: HttpRequest, verb: Verb, job: Job, answer: Answer | None, text: str) -> None:
        if answer is None or answer.verdict is Verdict.REFUSED:
            self.log_refusal(request, job, verb.name, text)
        else:
            verdict, deleted = answer.verdict.value, verb is DELETE
            audit.record(request.user, verb.name, job, verdict, audit.address_of(request), text=text, deleted=deleted)

    def _ask(self, request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
        request.current_app = self.admin_site.name
        shared = {**self.admin_site.each_context(request), "opts": self.opts, "media": self.media, "back": request.get_full_path()}
        return TemplateResponse(request, "jobqueue/admin/confirm.html", {**shared, **context})
