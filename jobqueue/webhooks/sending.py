"""Send one message over HTTP, within one deadline for everything, to an address that was judged.

The time limits of HTTP clients count from byte to byte: a receiver that sends one byte a second keeps them waiting for ever. Here each
wait gets what is left of the whole. Proxies of the environment are not used, and redirects not followed: both lead to addresses that
nobody has judged. Of the answer only the status and ``Retry-After`` are kept, so that nobody can read through us what is inside.
"""

from __future__ import annotations

import contextlib
import functools
import ssl
import threading
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import certifi
import httpcore
import httpx
from standardwebhooks import Webhook

from jobqueue import __version__
from jobqueue.core import masking
from jobqueue.core.texts import clean, exception_summary
from jobqueue.core.webhook_rules import origin, retry_after_seconds, url_problem
from jobqueue.webhooks import guard

MAX_READ_BYTES = 4096
BODY_SECONDS = 1.0
WRITE_BYTES = 16_384
MAX_ERROR = 500
GONE = 410

_making = threading.Lock()


class Answer(NamedTuple):
    """Tell what came of one attempt; `final` where no other one is to follow, `late` where the receiver did not answer in time."""

    delivered: bool = False
    final: bool = False
    status: int | None = None
    error: str = ""
    retry_after: float | None = None
    late: bool = False

    def outcome(self) -> dict[str, Any]:
        """Return what is written of it."""
        told = self._asdict()
        del told["late"]
        return told


def send(
    url: str,
    message_id: str,
    body: str,
    *,
    secrets: Iterable[str],
    allowed: tuple[str, ...],
    seconds: float,
    at: datetime | None = None,
    https_only: bool = False,
) -> Answer:
    """Send a message and return what came of it; it takes no longer than so many seconds, but for the look-up of the name."""
    hide = masking.Mask(values=[url, url[len(origin(url)) :]])
    try:
        if problem := url_problem(url, https_only=https_only):
            raise guard.Refused(problem)
        if url.lower().startswith("https:"):
            _tls()  # made once, which takes a while: before the time begins
        return _send(url, headers(message_id, body, secrets, at), body.encode(), allowed, time.monotonic() + seconds)
    except (guard.Refused, httpx.InvalidURL) as error:
        return Answer(final=True, error=_told(f"Refused: {error}.", hide))
    except (httpcore.TimeoutException, TimeoutError):
        return Answer(error=f"No answer within {seconds:g} s.", late=True)
    except httpcore.ProtocolError as error:  # its text quotes what the receiver said, such as the banner of another service
        closed = "disconnected" in str(error)
        return Answer(error="The receiver disconnected without an answer." if closed else "The receiver does not answer in HTTP.")
    except Exception as error:  # noqa: BLE001 - whatever a receiver or a library does is told in the delivery's row
        return Answer(error=_told(str(error) if isinstance(error, guard.Unresolved) else exception_summary(error, hide), hide))


def _send(url: str, sent: Mapping[str, str], body: bytes, allowed: tuple[str, ...], deadline: float) -> Answer:
    target = httpx.URL(url)
    port = target.port or (443 if target.scheme == "https" else 80)
    found = guard.addresses(target.raw_host.decode("ascii"), port, allowed)
    return _exchange(target, found, sent, body, deadline)


def headers(message_id: str, body: str, secrets: Iterable[str], at: datetime | None = None) -> dict[str, str]:
    """Return the headers of a message, signed by Standard Webhooks with each of the secrets; the time is that of the attempt."""
    now = (at or datetime.now(UTC)).astimezone(UTC)
    signatures = " ".join(Webhook(secret).sign(message_id, now, body) for secret in secrets)
    return {
        "content-type": "application/json",
        "user-agent": f"jobqueue/{__version__}",
        "connection": "close",
        "accept-encoding": "identity",
        "webhook-id": message_id,
        "webhook-timestamp": str(int(now.timestamp())),
        **({"webhook-signature": signatures} if signatures else {}),
    }


def _exchange(url: httpx.URL, found: list[str], sent: Mapping[str, str], body: bytes, deadline: float) -> Answer:
    transport = Pinned(found, deadline, _tls() if url.scheme == "https" else None)
    # Without a client, which would write the whole URL, with the secrets in it, into the log of the project.
    with transport, contextlib.closing(transport.handle_request(httpx.Request("POST", url, content=body, headers=dict(sent)))) as response:
        status = response.status_code
        transport.hurry(BODY_SECONDS)
        _read_a_little(response)
    if 200 <= status < 300:
        return Answer(delivered=True, status=status)
    error = f"The receiver answered {status}."
    if 300 <= status < 400:
        error = f"The receiver answered {status}; redirects are not followed."
    return Answer(final=status == GONE, status=status, error=error, retry_after=retry_after_seconds(response.headers.get("retry-after")))


def _read_a_little(response: httpx.Response) -> None:
    """Let a short answer arrive in full, so that the receiver sees no broken connection; what it says is of no interest."""
    read = 0
    try:
        for part in response.iter_raw(MAX_READ_BYTES):
            read += len(part)
            if read >= MAX_READ_BYTES:
                break
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError):
        pass  # the status has been told


def _told(text: str, hide: masking.Mask) -> str:
    text = hide(" ".join(clean(text).split()))
    return text if len(text) <= MAX_ERROR else f"{text[: MAX_ERROR - 1]}…"


def _tls() -> ssl.SSLContext:
    """Return what judges certificates: the system's authorities, and those that come with httpx."""
    with _making:
        return _made()


@functools.cache
def _made() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


class Deadline:
    """Hold the time at which an exchange is over, whatever it is then about."""

    def __init__(self, at: float) -> None:
        """Take a monotonic time."""
        self.at = at

    def left(self) -> float:
        """Return how many seconds are left; raise where there are none."""
        seconds = self.at - time.monotonic()
        if seconds <= 0:
            raise httpcore.ReadTimeout("The time for the whole exchange is over.")
        return seconds


class Pinned(httpx.BaseTransport):
    """Be a transport of httpx whose connections go to given addresses; the certificate and ``Host`` are still those of the name."""

    def __init__(self, found: list[str], deadline: float, tls: ssl.SSLContext | None) -> None:
        """Connect nowhere yet."""
        self._deadline = Deadline(deadline)
        network = Network(found, self._deadline)
        self._pool = httpcore.ConnectionPool(ssl_context=tls, max_connections=1, network_backend=network)

    def hurry(self, seconds: float) -> None:
        """Let what is left of the exchange take so long at the most."""
        self._deadline.at = min(self._deadline.at, time.monotonic() + seconds)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on, and its answer back."""
        url = request.url
        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        content: Any = request.stream
        answer = self._pool.handle_request(httpcore.Request(request.method, target, headers=request.headers.raw, content=content))
        return httpx.Response(answer.status, headers=answer.headers, stream=Body(answer))

    def close(self) -> None:
        """Close the connection."""
        self._pool.close()


class Body(httpx.SyncByteStream):
    """Be the body of an answer, read as it comes."""

    def __init__(self, answer: httpcore.Response) -> None:
        """Read nothing yet."""
        self._answer = answer

    def __iter__(self) -> Any:
        """Read on."""
        return self._answer.iter_stream()

    def close(self) -> None:
        """Read no further."""
        self._answer.close()


class Network(httpcore.NetworkBackend):
    """Connect to given addresses in place of a name, within a deadline."""

    def __init__(self, found: list[str], deadline: Deadline) -> None:
        """Connect nowhere yet."""
        self._found, self._deadline = found, deadline
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, local_address: str | None = None, socket_options: Any = None
    ) -> httpcore.NetworkStream:
        """Connect to the first address that answers."""
        for number, address in enumerate(self._found, 1):
            # Half of what is left for each but the last: a dead address must not use up the time of a living one.
            seconds = self._deadline.left() / (1 if number == len(self._found) else 2)
            try:
                stream = self._sockets.connect_tcp(address, port, timeout=seconds, socket_options=socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if number == len(self._found):
                    raise
            else:
                return Bounded(stream, self._deadline)
        raise httpcore.ConnectError("The receiver has no address.")


class Bounded(httpcore.NetworkStream):
    """Be a connection of which each wait gets what is left of the whole."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: Deadline) -> None:
        """Take a connection over."""
        self._stream, self._deadline = stream, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read what comes next."""
        return self._stream.read(max_bytes, self._deadline.left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write a little at a time, since each part may have to wait."""
        for begin in range(0, len(buffer), WRITE_BYTES):
            self._stream.write(buffer[begin : begin + WRITE_BYTES], self._deadline.left())

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """Begin to speak TLS."""
        return Bounded(self._stream.start_tls(ssl_context, server_hostname, self._deadline.left()), self._deadline)

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        """Tell what the connection tells."""
        return self._stream.get_extra_info(info)
