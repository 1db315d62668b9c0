"""The admin of `Queue`: queued and running jobs, pause and resume, the limit of running jobs, and the webhook."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from django.contrib import messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import translation
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _

from jobqueue.access import audit
from jobqueue.admin import columns, figures, queue_page
from jobqueue.admin.base import audited
from jobqueue.admin.formatting import NOTHING, duration
from jobqueue.admin.labels import error_text, translated
from jobqueue.admin.queue_webhooks import QueueWebhookAdmin, holds_secret, receiver
from jobqueue.core.masking import mask_text
from jobqueue.core.texts import clean, shorten
from jobqueue.db.overview import MAX_QUEUES
from jobqueue.exceptions import InvalidOption
from jobqueue.insight import queue_names
from jobqueue.insight.narrowed import queue_states_for
from jobqueue.insight.queues import QueueState
from jobqueue.lifecycle.queues import (
    MAX_LIMIT,
    QueueAnswer,
    forget_queue,
    limit_queue,
    pause_queue,
    resume_queue,
)
from jobqueue.models import Job, Queue
from jobqueue.webhooks.queues import QueueWebhook, queue_webhooks

FROM: Final = "from"
PERMISSIONS: Final = {"pause": "pause_queue", "resume": "resume_queue", "limit": "change_queue", "forget": "delete_queue"}


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue on the page."""

    state: QueueState
    name: str
    plain: bool  # it has a name without a secret, so URLs and forms can contain it
    badge: str
    queued: str
    oldest: str
    decided: bool  # whether it has a row, and so a history
    receiver: str  # of its webhook, if it has one


@method_decorator(transaction.non_atomic_requests, name="decide_view")
class QueueAdmin(QueueWebhookAdmin):
    """The admin of the queues, including those without a row, with the operators' decisions."""

    def get_urls(self) -> list[URLPattern]:
        """Add the URL for the buttons."""
        view = self.admin_site.admin_view(self.decide_view)
        return [path("decide/<slug:what>/", view, name="jobqueue_queue_decide"), *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show all queues that have a row, or open or recent jobs."""
        if request.method not in ("GET", "HEAD") or not self.has_view_permission(request):
            raise PermissionDenied
        visible = set(self.get_queryset(request).values_list("pk", flat=True))
        hidden = set(Queue.objects.current.values_list("pk", flat=True)) - visible
        request.current_app = self.admin_site.name
        webhooks = queue_webhooks()
        context = {
            **self.admin_site.each_context(request),
            "title": _("Queues"),
            "is_nav_sidebar_enabled": False,
            "opts": self.opts,
            "media": self.media,
            "queues": [
                _shown(state, visible, webhooks.get(state.name)) for state in queue_states_for(request.user) if state.name not in hidden
            ],
            "may": self._rights(request),
            "largest": MAX_LIMIT,
            "most": MAX_QUEUES if queue_names.are_left_out() else None,
            **(extra_context or {}),
        }
        return TemplateResponse(request, "jobqueue/admin/queues.html", context)

    def change_view(self, request: HttpRequest, object_id: str, *args: Any, **options: Any) -> HttpResponse:
        """Show one queue, with or without a row: its load, the jobs that wait and run, its limits, and its verbs."""
        name = unquote(object_id)
        if request.method not in ("GET", "HEAD") or not self.has_view_permission(request):
            raise PermissionDenied
        if holds_secret(name):
            return self.refuse_secret(request, name)
        if "\0" not in name and self.is_hidden(request, name):
            raise PermissionDenied
        state = queue_page.state_of(request.user, name)
        if state is None:
            self.message_user(request, _("There is no queue %(name)s.") % {"name": repr(shorten(clean(name), 100))}, messages.WARNING)
            return self.back()
        request.current_app = self.admin_site.name
        rows = {name} if self.get_queryset(request).filter(pk=name).exists() else set()
        context = {
            **self.admin_site.each_context(request),
            "title": _("Queue %(name)s") % {"name": name},
            "is_nav_sidebar_enabled": False,
            "opts": self.opts,
            "media": self.media,
            "one": _shown(state, rows, queue_webhooks().get(name)),
            "may": self._rights(request),
            "largest": MAX_LIMIT,
            "events": self.events_sent(Queue(name=name)),
            **queue_page.context(request, state),
        }
        return TemplateResponse(request, "jobqueue/admin/queue.html", context)

    @audited
    def decide_view(self, request: HttpRequest, what: str) -> HttpResponse:
        """Pause, resume, limit or forget one queue, by POST; a GET (as after a login) only redirects to the page."""
        if what not in PERMISSIONS:
            raise Http404(f"Queues have no action {what!r}.")
        if not self.has_view_permission(request) or not self._may(request, what):
            raise PermissionDenied
        name = request.POST.get("queue", "")
        if request.method == "POST":
            self._decide(request, what, name)
        if request.POST.get(FROM) == "queue" and what != "forget" and name and not holds_secret(name):
            return HttpResponseRedirect(reverse("admin:jobqueue_queue_change", args=[quote(name)], current_app=self.admin_site.name))
        return self.back()

    def _decide(self, request: HttpRequest, verb: str, name: str) -> None:
        try:
            limit = _limit(request.POST.get("max_running", "")) if verb == "limit" else None
            # The change and its record are committed together.
            with Job.objects.database.atomic():
                if "\0" not in name and self.is_hidden(request, name):
                    raise PermissionDenied
                if verb == "forget":
                    self._forget(request, name)
                    return
                answer = {"pause": pause_queue, "resume": resume_queue}[verb](name) if verb != "limit" else limit_queue(name, limit)
                if answer.changed:
                    audit.record(request.user, verb, Queue(name=name), audit.DONE, audit.address_of(request), text=_recorded(verb, answer))
        except InvalidOption as error:
            audit.log_line(request.user, verb, f"queue {name}", audit.REFUSED, audit.address_of(request), str(error))
            self.message_user(request, error_text(error), messages.ERROR)
        else:
            level = messages.SUCCESS if answer.changed else messages.INFO
            self.message_user(request, _("Queue %(name)s: %(text)s") % {"name": mask_text(name), "text": _answer_text(verb, answer)}, level)
            if (answer.paused or answer.max_running is not None) and (warning := queue_names.warning(name)):
                self.message_user(request, translated(warning), messages.WARNING)

    def _forget(self, request: HttpRequest, name: str) -> None:
        if not forget_queue(name):
            self.message_user(request, _("Queue %(name)s: there is no row to remove.") % {"name": mask_text(name)}, messages.INFO)
            return
        audit.record(request.user, "forget", Queue(name=name), audit.DONE, audit.address_of(request), text="Forgotten.", deleted=True)
        self.message_user(
            request, _("Queue %(name)s: forgotten, with its pause, limit and webhook.") % {"name": mask_text(name)}, messages.SUCCESS
        )

    def _rights(self, request: HttpRequest) -> dict[str, bool]:
        return {**{verb: self._may(request, verb) for verb in PERMISSIONS}, "webhook": self.may_set_webhook(request)}

    def _may(self, request: HttpRequest, verb: str) -> bool:
        return request.user.has_perm(f"jobqueue.{PERMISSIONS[verb]}")


def _limit(text: str) -> int | None:
    text = text.strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise InvalidOption(f"max_running is {text[:40]!r}; it must be a whole number from 0 to {MAX_LIMIT}, or empty for no limit.")
    return int(text)


def _recorded(verb: str, answer: QueueAnswer) -> str:
    """Return what was decided in English, as the audit records it."""
    with translation.override("en"):
        return _answer_text(verb, answer)


def _answer_text(verb: str, answer: QueueAnswer) -> str:
    if verb != "limit":
        now = _("Paused") if answer.paused else _("Not paused")
    elif answer.max_running is None:
        now = _("No limit")
    else:
        now = _("At most %(number)s running at once") % {"number": figures.count(answer.max_running)}
    return f"{now}." if answer.changed else _("%(text)s (no change).") % {"text": now}


def _shown(state: QueueState, rows: set[Any], webhook: QueueWebhook | None) -> QueueRow:
    name = mask_text(state.name)
    return QueueRow(
        state=state,
        name=name,
        plain=name == state.name != "",
        badge=columns.badge("paused", _("Paused")) if state.paused else columns.badge("success", _("Open")),
        queued=figures.count(state.queued, more=state.queued_is_capped),
        oldest=duration(state.oldest_queued_seconds) if state.oldest_queued_seconds is not None else NOTHING,
        decided=state.name in rows,
        receiver=receiver(webhook),
    )
