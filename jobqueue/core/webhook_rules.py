"""The rules for a webhook's URL, secret, events and receiver, and for its attempts, without a database or a network."""

from __future__ import annotations

import base64
import binascii
import hashlib
import importlib.util
import random
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any
from urllib.parse import SplitResult, urlsplit

from jobqueue.core import event_names as names
from jobqueue.core.sentences import sentence

# Webhooks about webhooks would cause more webhooks without end, and progress is too frequent.
EVENTS = names.SENDABLE
PACKAGES = ("httpx", "httpcore", "certifi", "standardwebhooks")
MAX_URL = 2000
MAX_HOST = 260

# Seconds between one attempt and the next: a short outage costs seconds, and a receiver that is down for a night
# loses no message.
DELAYS = (5, 30, 120, 600, 3600, 14400, 43200)
MAX_DELAY = 604_800
DELAYS_TEXT = "a list of numbers from 0 to 604800 (7 days), at least one"
JITTER = 0.25  # up to this part of the delay is added to it, so that a receiver that was down does not get all messages at the same time
MAX_RETRY_AFTER = 86400

OTHERS = "*"
SHORTEST_SECRET, MAX_SECRET = 24, 64
SECRETS_TEXT = (
    "'whsec_' and the base64 of 24 to 64 random bytes, a list of such texts (the first is the newest), a dict of queue names "
    '("*": all other queues) to these, or a callable of (queue, tenant, origin) that returns one of the first two, or its dotted path'
)
MAX_TIMEOUT = 60
TIMEOUT_TEXT = "a number above 0, at most 60"
HOSTS_TEXT = "a list of host names, names that begin with a dot (all hosts below), addresses or networks"
_LABELS = re.compile(r"\.?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*", re.IGNORECASE)

# The host and the port at the beginning of the text after "://".
_PLACE = re.compile(r"(?:\[[0-9a-fA-F:.]{2,45}\]|[^\[\]/?#;:@=\s]{1,255})(?::\d{1,5}(?!\d))?")
_SHOWN = re.compile(r"(?:https?://)?[^\s/?#@]+/… \[[0-9a-f]{8}\]")

Network = IPv4Network | IPv6Network


def url_problem(value: Any, *, https_only: bool = False) -> str:
    """Return why a value cannot be the URL of a receiver, as the end of a sentence; "" if it can."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_URL:
        return sentence("it must be text of 1 to %(most)s characters", most=str(MAX_URL))
    if any(not character.isprintable() or character.isspace() for character in value) or "\\" in value:
        return sentence("it must have no spaces, control characters or backslashes")
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        return sentence("it must be a URL with a valid host and port")
    return sentence("its port must be from 1 to 65535") if port == 0 else _parts_problem(parts, https_only=https_only)


def _parts_problem(parts: SplitResult, *, https_only: bool) -> str:
    if https_only and parts.scheme == "http":
        return sentence("it must begin with https://, since WEBHOOK_HTTPS_ONLY is set")
    if parts.scheme not in ("http", "https"):
        return sentence("it must begin with https:// or http://")
    if "@" in parts.netloc:
        return sentence("it must hold no user name or password; the signature identifies the sender")
    return "" if parts.hostname else sentence("it must name a host, as in https://example.com/hook")


def origin(url: str) -> str:
    """Return the receiver of a URL, that is, its scheme, host and port. If a text is not a URL, return the whole text."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.lower()
    return f"{parts.scheme}://{parts.netloc}".lower()


def host(url: str) -> str:
    """Return the host and the port of a URL for display, without credentials, path and query, which may hold secrets."""
    return origin(str(url)).partition("://")[2].rpartition("@")[2][:MAX_HOST]


def is_timeout(value: Any) -> bool:
    """Return whether a value can be the time limit of one attempt."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= MAX_TIMEOUT


def shown_url(url: str) -> str:
    """Return a URL for users who may not change it: its origin, and a short hash that distinguishes two URLs.

    Any other part of the URL may be secret: a part of the path, a parameter, the query, the fragment. For an
    empty URL, return an empty text; a text that this function has returned stays as it is.
    """
    if not url or _SHOWN.fullmatch(url):
        return url
    scheme, sign, after = url.partition("://")
    place = _PLACE.match(after.rpartition("@")[2] if sign else url)
    name = place[0] if place is not None and (sign or "@" not in url) else ""
    shown = f"{scheme}://{name}" if sign and name else name
    if name and url in (shown, f"{shown}/"):
        return url
    return f"{shown}/… [{hashlib.sha256(url.encode('utf-8', 'replace')).hexdigest()[:8]}]"


# Packages


def missing_packages() -> list[str]:
    """Return which of the packages that send webhooks are not installed."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


# Secrets


def is_secrets(value: Any) -> bool:
    """Return whether a value can be the secrets of webhooks."""
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and name and _is_secret_or_list(secret) for name, secret in value.items())
    return callable(value) or is_path(value) or _is_secret_or_list(value)


def is_path(value: Any) -> bool:
    """Return whether a value is the dotted path of a callable; base64 has no dots."""
    return isinstance(value, str) and "." in value and all(part.isidentifier() for part in value.split("."))


def secrets_of(value: Any, queue: str, tenant: str = "", receiver: str = "") -> tuple[str, ...]:
    """Return the secrets that sign messages to a receiver (its origin); empty if there are none.

    If the callable of the user's project raises an exception or returns a wrong value, the caller gets an error.
    Otherwise, a message could be sent unsigned, or signed for another receiver.
    """
    if callable(value):
        value = value(queue, tenant, receiver)
        if value is not None and not _is_secret_or_list(value):
            raise ValueError("WEBHOOK_SECRET returned a value that is not a secret, a list of secrets or None.")
    elif isinstance(value, Mapping):
        value = value.get(queue, value.get(OTHERS))
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


def _is_secret_or_list(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_is_secret, value))
    return _is_secret(value)


def _is_secret(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    text = value.removeprefix("whsec_")
    try:
        plain = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    return SHORTEST_SECRET <= len(plain) <= MAX_SECRET


# Receivers in internal networks that are allowed


def is_hosts(value: Any) -> bool:
    """Return whether a value lists hosts, addresses and networks."""
    return isinstance(value, list | tuple) and all(isinstance(host, str) and _is_host(host) for host in value)


def networks(hosts: tuple[str, ...]) -> list[Network]:
    """Return the addresses and networks among hosts."""
    return [network for host in hosts if (network := _network(host)) is not None]


def is_named(host: str, hosts: tuple[str, ...]) -> bool:
    """Return whether the name of a host is in a list of hosts."""
    host = host.lower().rstrip(".")
    names = [listed.lower() for listed in hosts if _network(listed) is None]
    return any(host.endswith(name) if name.startswith(".") else host == name for name in names)


def _is_host(text: str) -> bool:
    return _network(text) is not None or (len(text) <= 253 and _LABELS.fullmatch(text) is not None)


def _network(text: str) -> Network | None:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None


# Events of a queue


def event_problem(value: Any) -> str:
    """Return why a value cannot be a queue's list of events, as the end of a sentence; "" if it can."""
    if not isinstance(value, list | tuple):
        return f"it must be a list of {', '.join(EVENTS)}"
    unknown = [event for event in value if event not in EVENTS]
    return f"{str(unknown[0])[:80]!r} is not an event; events are {', '.join(EVENTS)}" if unknown else ""


# Times


def is_delays(value: Any) -> bool:
    """Return whether a value lists the seconds between attempts."""
    return isinstance(value, list | tuple) and bool(value) and all(_is_delay(delay) for delay in value)


def _is_delay(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_DELAY


def delay_seconds(delays: Sequence[float], attempts: int, retry_after: float | None = None) -> float:
    """Return the delay after this number of attempts. It is not shorter than the receiver has requested, up to a day."""
    base: float = delays[min(max(attempts, 1), len(delays)) - 1]
    if retry_after is not None:
        base = max(base, min(retry_after, MAX_RETRY_AFTER))
    return base * random.uniform(1.0, 1.0 + JITTER)  # noqa: S311


def retry_after_seconds(text: str | None, now: datetime | None = None) -> float | None:
    """Return the seconds of a ``Retry-After`` header, which holds a number or a date; None if it holds neither."""
    if not text or len(text) > 100:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max((when - (now or datetime.now(UTC))).total_seconds(), 0.0)
