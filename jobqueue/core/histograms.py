"""Histograms of durations with fixed logarithmic buckets, so that they add up over queues and over time.

A histogram is a list of numbers: that at position N counts the durations from ``BOUNDS[N - 1]`` to ``BOUNDS[N]``. The
first bucket begins at 0, the last one has no end. Zeros at the end of the list are left out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import zip_longest

# From 1 ms to 37 hours. Each bound is 1.41 times the one before, so an estimated quantile is within 20 % of the exact one.
BOUNDS = tuple(0.001 * 2 ** (step / 2) for step in range(55))
MAX_SECONDS = 365 * 86400.0  # a longer duration comes from a wrong clock or a bad row, and is not counted


def bucket(seconds: float) -> int:
    """Return the position of a duration."""
    return bisect_right(BOUNDS, seconds)


def of(durations: Iterable[float]) -> list[int]:
    """Return the histogram of some durations."""
    counts: list[int] = []
    for seconds in durations:
        increase(counts, bucket(seconds), 1)
    return counts


def increase(counts: list[int], position: int, number: int) -> None:
    """Count more durations in one bucket, in place."""
    counts.extend([0] * (position + 1 - len(counts)))
    counts[position] += number


def add(counts: list[int], more: Sequence[int]) -> None:
    """Add a histogram to another one, in place."""
    counts.extend([0] * (len(more) - len(counts)))
    for position, number in enumerate(more):
        counts[position] += number


def total(texts: Iterable[object]) -> list[int]:
    """Return the sum of many histograms that are given as texts, as `add` of each would, but faster."""
    return [sum(counts) for counts in zip_longest(*map(from_text, texts), fillvalue=0)]


def quantile(counts: Sequence[int], share: float) -> float | None:
    """Return the estimated duration in seconds that a share of the durations does not exceed; None if there is no duration.

    The true value is in the same bucket. The last bucket has no end, so its beginning is returned for it.
    """
    total = sum(counts)
    if not total:
        return None
    rank, below = share * total, 0
    for position, number in enumerate(counts):
        if number and below + number >= rank:
            return _inside(position, (rank - below) / number)
        below += number
    raise AssertionError("The sum of the counts is at least the rank.")


def _inside(position: int, share: float) -> float:
    if position == 0:
        return BOUNDS[0] * share
    low = BOUNDS[position - 1]
    return low if position >= len(BOUNDS) else float(low * (BOUNDS[position] / low) ** share)


def to_text(counts: Sequence[int]) -> str:
    """Return a histogram as text, for the database."""
    return ",".join(map(str, counts))


def from_text(text: object) -> list[int]:
    """Return the histogram of a text; an empty one if the text is not a histogram."""
    try:
        counts = [*map(int, str(text).split(","))] if text else []
    except ValueError:
        return []
    return counts if len(counts) <= len(BOUNDS) + 1 and min(counts, default=0) >= 0 else []
