"""Send a stream of events to one client, under ASGI and under WSGI.

The order of things is what makes it whole: the shared reader takes the client in and says where it stands; then a snapshot of the job is
read, or what the client missed is replayed up to there; then comes what the reader hands out. Under ASGI nothing is held for a client
but its queue. Under WSGI each stream keeps a thread of the web server, so there are few.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from jobqueue import clock, conf
from jobqueue.api import again, desk
from jobqueue.api.answers import Problem
from jobqueue.api.cutting import Cutter
from jobqueue.api.places import BUSY_SECONDS, Place
from jobqueue.api.reading import shown
from jobqueue.db import let_go
from jobqueue.events import replay, wire
from jobqueue.events.stream import SLOW, Subscription, hub
from jobqueue.events.wanted import Wanted

RETRY_MILLISECONDS = 3000
MOST_ASYNC = 2000  # streams of a process under ASGI
PART_BYTES = 65_536
PROBE_SECONDS = 1.0  # between the two parts of a ping
ADMIT_SECONDS = 10.0
HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
    "Content-Encoding": "identity",  # a middleware that compresses would hold events back
}


DOOR = threading.BoundedSemaphore(4)


@contextlib.contextmanager
def at_the_door() -> Iterator[None]:
    """Let a few at a time ask who they are: under ASGI each request has a thread, and so a connection, of its own."""
    with DOOR:
        try:
            yield
        finally:
            let_go()  # or the thread of this request would keep its connection as long as the stream lasts


@dataclass(frozen=True, slots=True)
class Source:
    """Say what a stream tells, who may hear it, and what it begins with; the two functions ask the database."""

    wanted: Wanted
    allowed: Callable[[], bool]
    snapshot: Callable[[], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream: its source, the id with which the client comes back (None for a new one), and whether it wants a snapshot."""

    source: Source
    last_id: int | None
    snapshot: bool

    def opening(self, client: Subscription) -> Iterator[bytes]:
        """Yield what comes before live events; each step asks the database."""
        begin = client.begin
        if begin is None:
            return
        last_id = self.last_id
        lost = last_id is not None and replay.is_lost(last_id, begin)
        if last_id is None or last_id > replay.latest_of(begin):
            last_id, back = None, begin.horizon
        else:
            back = last_id
        if lost:
            yield wire.message(back, _own(wire.RESET, {"reason": "Events that came after this id are not known any more."}))
        if self.snapshot or lost:
            yield wire.message(back, _own(wire.SNAPSHOT, self.source.snapshot()))
        if last_id is not None:
            yield from replay.pages(self.source.wanted, last_id, begin)
        elif not self.snapshot:
            yield wire.ping(begin.horizon)


def _own(name: str, data: dict[str, Any]) -> bytes:
    return wire.body({"id": None, "event": name, "at": clock.now().isoformat(), "data": data})


def respond(request: HttpRequest, user: Any, source: Source) -> HttpResponseBase:
    """Answer with a stream; refuse, by a `Problem`, where there is nothing to stream or no room."""
    if conf.current().event_log == "none":
        reason = "no events are recorded"
        raise Problem(409, 'No events are recorded: the setting EVENT_LOG is "none".', reason=reason, code="no_events")
    last_id = _last_id(request)
    stream = Stream(source, last_id, _wants_snapshot(request, default=last_id is None))
    if request.method == "HEAD":
        return HttpResponse(headers=HEADERS)
    if isinstance(request, ASGIRequest):
        if len(hub) >= MOST_ASYNC:
            raise _busy(MOST_ASYNC)
        return StreamingHttpResponse(send_async(stream, request.scope, Place(user)), headers=HEADERS)
    return StreamingHttpResponse(Sync(stream, Place(user)), headers=HEADERS)


def _busy(most: int) -> Problem:
    text = f"This process has {most} streams, and no room for one more."
    return Problem(503, f"{text} Try again later.", code="too_many_streams", headers={"Retry-After": BUSY_SECONDS})


def _last_id(request: HttpRequest) -> int | None:
    value = request.headers.get("Last-Event-ID") or request.GET.get("last_event_id")
    if not value:
        return None
    if not (value.isascii() and value.isdigit() and len(value) <= 19 and int(value) < 2**63):
        raise Problem(400, f"Last-Event-ID is {shown(value)}; it must be the id of a message of this stream, a whole number.")
    return int(value)


def _wants_snapshot(request: HttpRequest, *, default: bool) -> bool:
    value = request.GET.get("snapshot")
    if value is None:
        return default
    if value not in ("0", "1"):
        raise Problem(400, f"snapshot is {shown(value)}; it must be 0 or 1.")
    return value == "1"


class Clock:
    """Know when a stream must send a ping, and ask whether it is still allowed."""

    def __init__(self) -> None:
        """Begin now."""
        self.ping_seconds = conf.current().event_ping_seconds
        now = time.monotonic()
        self._sent, self._checked = now, now
        self.pings = False  # whether what was sent last is a ping

    @property
    def rest(self) -> float:
        """How long nothing is due."""
        now = time.monotonic()
        return max(0.0, min(self._sent + self.ping_seconds, self._checked + again.CHECK_SECONDS) - now)

    def to_send(self, client: Subscription) -> bytes:
        """Return what is to be sent now: events, or a ping where one is due."""
        taken, horizon = client.take()
        if not taken and time.monotonic() - self._sent < self.ping_seconds:
            return b""
        self._sent, self.pings = time.monotonic(), not taken
        return taken or wire.ping(horizon)

    def must_check(self) -> bool:
        """Return whether it is time to ask, and take it as asked."""
        if time.monotonic() - self._checked < again.CHECK_SECONDS:
            return False
        self._checked = time.monotonic()
        return True


async def send_async(stream: Stream, scope: Mapping[str, Any], place: Place) -> AsyncIterator[bytes]:
    """Yield the stream's bytes to a server that speaks ASGI; the request's scope names its connection, the place is its user's."""
    cutter = Cutter(scope)
    wake = cutter.woken
    client = cutter.client = hub.subscribe(stream.source.wanted, cutter.wake)
    try:
        yield wire.retry(RETRY_MILLISECONDS)
        await sync_to_async(let_go)()  # what a middleware has asked since, in the request's own thread
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(wake.wait(), ADMIT_SECONDS)
        opening = stream.opening(client)
        while (part := await desk.elsewhere(lambda: next(opening, None))) is not None:
            yield part
            cutter.sent += 1
        clock = Clock()
        while client.begin is not None:
            wake.clear()
            ended = client.ended  # before the queue is emptied: what came until then is sent
            if clock.must_check() and not await desk.elsewhere(stream.source.allowed):
                return
            part = clock.to_send(client)
            for begin in range(0, len(part), PART_BYTES):  # so that it is seen whether its client reads
                yield part[begin : begin + PART_BYTES]
                cutter.sent += 1
            if ended:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(wake.wait(), clock.rest)
    finally:
        place.leave()
        cutter.end()
        hub.unsubscribe(client)


class Sync:
    """Iterate over the stream's bytes for a server that speaks WSGI; `close` gives the place back, begun or not."""

    _lock = threading.Lock()
    _open: ClassVar[set[Sync]] = set()

    def __init__(self, stream: Stream, place: Place) -> None:
        """Take one of the few places of the process, beside that of the user."""
        self.client: Subscription | None = None
        self._place = place
        self._parts = self._parts_of(stream)
        most = conf.current().event_streams_most
        with Sync._lock:
            # One who never reads blocks the server's thread in a write, which nothing can end from here. Once cut, it keeps no place.
            taken = sum(not one.is_cut for one in Sync._open)
            if taken >= most or len(Sync._open) >= 2 * most:
                place.leave()
                raise _busy(most)
            Sync._open.add(self)

    @property
    def is_cut(self) -> bool:
        """Whether its client has not kept up."""
        return self.client is not None and self.client.ended == SLOW

    def __iter__(self) -> Iterator[bytes]:
        """Return itself."""
        return self

    def __next__(self) -> bytes:
        """Return the next bytes, waiting for them."""
        return next(self._parts)

    def close(self) -> None:
        """Give the places back; a second call does nothing."""
        self._parts.close()
        self._place.leave()
        with Sync._lock:
            Sync._open.discard(self)

    def _parts_of(self, stream: Stream) -> Generator[bytes, None, None]:
        wake = threading.Event()
        client = self.client = hub.subscribe(stream.source.wanted, wake.set)
        try:
            yield wire.retry(RETRY_MILLISECONDS)
            wake.wait(ADMIT_SECONDS)
            opening = stream.opening(client)
            while (part := desk.at_once(lambda: next(opening, None))) is not None:
                yield part
            clock = Clock()
            while client.begin is not None:
                wake.clear()
                ended = client.ended
                if clock.must_check() and not desk.at_once(stream.source.allowed):
                    return
                part = clock.to_send(client)
                if part and clock.pings:
                    # The first write to a client that has gone is answered by a reset, and only the next one fails: it is not to be
                    # the next ping.
                    yield part[:-1]
                    wake.wait(PROBE_SECONDS)
                    part = part[-1:]
                if part:
                    yield part
                if ended:
                    return
                wake.wait(clock.rest)
        finally:
            hub.unsubscribe(client)
