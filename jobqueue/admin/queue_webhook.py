"""The page on which people decide where a queue's events are sent, and which."""

from __future__ import annotations

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from jobqueue.admin.base import ReadOnlyAdmin
from jobqueue.event_names import SENT_BY_DEFAULT
from jobqueue.exceptions import InvalidOption
from jobqueue.lifecycle.queues import check_name
from jobqueue.models import Job, Queue
from jobqueue.webhook_rules import EVENTS, LONGEST_URL, shown_url
from jobqueue.webhooks.queues import set_webhook


class QueueWebhookAdmin(ReadOnlyAdmin[Queue]):
    """Show and change the webhook of one queue."""

    def get_urls(self) -> list[URLPattern]:
        """Add the page."""
        return [path("webhook/", self.admin_site.admin_view(self.webhook_view), name="jobqueue_queue_webhook"), *super().get_urls()]

    def webhook_view(self, request: HttpRequest) -> HttpResponse:
        """Show the form; change the queue by POST."""
        if not self.has_view_permission(request) or not request.user.has_perm("jobqueue.change_queue"):
            raise PermissionDenied
        name = (request.POST if request.method == "POST" else request.GET).get("queue", "")
        try:
            check_name(name)
        except InvalidOption as error:
            raise Http404(str(error)) from error
        if Queue.objects.current.filter(pk=name).exists() and not self.get_queryset(request).filter(pk=name).exists():
            raise PermissionDenied
        row = Queue.objects.current.filter(pk=name).first() or Queue(name=name)
        if request.method == "POST" and self._change(request, row):
            return HttpResponseRedirect(reverse("admin:jobqueue_queue_changelist", current_app=self.admin_site.name))
        return self._form(request, row)

    def _change(self, request: HttpRequest, row: Queue) -> bool:
        """Change the queue; return whether it could be."""
        # The URL that is kept is not in the form: it may hold secrets.
        url = "" if "remove" in request.POST else request.POST.get("url", "").strip() or row.webhook_url
        events = request.POST.getlist("events")
        try:
            with Job.objects.database.atomic():
                changed = set_webhook(row.name, url, events)
                told = f"Webhook: {shown_url(url)} ({', '.join(events) or ', '.join(SENT_BY_DEFAULT)})." if url else "No webhook."
                if changed:
                    self.log_change(request, Queue(name=row.name), told)
        except InvalidOption as error:
            self.message_user(request, str(error), messages.ERROR)
            return False
        self.message_user(request, f"Queue {row.name}: {told}", messages.SUCCESS if changed else messages.INFO)
        return True

    def _form(self, request: HttpRequest, row: Queue) -> HttpResponse:
        request.current_app = self.admin_site.name
        chosen = row.webhook_events if isinstance(row.webhook_events, list) else []
        context = {
            **self.admin_site.each_context(request),
            "title": f"Webhook of queue {row.name}",
            "is_nav_sidebar_enabled": False,
            "opts": self.opts,
            "media": self.media,
            "queue": row.name,
            "url": shown_url(row.webhook_url),
            "longest": LONGEST_URL,
            "events": [(name, name in chosen) for name in EVENTS],
            "default_events": ", ".join(SENT_BY_DEFAULT),
        }
        return TemplateResponse(request, "jobqueue/admin/queue_webhook.html", context)
