"""Respond to a request with a stream of events, or reject it; under ASGI and under WSGI."""

from __future__ import annotations

from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from jobqueue import conf
from jobqueue.api.params import shown
from jobqueue.api.responses import ApiError
from jobqueue.api.streams.asgi import send_async
from jobqueue.api.streams.limits import StreamSlot, busy, most_streams
from jobqueue.api.streams.parts import Stream, StreamSource
from jobqueue.api.streams.wsgi import SyncStream
from jobqueue.db.cursors import Position

HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store, private, no-transform",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
    "Content-Encoding": "identity",  # a middleware that compresses would delay events
}


def streams_enabled() -> bool:
    """Return whether the settings allow streams."""
    settings = conf.current()
    return settings.event_log != "none" and settings.event_streams_most > 0


def respond(request: HttpRequest, user: Any, source: StreamSource) -> HttpResponseBase:
    """Return the response that streams events. Raise `ApiError` if events are not recorded, or if no more streams can be opened."""
    settings = conf.current()
    if settings.event_log == "none":
        reason = "no events are recorded"
        raise ApiError(409, 'No events are recorded: the setting EVENT_LOG is "none".', reason=reason, code="no_events")
    if settings.event_streams_most == 0:
        raise ApiError(503, "Streams of events are switched off: the setting EVENT_STREAMS_MOST is 0.", code="no_streams")
    last = _last_position(request)
    stream = Stream(source, last, _wants_snapshot(request, default=last is None))
    if request.method == "HEAD":
        if most_streams(request) == 0:
            raise busy(0)
        return HttpResponse(headers=HEADERS)
    slot = StreamSlot(request, user)
    parts = send_async(stream, request.scope, slot) if isinstance(request, ASGIRequest) else SyncStream(stream, request.META, slot)
    return StreamingHttpResponse(parts, headers=HEADERS)


def _last_position(request: HttpRequest) -> Position | None:
    value = request.headers.get("Last-Event-ID") or request.GET.get("last_event_id")
    if not value:
        return None
    position = Position.of(value)
    if position is None:
        raise ApiError(400, f"Last-Event-ID is {shown(value)}; it must be the id of a message of a stream, unchanged.")
    return position


def _wants_snapshot(request: HttpRequest, *, default: bool) -> bool:
    value = request.GET.get("snapshot")
    if value is None:
        return default
    if value not in ("0", "1"):
        raise ApiError(400, f"snapshot is {shown(value)}; it must be 0 or 1.")
    return value == "1"
