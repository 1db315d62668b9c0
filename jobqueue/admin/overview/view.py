"""The address from which an open Overview fetches its parts again.

The session and the rights of its user are read once in `CHECK_SECONDS`, because many pages fetch every few seconds: after a
logout, an open page can be updated for that long.
"""

from __future__ import annotations

from typing import Any, Final

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template import loader
from django.urls import URLPattern, get_script_prefix, path
from django.utils.timezone import get_current_timezone_name
from django.utils.translation import get_language

from jobqueue import conf
from jobqueue.access import visible
from jobqueue.admin.live import LiveAdmin
from jobqueue.admin.overview import page
from jobqueue.admin.pages import OVERVIEW, Pages
from jobqueue.core import recent
from jobqueue.models import Job

CHECK_SECONDS: Final = 90.0
PART_SECONDS: Final = 4.0
PART_HEADER: Final = "X-Jobqueue-Part"


class OverviewAdmin(LiveAdmin):
    """The admin with the parts of the Overview."""

    def get_urls(self) -> list[URLPattern]:
        """Add the URL of the parts; it is not a page, so it does not redirect to the login."""
        return [path("overview/", _open(self.overview_view), name="jobqueue_job_overview"), *super().get_urls()]

    def overview_view(self, request: HttpRequest) -> HttpResponse:
        """Show the parts of the Overview that the user may view, to its script; any other request is redirected to the page."""
        if request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        request.current_app = self.admin_site.name
        if PART_HEADER not in request.headers:  # opened by hand
            return redirect(f"{Pages(request).url(OVERVIEW)}?{request.GET.urlencode()}")
        session_key = getattr(getattr(request, "session", None), "session_key", None)
        if session_key is None:
            user = self._user(request)
        else:
            key = ("overview user", Job.objects.database.scope, self.admin_site.name, session_key)
            user = recent.kept(key, CHECK_SECONDS, lambda: self._user(request))
        if user is None:
            raise PermissionDenied
        request.user = user
        rights = page.rights_of(Pages(request))
        if not any(rights.values()):
            raise PermissionDenied
        # All that the parts depend on.
        what = (self.admin_site.name, get_script_prefix(), get_language(), get_current_timezone_name(), page.period_of(request))
        parts_key = ("overview", Job.objects.database.scope, *what, tuple(rights.values()), visible.sight(user))
        html = recent.kept(parts_key, PART_SECONDS, lambda: self._parts(request))
        return HttpResponse(html, headers={"Cache-Control": "no-store"})

    def _parts(self, request: HttpRequest) -> str:
        return loader.render_to_string("jobqueue/admin/overview.html", {"page": page.context(request)})

    def _user(self, request: HttpRequest) -> Any:
        """Return the user of the request; None if the user may not use the admin."""
        if not self.admin_site.has_permission(request):
            return None
        user: Any = request.user
        user.get_all_permissions()  # ModelBackend keeps them on the object
        return getattr(user, "_wrapped", user)


def _open(view: Any) -> Any:
    def open_view(request: HttpRequest) -> HttpResponse:
        response: HttpResponse = view(request)
        return response

    open_view.login_required = False  # type: ignore[attr-defined]
    for alias in conf.databases():
        transaction.non_atomic_requests(using=alias)(open_view)
    return open_view
