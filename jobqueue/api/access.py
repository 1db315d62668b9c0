"""Authentication and permissions of requests: the authenticator, permissions, and the CSRF check of sessions.

A browser attaches cookies, and credentials of the schemes in `AMBIENT`, to every request, including those that a page
of another site causes. So a request that changes anything needs a CSRF token, unless it has credentials that only its
sender can have added. These are an ``Authorization`` header with another scheme, for a user who is not that of the
session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib.auth import SESSION_KEY
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import CsrfViewMiddleware

from jobqueue import conf
from jobqueue.api.responses import ApiError

AMBIENT = ("basic", "digest", "negotiate", "ntlm")
SAFE_METHODS = ("GET", "HEAD")


def session_user(request: HttpRequest) -> Any:
    """Return the user of the request's session, or None: the default authenticator, and a fallback for other authenticators."""
    user = getattr(request, "user", None)
    return user if user is not None and user.is_authenticated else None


def authenticate(request: HttpRequest) -> Any:
    """Return the active user who sends the request; reject an unknown one."""
    authenticator = conf.api_authenticator()
    try:
        user = (authenticator or session_user)(request)
    except PermissionDenied:
        user = None
    if user is None or not user.is_authenticated or not getattr(user, "is_active", True):
        scheme = "Bearer" if authenticator is not None else "Session"
        raise ApiError(401, "Authentication is required.", headers={"WWW-Authenticate": f'{scheme} realm="jobqueue"'})
    return user


def check_permissions(user: Any, names: Sequence[str]) -> None:
    """Reject a user who lacks one of the permissions; the error names it."""
    for name in names:
        if not user.has_perm(f"jobqueue.{name}"):
            raise ApiError(403, f"The permission jobqueue.{name} is required.", permission=f"jobqueue.{name}")


def check_csrf(request: HttpRequest, user: Any) -> None:
    """Reject a request that changes something and that another site may have forged."""
    if request.method in SAFE_METHODS or (_has_explicit_credentials(request) and not _is_of_session(request, user)):
        return
    if reason := _Csrf(_no_view).reason(request):
        raise ApiError(403, f"The CSRF check failed: {reason} Send the cookie's token in the header X-CSRFToken.", code="csrf_failed")


def _has_explicit_credentials(request: HttpRequest) -> bool:
    scheme = request.headers.get("Authorization", "").strip().partition(" ")[0].lower()
    return bool(scheme) and scheme not in AMBIENT


def _is_of_session(request: HttpRequest, user: Any) -> bool:
    session = getattr(request, "session", None)
    user_id = session.get(SESSION_KEY) if session is not None else None
    return user_id is not None and user_id == str(getattr(user, "pk", None))


def _no_view(request: HttpRequest) -> HttpResponse:
    raise AssertionError("The check calls no view.")


class _Csrf(CsrfViewMiddleware):
    """Django's CSRF check for one request. The project need not install the middleware. A rejection is stored as text, not as a page."""

    _reason = ""

    def reason(self, request: HttpRequest) -> str:
        """Return why the request is rejected; empty if it is not."""
        self.process_view(request, _no_view, (), {})
        return self._reason

    def _reject(self, request: HttpRequest, reason: str) -> HttpResponse:
        self._reason = reason
        return HttpResponse(status=403)
