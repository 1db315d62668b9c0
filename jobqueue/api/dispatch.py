"""URL patterns from the table of endpoints: one view for each URL, which checks each request in the same order.

It checks the method, the user, the permissions and the CSRF token. Only then does it read the objects that the path
names. All responses, including errors, are JSON.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterable
from typing import Any, Final

from django.core.exceptions import BadRequest, SuspiciousOperation
from django.core.signals import got_request_exception
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, re_path

from jobqueue import conf, db
from jobqueue.access.audit import from_source
from jobqueue.api import access, audit
from jobqueue.api.endpoint import Endpoint
from jobqueue.api.responses import ApiError, json_response
from jobqueue.api.streams import limits
from jobqueue.exceptions import JobDoesNotExist

CONVERTERS: Final = {
    "job_id": "str",
    "bulk_id": "str",
    "target": "str",
    "queue": "path",
    "task": "path",
    "worker": "str",
    "delivery": "str",
    "schedule": "path",
}
UNKNOWN = "No endpoint has this URL. The URLs end with a slash; openapi.json lists them."

logger = logging.getLogger("jobqueue")


def patterns(endpoints: Iterable[Endpoint]) -> list[URLPattern]:
    """Return a pattern for each URL, and a last one for unknown URLs."""
    by_path: dict[str, list[Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, []).append(endpoint)
    urls = [path(_route(place), _View(of_path), name=of_path[0].name) for place, of_path in by_path.items()]
    return [*urls, re_path("", _View(()))]


def _route(place: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda name: f"<{CONVERTERS[name[1]]}:{name[1]}>", place)


class _View:
    """The view of one URL."""

    # `access` makes the check, because requests with a token need none. Each change is a transaction of its own
    # that takes the locks in order, so no transaction may be around the request (ATOMIC_REQUESTS).
    csrf_exempt = True
    # A middleware must not redirect requests without a session to a login page.
    login_required = False

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self.endpoints = {endpoint.method: endpoint for endpoint in endpoints}
        for alias in conf.databases():
            transaction.non_atomic_requests(using=alias)(self)

    def __call__(self, request: HttpRequest, **given: Any) -> HttpResponseBase:
        try:
            return self.reply(request, given)
        except ApiError as problem:
            return problem.response()
        except JobDoesNotExist as error:  # deleted after it was found
            return ApiError(404, str(error)).response()
        except (SuspiciousOperation, BadRequest, MultiPartParserError) as error:
            return ApiError(400, f"The request cannot be read: {error}").response()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any error must lead to JSON, and must not end the server
            return _failed(request, error)

    def reply(self, request: HttpRequest, given: dict[str, str]) -> HttpResponseBase:
        """Check the request, and return the response of its endpoint."""
        if not self.endpoints:
            raise ApiError(404, UNKNOWN)
        endpoint = self.endpoints.get("GET" if request.method == "HEAD" else request.method or "")
        if endpoint is None:
            allowed = ", ".join([*self.endpoints, *(["HEAD"] if "GET" in self.endpoints else [])])
            raise ApiError(405, f"The method must be one of: {allowed}.", headers={"Allow": allowed})
        with limits.authenticating() if endpoint.streams else contextlib.nullcontext():
            return self.guarded(request, endpoint, given)

    def guarded(self, request: HttpRequest, endpoint: Endpoint, given: dict[str, str]) -> HttpResponseBase:
        """Return the response of an endpoint if the user may use it."""
        user = None
        if not endpoint.public:
            try:
                user = access.authenticate(request)
                access.check_permissions(user, endpoint.permissions)
                access.check_csrf(request, user)
            except ApiError as problem:
                if request.method not in access.SAFE_METHODS:
                    audit.record_forbidden(request, user, str(problem))
                raise
        try:
            with from_source("rest"):
                reply = endpoint.handler(request, user, given)
        except (ApiError, JobDoesNotExist) as problem:
            # The endpoint has recorded a change that the state of the job forbids (409). The other errors include
            # requests for jobs of another tenant.
            if request.method not in access.SAFE_METHODS and getattr(problem, "status", 404) != 409:
                audit.record_invalid(request, user, str(problem))
            raise
        return reply if isinstance(reply, HttpResponseBase) else json_response(reply[1], reply[0])


def _failed(request: HttpRequest, error: BaseException) -> HttpResponse:
    """Log an unexpected error, send Django's signal for it, and return a response without details."""
    logger.error("A request to the REST API failed: %s %s", request.method, ascii(request.path), exc_info=error)
    got_request_exception.send(sender=_View, request=request)
    if db.is_connection_error(error):
        return ApiError(503, "The database did not respond. Try again.", headers={"Retry-After": "5"}).response()
    return ApiError(500, "The request failed; the server's log says why.").response()
