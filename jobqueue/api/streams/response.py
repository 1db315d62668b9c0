"""Answer a request with a stream of events, or reject it; under ASGI and under WSGI."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from jobqueue import conf
from jobqueue.api.params import shown
from jobqueue.api.responses import Problem
from jobqueue.api.streams.asgi import send_async
from jobqueue.api.streams.limits import StreamSlot
from jobqueue.api.streams.parts import Source, Stream
from jobqueue.api.streams.wsgi import Sync, busy, most_places
from jobqueue.db import let_go
from jobqueue.db.cursors import Position
from jobqueue.events.stream import hub

MAX_ASYNC = 2000  # streams of a process under ASGI
HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store, private, no-transform",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
    "Content-Encoding": "identity",  # a middleware that compresses would delay events
}


AUTH_LIMIT = threading.BoundedSemaphore(4)


@contextlib.contextmanager
def at_the_door() -> Iterator[None]:
    """Limit the number of concurrent authentications: under ASGI each request has a thread, and so a connection, of its own."""
    with AUTH_LIMIT:
        try:
            yield
        finally:
            let_go()  # otherwise the thread of this request would keep its connection until the end of the stream


def are_served() -> bool:
    """Return whether the settings allow streams."""
    settings = conf.current()
    return settings.event_log != "none" and settings.event_streams_most > 0


def respond(request: HttpRequest, user: Any, source: Source) -> HttpResponseBase:
    """Answer with a stream; raise a `Problem` if there is nothing to stream or no room."""
    settings = conf.current()
    if settings.event_log == "none":
        reason = "no events are recorded"
        raise Problem(409, 'No events are recorded: the setting EVENT_LOG is "none".', reason=reason, code="no_events")
    if settings.event_streams_most == 0:
        raise Problem(503, "Streams of events are switched off: the setting EVENT_STREAMS_MOST is 0.", code="no_streams")
    last = _last_position(request)
    stream = Stream(source, last, _wants_snapshot(request, default=last is None))
    is_async = isinstance(request, ASGIRequest)
    most = MAX_ASYNC if is_async else most_places(request.META)
    if most == 0 or (is_async and len(hub) >= most):
        raise busy(most)
    if request.method == "HEAD":
        return HttpResponse(headers=HEADERS)
    if isinstance(request, ASGIRequest):
        return StreamingHttpResponse(send_async(stream, request.scope, StreamSlot(user)), headers=HEADERS)
    # One user's streams must leave room for those of other users.
    return StreamingHttpResponse(Sync(stream, request.META, StreamSlot(user, max(1, most // 2))), headers=HEADERS)


def _last_position(request: HttpRequest) -> Position | None:
    value = request.headers.get("Last-Event-ID") or request.GET.get("last_event_id")
    if not value:
        return None
    found = Position.of(value)
    if found is None:
        raise Problem(400, f"Last-Event-ID is {shown(value)}; it must be the id of a message of a stream, unchanged.")
    return found


def _wants_snapshot(request: HttpRequest, *, default: bool) -> bool:
    value = request.GET.get("snapshot")
    if value is None:
        return default
    if value not in ("0", "1"):
        raise Problem(400, f"snapshot is {shown(value)}; it must be 0 or 1.")
    return value == "1"
