"""The event stream of a job's page, with the session's user and the page's permissions; it works without the REST API."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, reverse

from jobqueue import conf
from jobqueue.admin.targets import TargetsAdmin
from jobqueue.api.responses import ApiError
from jobqueue.api.streams import limits, recheck, response
from jobqueue.api.streams.endpoints import snapshot_of
from jobqueue.api.streams.parts import StreamSource
from jobqueue.events.wanted import EventSelection
from jobqueue.models import Job


class LiveAdmin(TargetsAdmin):
    """The admin with a stream of a job's events."""

    def get_urls(self) -> list[URLPattern]:
        """Add the URL of the stream; it is not a page, so it does not redirect to the login."""
        return [path("<int:object_id>/events/", _without_login(self.events_view), name="jobqueue_job_events"), *super().get_urls()]

    def events_address(self, job: Job) -> str:
        """Return the URL of a job's stream; empty if the settings allow none."""
        if not response.streams_enabled():
            return ""
        return reverse("admin:jobqueue_job_events", args=[job.pk], current_app=self.admin_site.name)

    def events_view(self, request: HttpRequest, object_id: int) -> HttpResponseBase:
        """Stream the events of one job to users who may see its page."""
        try:
            if request.method not in ("GET", "HEAD"):
                raise ApiError(405, "The method must be one of: GET, HEAD.", headers={"Allow": "GET, HEAD"})
            with limits.authenticating():
                return self._stream(request, object_id)
        except ApiError as problem:
            return problem.response()

    def _stream(self, request: HttpRequest, object_id: int) -> HttpResponseBase:
        if not self.admin_site.has_permission(request):
            raise ApiError(403, "Log in to the admin to see this.")
        job = self.get_object(request, str(object_id))
        if not self.has_view_permission(request, job):
            raise ApiError(403, "The permission jobqueue.view_job is required.", permission="jobqueue.view_job")
        if job is None:
            raise ApiError(404, f"There is no job {object_id}.")
        source = StreamSource(EventSelection(job_id=job.pk), lambda: self._still(request, job.pk), snapshot_of(job.pk, request.user))
        return response.respond(request, request.user, source)

    def _still(self, request: HttpRequest, job_id: int) -> bool:
        """Return whether the page would be shown now."""
        user: Any = request.user
        recheck.renew(request)
        if request.user.pk != user.pk or not self.admin_site.has_permission(request):
            return False
        job = self.get_object(request, str(job_id))
        return job is not None and self.has_view_permission(request, job)


def _without_login(view: Any) -> Any:
    def open_view(request: HttpRequest, object_id: int) -> HttpResponseBase:
        reply: HttpResponseBase = view(request, object_id)
        return reply

    open_view.login_required = False  # type: ignore[attr-defined]
    for alias in conf.databases():
        transaction.non_atomic_requests(using=alias)(open_view)
    return open_view
