"""The form of a queue's webhook: its URL and its events. Users who may only view it see the URL with masked secrets."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.utils.text import format_lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _lazy

from jobqueue.access import audit
from jobqueue.admin.base import ReadOnlyAdmin, audited
from jobqueue.admin.delivery_verbs import FIELD, USE_PRESENT_URL
from jobqueue.admin.formatting import excerpt
from jobqueue.admin.labels import error_text
from jobqueue.admin.listing import as_id
from jobqueue.core import event_names, webhook_rules
from jobqueue.core.masking import mask_text
from jobqueue.exceptions import InvalidOption, JobQueueError
from jobqueue.lifecycle.queues import check_name
from jobqueue.models import Job, Queue, WebhookDelivery
from jobqueue.webhooks.queues import QueueWebhook, check_webhook, queue_webhook, set_queue_webhook
from jobqueue.webhooks.trial import WebhookTest, send_test

LONGEST = 300
DEFAULT_EVENTS = ", ".join(event_names.SENT_BY_DEFAULT)


class WebhookForm(forms.Form):
    """The form for the URL and the events of a queue's webhook."""

    url = forms.CharField(
        label=_lazy("URL"),
        required=False,
        widget=forms.TextInput(attrs={"class": "vLargeTextField", "maxlength": webhook_rules.MAX_URL, "inputmode": "url"}),
        help_text=_lazy("For example https://example.com/hook. If empty, webhooks are sent only for jobs that have their own URL."),
    )
    events = forms.MultipleChoiceField(
        label=_lazy("Events"),
        choices=[(name, name) for name in webhook_rules.EVENTS],
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=format_lazy(
            _lazy("If none is selected, these are sent: {events}. The selection also applies to jobs that have their own URL."),
            events=DEFAULT_EVENTS,
        ),
    )

    def clean(self) -> None:
        """Reject a URL to which no webhook can be sent."""
        super().clean()
        try:
            check_webhook(self.cleaned_data.get("url"), None)
        except InvalidOption as error:
            self.add_error("url", error_text(error))


@method_decorator(transaction.non_atomic_requests, name="webhook_view")
@method_decorator(transaction.non_atomic_requests, name="test_webhook_view")
class QueueWebhookAdmin(ReadOnlyAdmin[Queue]):
    """The admin with the form of a queue's webhook."""

    def get_urls(self) -> list[URLPattern]:
        """Add the URL of the form; the queue is named in its query, because a name can have any characters."""
        wrap = self.admin_site.admin_view
        return [
            path("webhook/", wrap(self.webhook_view), name="jobqueue_queue_webhook"),
            path("webhook/test/", wrap(self.test_webhook_view), name="jobqueue_queue_test_webhook"),
            *super().get_urls(),
        ]

    @audited
    def webhook_view(self, request: HttpRequest) -> HttpResponse:
        """Show the webhook of one queue, and change it by POST."""
        name = (request.POST if request.method == "POST" else request.GET).get("queue", "")
        refusal = self._refused(request, name)
        if refusal is not None:
            return refusal
        form = WebhookForm(request.POST) if request.method == "POST" else None
        if form is not None and form.is_valid():
            self._save(request, name, form.cleaned_data["url"], form.cleaned_data["events"])
            delivery = as_id(request.POST.get("delivery", ""))
            if delivery is not None and FIELD in request.POST and self._may_send(request):
                deliveries: Any = self.admin_site.get_model_admin(WebhookDelivery)
                sent: HttpResponse = deliveries.verb_view(request, delivery, USE_PRESENT_URL.name)
                return sent
            return self.back(delivery)
        return self._page(request, name, form)

    @audited
    def test_webhook_view(self, request: HttpRequest) -> HttpResponse:
        """Send a test to the saved URL of one queue, by POST, and show the response; a GET redirects to the page of the webhook."""
        name = (request.POST if request.method == "POST" else request.GET).get("queue", "")
        refusal = self._refused(request, name)
        if refusal is not None:
            return refusal
        if request.method != "POST":
            page = reverse("admin:jobqueue_queue_webhook", current_app=self.admin_site.name)
            return HttpResponseRedirect(f"{page}?{urlencode({'queue': name})}")
        try:
            result = send_test(name)
        except JobQueueError as error:
            self.message_user(request, error_text(error), messages.ERROR)
            return self._page(request, name)
        text = f"Sent a test to {result.url}."
        audit.record(request.user, "test-webhook", Queue(name=name), audit.DONE, audit.address_of(request), text=text)
        return self._page(request, name, test=result)

    def _refused(self, request: HttpRequest, name: str) -> HttpResponse | None:
        """Return the response to a request for a queue whose webhook the user may not see; None if the user may."""
        if not self.has_view_permission(request) or not self.may_set_webhook(request):
            raise PermissionDenied
        try:
            check_name(name)
        except InvalidOption as error:
            self.message_user(request, error_text(error), messages.ERROR)
            return self.back()
        if self.is_hidden(request, name):
            raise PermissionDenied
        if holds_secret(name):
            return self.refuse_secret(request, name)
        return None

    def _page(self, request: HttpRequest, name: str, form: WebhookForm | None = None, test: WebhookTest | None = None) -> HttpResponse:
        now = queue_webhook(name)
        form = form or WebhookForm(initial={"url": now.url, "events": list(now.events)})
        request.current_app = self.admin_site.name
        context = {
            **self.admin_site.each_context(request),
            "title": _("Webhook of queue %(name)s") % {"name": name},
            "is_nav_sidebar_enabled": False,
            "opts": self.opts,
            "media": self.media + form.media,
            "form": form,
            "queue": name,
            "delivery": as_id((request.POST if request.method == "POST" else request.GET).get("delivery", "")),
            "may_send": self._may_send(request),
            "has_url": bool(now.url),
            "test": test,
        }
        return TemplateResponse(request, "jobqueue/admin/queue_webhook.html", context)

    def _may_send(self, request: HttpRequest) -> bool:
        """Return whether the user may send a delivery to the corrected URL, which needs the delivery's own page."""
        return self.admin_site.is_registered(WebhookDelivery) and USE_PRESENT_URL.allowed(request)

    def _save(self, request: HttpRequest, name: str, url: str, events: list[str]) -> None:
        # The change and its record are committed together.
        with Job.objects.database.atomic():
            answer = set_queue_webhook(name, url, events)
            if answer.changed:
                audit.record(
                    request.user, "set-webhook", Queue(name=name), audit.DONE, audit.address_of(request), text=_answer_text(answer)
                )
        level = messages.SUCCESS if answer.changed else messages.INFO
        self.message_user(request, _("Queue %(name)s: %(text)s") % {"name": name, "text": _shown_answer(answer)}, level)

    def history_view(self, request: HttpRequest, object_id: str, *args: Any, **options: Any) -> HttpResponse:
        """Show who did what to a queue, unless its name contains a secret."""
        name = unquote(object_id)
        return self.refuse_secret(request, name) if holds_secret(name) else super().history_view(request, object_id, *args, **options)

    def refuse_secret(self, request: HttpRequest, name: str) -> HttpResponse:
        """Refuse a page of a queue whose name contains a secret: its title, its links and its URL would show it."""
        text = _("The name of queue %(name)s contains a secret, so it has no page: use the command line.") % {"name": mask_text(name)}
        self.message_user(request, text, messages.ERROR)
        return self.back()

    def back(self, delivery: int | None = None) -> HttpResponse:
        """Redirect to the list of queues, or to the delivery from whose page the user came."""
        page, args = ("jobqueue_queue_changelist", []) if delivery is None else ("jobqueue_webhookdelivery_change", [delivery])
        return HttpResponseRedirect(reverse(f"admin:{page}", args=args, current_app=self.admin_site.name))

    def events_sent(self, queue: Queue) -> str:
        """Return the names of the events."""
        return ", ".join(queue_webhook(queue.pk).events) or DEFAULT_EVENTS

    def may_set_webhook(self, request: HttpRequest) -> bool:
        """Return whether the user may set a queue's webhook; only then is the full URL shown."""
        return request.user.has_perm("jobqueue.set_webhook_queue")

    def is_hidden(self, request: HttpRequest, name: str) -> bool:
        """Return whether a queue has a row that the project hides from the user."""
        return Queue.objects.current.filter(pk=name).exists() and not self.get_queryset(request).filter(pk=name).exists()


def holds_secret(name: str) -> bool:
    """Return whether the name of a queue contains a secret, so that no page shows it."""
    return mask_text(name) != name


def receiver(webhook: QueueWebhook | None) -> str:
    """Return the URL of a queue's receiver with masked secrets."""
    return excerpt(webhook_rules.shown_url(webhook.url), LONGEST) if webhook is not None and webhook.url else ""


def _shown_answer(answer: QueueWebhook) -> str:
    """Return the answer in the language of the reader."""
    url, events = excerpt(webhook_rules.shown_url(answer.url), LONGEST), ", ".join(answer.events)
    if not answer.url:
        text = _("No events are sent")
    elif answer.events:
        text = _("The events %(events)s are sent to %(url)s") % {"events": events, "url": url}
    else:
        text = _("Events are sent to %(url)s") % {"url": url}
    return f"{text}." if answer.changed else _("%(text)s (no change).") % {"text": text}


def _answer_text(answer: QueueWebhook) -> str:
    url = excerpt(webhook_rules.shown_url(answer.url), LONGEST)
    events = f"the events {', '.join(answer.events)}" if answer.events else "events"
    text = f"{events} are sent to {url}" if answer.url else "no events are sent"
    return f"{text[:1].upper()}{text[1:]}{'' if answer.changed else ' (no change)'}."
