"""Send one message over HTTP, within one deadline for the exchange, to an address that was checked.

The time limits of HTTP clients apply to each wait: a receiver that sends one byte per second never exceeds them.
Here, each wait is limited by the rest of the deadline. Proxies of the environment are not used, and redirects are
not followed, because both lead to addresses that were not checked. So the beginning of a response, which is
stored with masked secrets, never comes from inside of this network, unless ``WEBHOOK_ALLOWED_HOSTS`` allows that.
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
MAX_EXCERPT_BYTES = 2048
GONE = 410

_making = threading.Lock()


class AttemptResult(NamedTuple):
    """The result of one attempt; `final` if no other attempt follows, `late` if the receiver did not respond in time."""

    delivered: bool = False
    final: bool = False
    status: int | None = None
    error: str = ""
    retry_after: float | None = None
    late: bool = False
    excerpt: str = ""  # the beginning of the response, with masked secrets
    milliseconds: int | None = None

    def outcome(self) -> dict[str, Any]:
        """Return the part of it that is written to the database."""
        values = self._asdict()
        del values["late"]
        return values


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
    trace: Mapping[str, str] | None = None,
) -> AttemptResult:
    """Send a message and return the result; it takes at most `seconds`, without the resolution of the name. `trace` has more headers."""
    began = time.monotonic()
    result = _result(
        url, message_id, body, secrets=secrets, allowed=allowed, seconds=seconds, at=at, https_only=https_only, trace=trace or {}
    )
    return result._replace(milliseconds=round((time.monotonic() - began) * 1000))


def _result(
    url: str,
    message_id: str,
    body: str,
    *,
    secrets: Iterable[str],
    allowed: tuple[str, ...],
    seconds: float,
    at: datetime | None,
    https_only: bool,
    trace: Mapping[str, str],
) -> AttemptResult:
    hide = masking.Mask(values=[url, url[len(origin(url)) :]])
    try:
        if problem := url_problem(url, https_only=https_only):
            raise guard.ReceiverRefused(problem)
        if url.lower().startswith("https:"):
            _tls()  # created once, which takes a while: before the time begins
        result = _send(url, {**headers(message_id, body, secrets, at), **trace}, body.encode(), allowed, time.monotonic() + seconds)
        return result._replace(excerpt=hide.cut(result.excerpt, MAX_EXCERPT_BYTES))
    except (guard.ReceiverRefused, httpx.InvalidURL) as error:
        return AttemptResult(final=True, error=_shown(f"Refused: {error}.", hide))
    except (httpcore.TimeoutException, TimeoutError):
        return AttemptResult(error=f"No response within {seconds:g} s.", late=True)
    except httpcore.ProtocolError as error:  # its text quotes the receiver, such as the banner of another service
        if "disconnected" in str(error):
            return AttemptResult(error="The receiver closed the connection without a response.")
        return AttemptResult(error="The receiver did not send a valid HTTP response.")
    except Exception as error:  # noqa: BLE001 - any error of a receiver or a library is stored in the delivery's row
        return AttemptResult(error=_shown(str(error) if isinstance(error, guard.Unresolved) else exception_summary(error, hide), hide))


def _send(url: str, request_headers: Mapping[str, str], body: bytes, allowed: tuple[str, ...], deadline: float) -> AttemptResult:
    target = httpx.URL(url)
    port = target.port or (443 if target.scheme == "https" else 80)
    addresses = guard.addresses(target.raw_host.decode("ascii"), port, allowed)
    return _exchange(target, addresses, request_headers, body, deadline)


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


def _exchange(url: httpx.URL, addresses: list[str], request_headers: Mapping[str, str], body: bytes, deadline: float) -> AttemptResult:
    until = Deadline(deadline)
    tls = _tls() if url.scheme == "https" else None
    target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
    fields = {"host": url.netloc.decode("ascii"), **request_headers, "content-length": str(len(body))}
    # A client of httpx would log the whole URL with the secrets in it, and follow the proxies of the environment.
    with (
        httpcore.ConnectionPool(ssl_context=tls, max_connections=1, network_backend=Network(addresses, until)) as pool,
        pool.stream("POST", target, headers=[*fields.items()], content=body) as response,
    ):
        until.at = min(until.at, time.monotonic() + BODY_SECONDS)
        excerpt = clean(_beginning(response).decode(errors="replace"))
    status = response.status
    if 200 <= status < 300:
        return AttemptResult(delivered=True, status=status, excerpt=excerpt)
    error = f"The receiver returned status {status}."
    if 300 <= status < 400:
        error = f"The receiver returned status {status}; redirects are not followed."
    retry_after = retry_after_seconds(_header(response, b"retry-after"))
    return AttemptResult(final=status == GONE, status=status, error=error, retry_after=retry_after, excerpt=excerpt)


def _header(response: httpcore.Response, name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in response.headers if key.lower() == name), None)


def _beginning(response: httpcore.Response) -> bytes:
    """Return the beginning of a response. A short one is read in full, so that the receiver sees no broken connection."""
    read = b""
    with contextlib.suppress(httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError):  # the status is known already
        for part in response.iter_stream():
            read += part
            if len(read) >= MAX_READ_BYTES:
                break
    return read[:MAX_READ_BYTES]


def _shown(text: str, hide: masking.Mask) -> str:
    text = hide(" ".join(clean(text).split()))
    return text if len(text) <= MAX_ERROR else f"{text[: MAX_ERROR - 1]}…"


def _tls() -> ssl.SSLContext:
    """Return the TLS context, with the authorities of the system and those of certifi."""
    with _making:
        return _context()


@functools.cache
def _context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


class Deadline:
    """The time at which an exchange is over, in any phase."""

    def __init__(self, at: float) -> None:
        """Store a monotonic time."""
        self.at = at

    def left(self) -> float:
        """Return how many seconds are left; raise if there are none."""
        seconds = self.at - time.monotonic()
        if seconds <= 0:
            raise httpcore.ReadTimeout("The time limit of the exchange was exceeded.")
        return seconds


class Network(httpcore.NetworkBackend):
    """A network backend that connects to given addresses in place of a name, within a deadline."""

    def __init__(self, addresses: list[str], deadline: Deadline) -> None:
        """Store the addresses and the deadline."""
        self._found, self._deadline = addresses, deadline
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, local_address: str | None = None, socket_options: Any = None
    ) -> httpcore.NetworkStream:
        """Connect to the first address that accepts."""
        for number, address in enumerate(self._found, 1):
            # Each address but the last gets half of the rest: a dead address must not use up the time of a live
            # one.
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
    """A connection each of whose waits is limited by the rest of the deadline."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: Deadline) -> None:
        """Wrap a connection."""
        self._stream, self._deadline = stream, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read the next bytes."""
        return self._stream.read(max_bytes, self._deadline.left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write in small parts, because each part can block."""
        for begin in range(0, len(buffer), WRITE_BYTES):
            self._stream.write(buffer[begin : begin + WRITE_BYTES], self._deadline.left())

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """Start TLS."""
        return Bounded(self._stream.start_tls(ssl_context, server_hostname, self._deadline.left()), self._deadline)

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        """Return information about the connection."""
        return self._stream.get_extra_info(info)
