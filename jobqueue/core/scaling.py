"""How many slots a queue needs, from its load in each of the last minutes: the autoscaling signal.

The slots that a minute needs are

    arrivals per second * mean run seconds  +  queued jobs * mean run seconds / (target seconds - REACTION_SECONDS)

The first part keeps up with what comes, the second one works off what waits within the target. The arrivals are those of
the ten minutes before; if these are few or runs are long, those of the hour before. The signal is the highest need of the
last ten minutes and a fifth, rounded up to the next step. So it rises at once, falls after ten quiet minutes, and noise
that is smaller than a step does not change it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from jobqueue.core.loads import Load

MINUTES = 70  # the minutes that the signal depends on
HELD_MINUTES = 10
MAX_WINDOW = MINUTES - HELD_MINUTES
REACTION_SECONDS = 30.0  # from a burst to the sample that shows it, and to the next query of the signal
HEADROOM = 1.2
STEP = 1.4  # the ratio of two steps, at least
FEW = 100  # arrivals; their number varies by a tenth even if the load is steady
MIN_TARGET, DEFAULT_TARGET, MAX_TARGET = 60, 300, 86400


def slots_wanted(minutes: Sequence[Load], target_seconds: float) -> int:
    """Return the number of slots that a queue needs, from its loads in the last `MINUTES` minutes, the oldest first.

    A backlog is gone within `target_seconds` after it came if the slots exist soon after the signal rises. While no run
    has ended, each job that waits or runs needs a slot.
    """
    # Each need depends on the minutes before it only. So a need that was the highest stays the highest for ten minutes.
    ends = range(max(len(minutes) - HELD_MINUTES, 0) + 1, len(minutes) + 1)
    return step(HEADROOM * max((_need(minutes[max(end - MAX_WINDOW, 0) : end], target_seconds) for end in ends), default=0.0))


def _need(minutes: Sequence[Load], target_seconds: float) -> float:
    now, newest = minutes[-1], minutes[-HELD_MINUTES:]
    seconds = mean_run_seconds(minutes)
    if seconds is None:
        return now.queued + now.running
    is_rare = sum(load.enqueued for load in newest) < FEW or seconds > 60 * HELD_MINUTES
    window = minutes if is_rare else newest
    arrivals = sum(load.enqueued for load in window) / (60 * len(window))
    left = max(target_seconds - REACTION_SECONDS, REACTION_SECONDS)
    return arrivals * seconds + now.queued * min(seconds / left, 1.0)


def mean_run_seconds(loads: Iterable[Load]) -> float | None:
    """Return the mean duration of the runs of some spans, None if there is none."""
    found = [*loads]
    runs = sum(sum(load.runs) for load in found)
    return sum(load.run_seconds for load in found) / runs if runs else None


def step(slots: float) -> int:
    """Return a number of slots, rounded up to the next step."""
    found = 1 if slots > 0 else 0
    while found < slots:
        found = math.ceil(found * STEP)
    return found
