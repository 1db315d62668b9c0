"""Format durations, times, texts and values for people; secrets are masked, and long texts are shortened with a mark."""

from __future__ import annotations

import json
from datetime import datetime

from django.utils import timezone
from django.utils.formats import number_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from jobqueue.core.capping import SHOWN_BYTES, capped
from jobqueue.core.masking import PLAIN, Mask

NOTHING = format_html('<span class="jq-none">{}</span>', "\N{EN DASH}")
LONGEST = 20_000
MAX_MASKED = SHOWN_BYTES
MINUTE, HOUR, DAY = 60, 3600, 86400


def duration(seconds: float) -> str:
    """Return a duration in at most two units, such as "0.21 s" or "2 h 05 min"."""
    seconds = max(seconds, 0.0)
    if seconds < 10:
        return _("%(number)s s") % {"number": number_format(seconds, 2 if seconds < 1 else 1)}
    whole = int(seconds)
    if whole < MINUTE:
        return _("%(number)s s") % {"number": whole}
    if whole < HOUR:
        return _("%(minutes)s min %(seconds)s s") % {"minutes": whole // MINUTE, "seconds": f"{whole % MINUTE:02}"}
    if whole < DAY:
        return _("%(hours)s h %(minutes)s min") % {"hours": whole // HOUR, "minutes": f"{whole % HOUR // MINUTE:02}"}
    return _("%(days)s d %(hours)s h") % {"days": whole // DAY, "hours": whole % DAY // HOUR}


def between(begin: datetime, end: datetime) -> str:
    """Return the duration from one time to another."""
    return duration((end - begin).total_seconds())


def moment(when: datetime, now: datetime | None = None) -> SafeString:
    """Return a time in the project's time zone, and its distance from `now`."""
    local = timezone.localtime(when)
    shown = format_html('<time datetime="{}">{}</time>', when.isoformat(), f"{local:%Y-%m-%d %H:%M:%S} {local.tzname() or ''}".strip())
    if now is None:
        return shown
    span = {"duration": between(*sorted((when, now)))}
    distance = _("in %(duration)s") % span if when > now else _("%(duration)s ago") % span
    return format_html('{} <span class="jq-quiet">{}</span>', shown, distance)


def ago(when: datetime, now: datetime) -> SafeString:
    """Return how long ago a time was; its tooltip shows the time itself."""
    local = timezone.localtime(when)
    title = f"{local:%Y-%m-%d %H:%M:%S} {local.tzname() or ''}".strip()
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', when.isoformat(), title, _("%(duration)s ago") % {"duration": between(when, now)}
    )


def parsed(value: object) -> datetime | None:
    """Return the time in an ISO text, None if it has none."""
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


def excerpt(text: str, longest: int = LONGEST) -> str:
    """Return the text; if it is too long, its beginning and its end, with a mark between them."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n… [{len(text) - 2 * half:,} of {len(text):,} characters left out] …\n{text[-half:]}"


def prose(value: object, longest: int = LONGEST, mask: Mask = PLAIN) -> str:
    """Return a text with masked secrets, shortened if it is too long."""
    text = value if isinstance(value, str) else as_json(value)
    # It is masked before it is shortened, otherwise half a secret could remain at the cut. Of a huge text only the
    # beginning is masked and shown.
    if len(text) > MAX_MASKED:
        shown = mask(text[: MAX_MASKED + mask.overlap])[:MAX_MASKED]
        return excerpt(f"{shown}\n… [the rest of {len(text):,} characters left out]", longest)
    return excerpt(mask(text), longest)


def masked_json(value: object, mask: Mask = PLAIN) -> str:
    """Return a JSON value, indented, with masked secrets."""
    return as_json(mask.value(capped(value, mask=mask)))


def as_json(value: object) -> str:
    """Return a value without secrets as indented JSON, shortened if it is too long."""
    return excerpt(json.dumps(value, indent=2, ensure_ascii=False, default=str))
