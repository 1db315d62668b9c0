"""The pages of bulk actions: confirm one on all jobs that a search finds, follow and stop it, and the last ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.cache import patch_vary_headers
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _

from jobqueue.access import audit, visible
from jobqueue.admin import columns, listing
from jobqueue.admin.actions import ActingAdmin
from jobqueue.admin.base import audited
from jobqueue.admin.formatting import ago
from jobqueue.admin.labels import error_text, status_label, translated
from jobqueue.admin.verbs import RESUME, RUN_NOW, VERBS, Verb
from jobqueue.bulk import actions
from jobqueue.core.amounts import bounded
from jobqueue.core.json_columns import as_dict
from jobqueue.core.masking import mask_text
from jobqueue.core.search import part_of
from jobqueue.core.states import Status
from jobqueue.db import overview
from jobqueue.exceptions import InvalidSearch
from jobqueue.insight.error_kinds import last_errors_of, summary
from jobqueue.insight.search import MAX_COUNTED, parsed
from jobqueue.insight.workers import alive
from jobqueue.models import BulkAction, Job

MAX_SHOWN = 50
MAX_ID = 2**63 - 1
PART_HEADER = "X-Jobqueue-Part"
State = BulkAction.State
BADGES = {State.OPEN: "running", State.DONE: "success", State.STOPPED: "paused", State.FAILED: "error"}


@method_decorator(transaction.non_atomic_requests, name="bulk_new_view")
@method_decorator(transaction.non_atomic_requests, name="bulk_stop_view")
class BulkAdmin(ActingAdmin):
    """The admin with the pages of bulk actions."""

    def get_urls(self) -> list[URLPattern]:
        """Add the pages."""
        wrap = self.admin_site.admin_view
        return [
            path("bulk/", wrap(self.bulk_list_view), name="jobqueue_job_bulk"),
            path("bulk/new/", wrap(self.bulk_new_view), name="jobqueue_job_bulk_new"),
            path("bulk/<int:action_id>/", wrap(self.bulk_view), name="jobqueue_job_bulk_action"),
            path("bulk/<int:action_id>/stop/", wrap(self.bulk_stop_view), name="jobqueue_job_bulk_stop"),
            *super().get_urls(),
        ]

    def bulk_url(self, request: HttpRequest, verb: Verb, query: str) -> str:
        """Return the URL of the confirmation; empty if the user may not act on all jobs that a search finds."""
        if not query or not verb.allowed(request) or not self.sees_as_bulk(request):
            return ""
        return f"{self._page('bulk_new')}?{urlencode({'verb': verb.name, 'q': query})}"

    def sees_as_bulk(self, request: HttpRequest) -> bool:
        """Return whether this admin shows the jobs that a bulk action covers: a project can restrict `get_queryset` further."""
        shown, covered = (
            str(rows.order_by().values("pk").query)
            for rows in (self.get_queryset(request), visible.narrow(request.user, Job.objects.current))
        )
        return shown == covered

    def act_on_all(self, request: HttpRequest, verb: Verb) -> HttpResponse | None:
        """Redirect to the confirmation of a bulk action on all jobs of the list; None if no search finds the same jobs."""
        url = self.bulk_url(request, verb, listing.query_of(request.GET))
        return HttpResponseRedirect(url) if url else None

    @audited
    def bulk_new_view(self, request: HttpRequest) -> HttpResponse:
        """Show what a bulk action would change, and request it by POST."""
        given = request.POST if request.method == "POST" else request.GET
        verb, query = VERBS.get(given.get("verb", "")), given.get("q", "").strip()
        if verb is None:
            raise Http404("There is no such action on jobs.")
        if not self.has_view_permission(request) or not verb.allowed(request) or not self.sees_as_bulk(request):
            raise PermissionDenied
        try:
            found = actions.preview(verb.name, query, request.user)
        except InvalidSearch as error:
            return self._page_of(
                request, "bulk_new", {"title": _("Invalid search"), "error": mask_text(error_text(error)), "query": query}, status=400
            )
        if request.method == "POST" and found.number:
            address = audit.address_of(request)
            action = actions.create(verb.name, query, actor=request.user, source="admin", address=address, counted=found.number)
            return HttpResponseRedirect(self._page("bulk_action", action.pk))
        number = bounded(found.number, found.more)
        label = label_of(verb, query)
        context = {
            "title": _("%(verb)s %(number)s jobs?") % {"verb": label, "number": number} if found.number != 1 else _("%s 1 job?") % label,
            "verb": verb,
            "done": translated(verb.done),
            "label": label,
            "query": query,
            "jobs_url": f"{self._page('changelist')}?{urlencode({'q': query})}",
            "found": found,
            "scope": translated(found.scope),
            "number": number,
            "counts": self._bulk_counts(request, found, query),
            "rows": self._bulk_sample(request, found.sample),
        }
        return self._page_of(request, "bulk_new", context)

    def bulk_view(self, request: HttpRequest, action_id: int) -> HttpResponse:
        """Show the progress of a bulk action, or for its script only the part that changes."""
        action = self._bulk_action(request, action_id)
        is_part = PART_HEADER in request.headers
        context = {**self._bulk_values(request, action), "title": _("Bulk action %d") % action.pk}
        response = self._page_of(request, "bulk_progress" if is_part else "bulk", context)
        patch_vary_headers(response, [PART_HEADER])
        return response

    @audited
    def bulk_stop_view(self, request: HttpRequest, action_id: int) -> HttpResponse:
        """Stop a bulk action after its present batch, by POST."""
        action = self._bulk_action(request, action_id)
        if not request.user.has_perm(f"jobqueue.{action.verb}_job"):
            raise PermissionDenied
        if request.method == "POST" and not actions.stop(action, actor=request.user, address=audit.address_of(request)):
            self.message_user(request, _("The bulk action has ended, so it cannot be stopped."), messages.WARNING)
        return HttpResponseRedirect(self._page("bulk_action", action.pk))

    def bulk_list_view(self, request: HttpRequest) -> HttpResponse:
        """Show the last bulk actions."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        found = self._bulk_actions(request).order_by("-pk")[:MAX_SHOWN]
        return self._page_of(
            request, "bulk_list", {"title": _("Bulk actions"), "actions": [self._bulk_values(request, action) for action in found]}
        )

    def _bulk_actions(self, request: HttpRequest) -> Any:
        """Return the actions that the user may see: if some jobs are hidden from the user, only the user's own."""
        rows = actions.rows()
        return rows if not visible.is_narrowed(request.user) and self.sees_as_bulk(request) else rows.filter(user=str(request.user.pk))

    def _bulk_action(self, request: HttpRequest, action_id: int) -> BulkAction:
        if not self.has_view_permission(request):
            raise PermissionDenied
        action: BulkAction | None = self._bulk_actions(request).filter(pk=action_id).first() if action_id <= MAX_ID else None
        if action is None:
            raise Http404("There is no such bulk action.")
        return action

    def _bulk_values(self, request: HttpRequest, action: BulkAction) -> dict[str, Any]:
        """Return the values of one action for a template."""
        is_open, handled, capped = action.state == State.OPEN, action.done + action.refused, action.counted >= MAX_COUNTED
        share = action.cursor / max(action.upto_id, 1) if capped else handled / max(action.counted, 1)
        verb, now = VERBS.get(action.verb), overview.clock(Job.objects.database)
        state = _("Stopping") if is_open and action.stop else translated(action.get_state_display())
        return {
            "action": action,
            "url": self._page("bulk_action", action.pk),
            "label": label_of(verb, action.query) if verb is not None else action.verb,
            "query": mask_text(action.query),
            "badge": columns.badge("stopping" if is_open and action.stop else BADGES.get(State(action.state), "queued"), state),
            "is_open": is_open,
            "done_word": translated(verb.done) if verb is not None else _("changed"),
            "number": bounded(action.counted, capped),
            "percent": min(int(100 * share), 99) if is_open else 100,
            "requested": ago(action.created_at, now),
            "ended": ago(action.finished_at, now) if action.finished_at is not None else "",
            "refusals": [(mask_text(str(reason)), number) for reason, number in as_dict(action.refusals).items()],
            "message": mask_text(action.message),
            "may_stop": is_open and not action.stop and request.user.has_perm(f"jobqueue.{action.verb}_job"),
            "stop_url": self._page("bulk_stop", action.pk),
            "unattended": is_open and not alive().exists(),
        }

    def _bulk_counts(self, request: HttpRequest, found: actions.Preview, query: str) -> list[tuple[str, list[tuple[str, str, int]]]]:
        """Return the numbers by status, queue, task and kind of error; each with the URL of the jobs that it counts."""
        errors = last_errors_of(self.get_queryset(request), found.by_kind)
        kinds = {key: summary(*errors[key]) if key in errors else key for key in found.by_kind}
        columns_of = {
            _("By status"): [("status", key, status_label(key), number) for key, number in found.by_status.items()],
            _("By queue"): [("queue", key, key, number) for key, number in found.by_queue.items()],
            _("By task"): [("task", f"={key}", key, number) for key, number in found.by_task.items()],
            _("By kind of error"): [("kind", key, kinds[key], number) for key, number in found.by_kind.items()],
        }
        return [
            (title, [(mask_text(text), self._jobs_url(found, query, name, key), number) for name, key, text, number in rows])
            for title, rows in columns_of.items()
            if rows
        ]

    def _jobs_url(self, found: actions.Preview, query: str, name: str, value: str) -> str:
        """Return the URL of the list of exactly the jobs that were counted for a value; empty if there is none."""
        texts = parsed(query).texts
        is_exact = not found.more and found.verb != RUN_NOW.name and (name == "status" or "status" in texts)
        if not is_exact or name in texts or mask_text(value) != value:  # a URL is shown and stored, so it contains no secret
            return ""
        return f"{self._page('changelist')}?{urlencode({'q': f'{query} {part_of(name, value)}'})}"

    def _bulk_sample(self, request: HttpRequest, ids: Iterable[int]) -> list[tuple[Any, ...]]:
        jobs = list(self.get_queryset(request).defer(*listing.BIG_COLUMNS).filter(pk__in=ids).order_by("-pk"))
        return [(job, columns.status(job), columns.task(job), columns.queue(job), columns.attempt(job)) for job in jobs]

    def _page(self, name: str, *args: Any) -> str:
        return reverse(f"admin:jobqueue_job_{name}", args=args, current_app=self.admin_site.name)

    def _page_of(self, request: HttpRequest, template: str, context: dict[str, Any], status: int = 200) -> TemplateResponse:
        request.current_app = self.admin_site.name
        shared = {**self.admin_site.each_context(request), "opts": self.opts, "media": self.media, "is_nav_sidebar_enabled": False}
        return TemplateResponse(request, f"jobqueue/admin/{template}.html", {**shared, **context}, status=status)


def label_of(verb: Verb, query: str) -> str:
    """Return the name of a verb: to resume jobs in ERROR is to retry them."""
    return _("Retry") if verb is RESUME and f"status:{Status.ERROR}" in query else str(verb.label)
