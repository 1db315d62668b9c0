"""Say durations, times, texts and values as a person reads them; secrets hidden, what is too long shortened with a mark."""

from __future__ import annotations

import json
from datetime import datetime

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobqueue.core.capping import SHOWN_BYTES, capped
from jobqueue.core.masking import PLAIN, Mask

NOTHING = format_html('<span class="jq-none">{}</span>', "\N{EN DASH}")
LONGEST = 20_000
MAX_MASKED = SHOWN_BYTES
MINUTE, HOUR, DAY = 60, 3600, 86400


def duration(seconds: float) -> str:
    """Return a length of time in at most two units, such as "0.21 s" or "2 h 05 min"."""
    seconds = max(seconds, 0.0)
    if seconds < 10:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} min {whole % MINUTE:02} s"
    if whole < DAY:
        return f"{whole // HOUR} h {whole % HOUR // MINUTE:02} min"
    return f"{whole // DAY} d {whole % DAY // HOUR} h"


def between(begin: datetime, end: datetime) -> str:
    """Return the time from one moment to another."""
    return duration((end - begin).total_seconds())


def moment(when: datetime, now: datetime | None = None) -> SafeString:
    """Return a moment in the project's time zone, and how far it lies from `now`."""
    local = timezone.localtime(when)
    shown = format_html('<time datetime="{}">{}</time>', when.isoformat(), f"{local:%Y-%m-%d %H:%M:%S} {local.tzname() or ''}".strip())
    if now is None:
        return shown
    distance = f"in {between(now, when)}" if when > now else f"{between(when, now)} ago"
    return format_html('{} <span class="jq-quiet">{}</span>', shown, distance)


def ago(when: datetime, now: datetime) -> SafeString:
    """Return how long ago a moment was; the moment itself is shown to who points at it."""
    local = timezone.localtime(when)
    title = f"{local:%Y-%m-%d %H:%M:%S} {local.tzname() or ''}".strip()
    return format_html('<time datetime="{}" title="{}">{} ago</time>', when.isoformat(), title, between(when, now))


def parsed(value: object) -> datetime | None:
    """Return the moment that an ISO text names, None where it names none."""
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


def excerpt(text: str, longest: int = LONGEST) -> str:
    """Return the text; of one that is too long the beginning and the end, with a mark between them."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n… [{len(text) - 2 * half:,} of {len(text):,} characters left out] …\n{text[-half:]}"


def prose(value: object, longest: int = LONGEST, mask: Mask = PLAIN) -> str:
    """Return a text with its secrets hidden, shortened where it is too long."""
    text = value if isinstance(value, str) else as_json(value)
    # Masked before it is shortened, or half a secret would stand alone behind the cut. Of an absurd length only the beginning counts.
    if len(text) > MAX_MASKED:
        shown = mask(text[: MAX_MASKED + mask.overlap])[:MAX_MASKED]
        return excerpt(f"{shown}\n… [the rest of {len(text):,} characters left out]", longest)
    return excerpt(mask(text), longest)


def masked_json(value: object, mask: Mask = PLAIN) -> str:
    """Return a JSON value, indented, its secrets hidden."""
    return as_json(mask.value(capped(value, mask=mask)))


def as_json(value: object) -> str:
    """Return a value that holds no secret (any more) as indented JSON, shortened where it is too long."""
    return excerpt(json.dumps(value, indent=2, ensure_ascii=False, default=str))
