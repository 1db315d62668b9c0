"""The stream of events behind the page of one job: the session's user, the page's own permissions, also where no REST API is included."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, reverse

from jobqueue import conf
from jobqueue.admin.targets import TargetsAdmin
from jobqueue.api.responses import Problem
from jobqueue.api.streams import recheck, response
from jobqueue.api.streams.endpoints import snapshot_of
from jobqueue.api.streams.parts import Source
from jobqueue.events.wanted import Wanted
from jobqueue.models import Job


class LiveAdmin(TargetsAdmin):
    """Stream what happens to a job."""

    def get_urls(self) -> list[URLPattern]:
        """Add the address of the stream; it is no page, so nobody is sent from it to where people log in."""
        return [path("<int:object_id>/events/", _without_login(self.events_view), name="jobqueue_job_events"), *super().get_urls()]

    def events_address(self, job: Job) -> str:
        """Return the address of a job's stream; empty if the settings allow none."""
        if not response.are_served():
            return ""
        return reverse("admin:jobqueue_job_events", args=[job.pk], current_app=self.admin_site.name)

    def events_view(self, request: HttpRequest, object_id: int) -> HttpResponseBase:
        """Stream the events of one job to those who may see its page."""
        try:
            if request.method not in ("GET", "HEAD"):
                raise Problem(405, "The method must be one of: GET, HEAD.", headers={"Allow": "GET, HEAD"})
            with response.at_the_door():
                return self._stream(request, object_id)
        except Problem as problem:
            return problem.response()

    def _stream(self, request: HttpRequest, object_id: int) -> HttpResponseBase:
        if not self.admin_site.has_permission(request):
            raise Problem(403, "Log in to the admin to see this.")
        job = self.get_object(request, str(object_id))
        if not self.has_view_permission(request, job):
            raise Problem(403, "The permission jobqueue.view_job is needed.", permission="jobqueue.view_job")
        if job is None:
            raise Problem(404, f"There is no job {object_id}.")
        source = Source(Wanted(job_id=job.pk), lambda: self._still(request, job.pk), snapshot_of(job.pk, request.user))
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
