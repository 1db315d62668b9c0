"""Send a stream through a WSGI server; each stream occupies a thread of the server, so their number is small.

A client that never reads blocks that thread in a write, which only the end of the connection can end. If the server
gives access to the socket, this module shuts it down in this case. The kernel then also closes the connection of a
client that has vanished.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from typing import Any

from jobqueue.api.streams import threads
from jobqueue.api.streams.limits import StreamSlot
from jobqueue.api.streams.parts import ADMIT_SECONDS, RETRY_MILLISECONDS, RETRY_SOON_MILLISECONDS, Stream, StreamClock
from jobqueue.events import wire
from jobqueue.events.stream import hub
from jobqueue.events.subscription import STALLED_SECONDS, Subscription

PROBE_SECONDS = 1.0  # between the two parts of a ping
SOCKETS = ("gunicorn.socket", "werkzeug.socket")


class Connection:
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


class SyncStream:
    """An iterator over the stream's bytes; `close` releases its slot, even before it has begun."""

    def __init__(self, stream: Stream, environ: Mapping[str, Any], slot: StreamSlot) -> None:
        """Prepare the iterator; it subscribes to events when its first part is read."""
        self.client: Subscription | None = None
        self._slot = slot
        self._connection = Connection(environ)
        self._parts = self._parts_of(stream)

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
        """Release the slot; a second call does nothing."""
        self._parts.close()
        self._slot.release()

    def _parts_of(self, stream: Stream) -> Generator[bytes, None, None]:
        wake = threading.Event()
        client = self.client = hub.subscribe(stream.source.wanted, wake.set, self._connection.cut)
        try:
            yield wire.retry(RETRY_MILLISECONDS)
            wake.wait(ADMIT_SECONDS)
            opening = stream.opening(client)
            while True:
                with self._slot.turn:
                    part = threads.run_here(lambda: next(opening, None))
                if part is None:
                    break
                yield part
            clock = StreamClock()
            while client.begin is not None:
                wake.clear()
                ended, over = client.ended, clock.is_over
                if clock.start_check_if_due() and not threads.run_here(stream.source.allowed):
                    return
                part = clock.take_bytes(client)
                if part and clock.last_was_ping:
                    # The first write to a vanished client only causes a reset; the next write fails.
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
                wake.wait(clock.seconds_to_next_action)
        finally:
            hub.unsubscribe(client)
