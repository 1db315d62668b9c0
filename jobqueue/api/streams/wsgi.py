"""Send a stream through a WSGI server; each stream occupies a thread of the server, so their number is small.

A client that never reads blocks that thread in a write, which only the end of the connection can end. If the server
gives access to the socket, this module shuts it down in this case. The kernel then also closes the connection of a
client that has vanished.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from typing import Any, ClassVar

from jobqueue import conf
from jobqueue.api.responses import Problem
from jobqueue.api.streams import threads as desk
from jobqueue.api.streams.limits import BUSY_SECONDS, StreamSlot
from jobqueue.api.streams.parts import ADMIT_SECONDS, RETRY_MILLISECONDS, RETRY_SOON_MILLISECONDS, Clock, Stream
from jobqueue.events import stopping, wire
from jobqueue.events.stream import hub
from jobqueue.events.subscription import STALLED_SECONDS, Subscription

PROBE_SECONDS = 1.0  # between the two parts of a ping
SOCKETS = ("gunicorn.socket", "werkzeug.socket")
TEST_CLIENT = "django.test.client"  # it reports one thread, and blocks no server
WAITRESS = "waitress-"  # the prefix of the names of its threads

logger = logging.getLogger("jobqueue")
_reported = threading.Event()


def most_places(environ: Mapping[str, Any]) -> int:
    """Return how many streams this process serves at a time: at most half of the server's threads, if their number is known."""
    most = conf.current().event_streams_most
    threads = _threads(environ)
    if threads is None or threads // 2 >= most:
        return most
    if threads < 2 and not _reported.is_set():
        _reported.set()
        logger.warning(
            "Streams of events are refused: this server has one thread per process, which a stream would occupy. Give it "
            "threads (gunicorn --threads 8) or serve the site by ASGI (docs/streaming.md)."
        )
    return threads // 2


def _threads(environ: Mapping[str, Any]) -> int | None:
    """Return how many requests a process of the server handles at a time; None if that is not known."""
    if environ.get("wsgi.multithread") is False and type(environ.get("wsgi.input")).__module__ != TEST_CLIENT:
        return 1
    server = stopping.server()
    if type(server).__module__ == "gunicorn.workers.gthread":
        return int(server.cfg.threads)
    return sum(one.name.startswith(WAITRESS) for one in threading.enumerate()) or None


def busy(most: int) -> Problem:
    """Return the answer of a process that has no room for one more stream."""
    if most == 0:
        text = (
            "No streams of events are served here: the server handles too few requests at a time, and a stream would occupy one of"
            " its threads. Give it threads (gunicorn --threads 8), or serve the site by ASGI."
        )
        return Problem(503, text, code="no_streams")
    text = f"This process already serves its maximum of {most} streams."
    return Problem(503, f"{text} Try again later.", code="too_many_streams", headers={"Retry-After": BUSY_SECONDS})


class Line:
    """The socket of a client, if the server gives access to it."""

    def __init__(self, environ: Mapping[str, Any]) -> None:
        """Find the socket, and limit the time for which the kernel waits for acknowledgments."""
        self._socket: Any = next((environ[name] for name in SOCKETS if name in environ), None)
        if self._socket is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            with contextlib.suppress(OSError):  # a Unix socket has no such option
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(STALLED_SECONDS * 1000))

    def cut(self) -> None:
        """Shut down the connection, so that a blocked write to the client fails."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


class Sync:
    """An iterator over the stream's bytes; `close` releases its slots, even before it has begun."""

    _lock = threading.Lock()
    _open: ClassVar[set[Sync]] = set()

    def __init__(self, stream: Stream, environ: Mapping[str, Any], place: StreamSlot) -> None:
        """Take one of the slots of the process, in addition to that of the user."""
        self.client: Subscription | None = None
        self._place = place
        self._line = Line(environ)
        self._parts = self._parts_of(stream)
        most = most_places(environ)
        with Sync._lock:
            if len(Sync._open) >= most:
                place.leave()
                raise busy(most)
            Sync._open.add(self)

    def __iter__(self) -> Iterator[bytes]:
        """Return the iterator."""
        return self

    def __next__(self) -> bytes:
        """Return the next bytes; block until there are some."""
        if self.client is not None:
            self.client.writing_since = None
        part = next(self._parts)
        if self.client is not None:
            self.client.writing_since = time.monotonic()
        return part

    def close(self) -> None:
        """Release the slots; a second call does nothing."""
        self._parts.close()
        self._place.leave()
        with Sync._lock:
            Sync._open.discard(self)

    def _parts_of(self, stream: Stream) -> Generator[bytes, None, None]:
        wake = threading.Event()
        client = self.client = hub.subscribe(stream.source.wanted, wake.set, self._line.cut)
        try:
            yield wire.retry(RETRY_MILLISECONDS)
            wake.wait(ADMIT_SECONDS)
            opening = stream.opening(client)
            while True:
                with self._place.turn:
                    part = desk.run_here(lambda: next(opening, None))
                if part is None:
                    break
                yield part
            clock = Clock()
            while client.begin is not None:
                wake.clear()
                ended, over = client.ended, clock.is_over
                if clock.must_check() and not desk.run_here(stream.source.allowed):
                    return
                part = clock.to_send(client)
                if part and clock.pings:
                    # The first write to a vanished client is answered by a reset, and only the next one fails.
                    # So a ping is written in two parts.
                    yield part[:-1]
                    wake.wait(PROBE_SECONDS)
                    part = part[-1:]
                if part:
                    yield part
                if over and not ended:
                    yield wire.retry(RETRY_SOON_MILLISECONDS)
                if over or ended:
                    return
                wake.wait(clock.rest)
        finally:
            hub.unsubscribe(client)
