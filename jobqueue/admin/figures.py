"""Numbers of charts and tables as texts, in the user's locale."""

from __future__ import annotations

import math
from collections.abc import Sequence

from django.utils.formats import number_format
from django.utils.translation import gettext as _

from jobqueue.admin.formatting import NOTHING, duration
from jobqueue.core import histograms


def number(value: float, digits: int = 0) -> str:
    """Return a number with the separators of the locale."""
    return number_format(value, decimal_pos=digits, use_l10n=True, force_grouping=True)


def count(value: int, *, more: bool = False) -> str:
    """Return a count, with a plus sign if there are more than were counted."""
    return f"{number(value)}{'+' if more else ''}"


def rate(value: float) -> str:
    """Return a number per second, as short as it stays useful."""
    if value < 0.01:
        return f"< {number(0.01, 2)}" if value > 0 else "0"
    return number(value, 2 if value < 1 else 1 if value < 100 else 0)


def plain(value: float) -> str:
    """Return a number without needless digits, as for the end of an axis."""
    return number(value, max(-math.floor(math.log10(value)), 0) if 0 < value < 1 else 0)


def percent(share: float) -> str:
    """Return a share of 1 as a percentage."""
    value = 100 * share
    if 0 < value < 0.1:
        return f"< {number(0.1, 1)} %"
    return f"{number(value, 0 if value in (0.0, 100.0) or value >= 10 else 1)} %"


def quantile(counts: Sequence[int], share: float) -> str:
    """Return a quantile of durations."""
    seconds = histograms.quantile(counts, share)
    return NOTHING if seconds is None else duration(seconds)


def longest(counts: Sequence[int]) -> str:
    """Return the upper bound of the longest duration."""
    last = max((position for position, number in enumerate(counts) if number), default=None)
    if last is None:
        return NOTHING
    if last >= len(histograms.BOUNDS):
        return _("over %(duration)s") % {"duration": duration(histograms.BOUNDS[-1])}
    return f"≤ {duration(histograms.BOUNDS[last])}"
