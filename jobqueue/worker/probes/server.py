"""A small HTTP server for probes: one thread, a few fixed paths, GET and HEAD only.

An event loop serves all connections, and each connection gets `EXCHANGE_SECONDS` in all. So clients that send or read slowly block no
probe. The server calls only functions that do not wait. If it fails, the worker continues without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

from jobqueue.core import repeats
from jobqueue.insight.prometheus import CONTENT_TYPE, PrometheusMissing
from jobqueue.worker.forked import drop_at_fork
from jobqueue.worker.probes.state import Figures, ProbeState, exposition

EXCHANGE_SECONDS = 2.0
MAX_CONNECTIONS = 64
MAX_HEAD_BYTES = 8192
STOP_SECONDS = 1.0
BACKLOG = 64
PLAIN = "text/plain; charset=utf-8"

logger = logging.getLogger("jobqueue")


class Response(NamedTuple):
    """A response to a probe."""

    status: HTTPStatus
    body: bytes
    content_type: str = PLAIN


Page = Callable[[], Response]


def listen(address: str) -> socket.socket:
    """Return a socket that listens at ``ADDRESS:PORT``; raise ValueError if the address is wrong, `OSError` if it cannot be used."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit() and int(port) < 2**16):
        raise ValueError("it must be an address and a port from 0 to 65535, such as 0.0.0.0:8080 or [::1]:8080; 0 takes any free port")
    family, _, _, _, where = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # else a restarted worker waits for old connections
        listener.bind(where)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the URL of a socket that listens."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def probe_pages(state: Callable[[], ProbeState], figures: Figures) -> dict[str, Page]:
    """Return the pages of a worker or a fleet."""

    def metrics() -> Response:
        try:
            return Response(HTTPStatus.OK, exposition(figures()), CONTENT_TYPE)
        except PrometheusMissing as missing:
            return Response(HTTPStatus.NOT_FOUND, f"{missing}.\n".encode())

    return {"/livez": lambda: _verdict(state().unhealthy), "/readyz": lambda: _verdict(state().idle), "/metrics": metrics}


def _verdict(problem: str) -> Response:
    return Response(HTTPStatus.SERVICE_UNAVAILABLE, f"{problem}\n".encode()) if problem else Response(HTTPStatus.OK, b"ok\n")


class ProbeServer:
    """The thread that serves pages on a listening socket."""

    def __init__(self, listener: socket.socket, pages: Mapping[str, Page]) -> None:
        """Take the socket; `pages` maps paths to functions that do not wait."""
        self._listener, self._pages = listener, pages
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._open: dict[asyncio.BaseTransport, None] = {}  # the oldest first
        self._thread = threading.Thread(target=self._main, name="jobqueue-probes", daemon=True)
        drop_at_fork(self)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and wait for it shortly."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(STOP_SECONDS)

    def drop_in_child(self) -> None:
        """Close the socket in a child that a task has forked, which would otherwise keep the port."""
        self._listener.close()

    def _main(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            logger.error("The probe server has ended, and the worker continues without it.", exc_info=error)

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._answer, sock=self._listener, limit=MAX_HEAD_BYTES)
        await self._stopped.wait()
        server.close()
        for transport in list(self._open):
            transport.abort()  # type: ignore[attr-defined]

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        transport = writer.transport
        self._open[transport] = None
        if len(self._open) > MAX_CONNECTIONS:
            next(iter(self._open)).abort()  # type: ignore[attr-defined]
        try:
            async with asyncio.timeout(EXCHANGE_SECONDS):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._response(request))
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client is slow, is gone, or speaks no HTTP
        finally:
            del self._open[transport]
            transport.abort()

    def _response(self, request: bytes) -> bytes:
        """Return the response to the head of a request. It repeats nothing of the request."""
        method, _, rest = request.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        path, _, version = rest.partition(" ")
        extra = ""
        if not version.startswith("HTTP/1."):
            found = Response(HTTPStatus.BAD_REQUEST, b"The request is not HTTP/1.1.\n")
        elif method not in ("GET", "HEAD"):
            found, extra = Response(HTTPStatus.METHOD_NOT_ALLOWED, b"The method must be GET or HEAD.\n"), "Allow: GET, HEAD\r\n"
        elif (page := self._pages.get(path.partition("?")[0])) is None:
            found = Response(HTTPStatus.NOT_FOUND, f"The pages are {', '.join(self._pages)}.\n".encode())
        else:
            found = _called(page)
        head = (
            f"HTTP/1.1 {found.status.value} {found.status.phrase}\r\nContent-Type: {found.content_type}\r\n"
            f"Content-Length: {len(found.body)}\r\n{extra}Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
            "Connection: close\r\n\r\n"
        )
        return head.encode() + (b"" if method == "HEAD" else found.body)


def _called(page: Page) -> Response:
    try:
        return page()
    except Exception:  # noqa: BLE001 - a bug, which must not end the server
        repeats.log(logging.ERROR, "A probe failed.", exc_info=True)
        return Response(HTTPStatus.INTERNAL_SERVER_ERROR, b"The probe failed; the log of the worker says why.\n")
