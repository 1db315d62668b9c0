"""The time for which ended jobs are kept: the settings of retention, checked and read into one table.

A time is a number of seconds, a timedelta, or None (never). A time applies to all outcomes or to one, and a queue
can override it. If a setting has no value, the times of `USUAL` apply. An empty dict means never.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from jobqueue.core.states import ENDED

OUTCOMES = tuple(status.value for status in ENDED)
MAX_SECONDS = 3_155_760_000
TIMES_TEXT = (
    f"a number of seconds from 0 to {MAX_SECONDS} (100 years), a timedelta, or a dict of these by outcome"
    ' ("SUCCESS", "ERROR", "CANCELED") in which None means never'
)
NEVER = "never"
TIME_TEXT = f'a number of seconds from 0 to {MAX_SECONDS} (100 years), a timedelta, or "{NEVER}"'
QUEUES_TEXT = 'a dict of queue names to dicts with "STALE_AFTER", "DELETE_AFTER" or both, each as the setting of that name'
DAY_SECONDS = 24 * 3600.0
USUAL: dict[str, dict[str, float]] = {
    "STALE_AFTER": {"SUCCESS": 7 * DAY_SECONDS, "CANCELED": 7 * DAY_SECONDS, "ERROR": 30 * DAY_SECONDS},
    "DELETE_AFTER": {"SUCCESS": 30 * DAY_SECONDS, "CANCELED": 30 * DAY_SECONDS, "ERROR": 90 * DAY_SECONDS},
}
NAMES = tuple(USUAL)
Times = Mapping[str, float | None]


def is_time(value: Any) -> bool:
    """Return whether a value is one time: seconds, a timedelta, or None."""
    if value is None:
        return True
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return is_number and math.isfinite(seconds) and 0 <= seconds <= MAX_SECONDS


def is_time_or_never(value: Any) -> bool:
    """Return whether a value is one time, or the word for never."""
    return value == NEVER or (value is not None and is_time(value))


def is_times(value: Any) -> bool:
    """Return whether a value is a time for all outcomes, or a dict of times for some of them."""
    if isinstance(value, Mapping):
        return all(name in OUTCOMES and is_time(time) for name, time in value.items())
    return is_time(value)


def is_by_queue(value: Any) -> bool:
    """Return whether a value maps queues to times."""
    return isinstance(value, Mapping) and all(
        isinstance(queue, str)
        and queue
        and isinstance(by_name, Mapping)
        and all(name in NAMES and is_times(times) for name, times in by_name.items())
        for queue, by_name in value.items()
    )


@dataclass(frozen=True, slots=True)
class Rules:
    """The seconds after which one thing is done to an ended job, by its queue and outcome; None means never."""

    general: Times = field(default_factory=dict)
    queues: Mapping[str, Times] = field(default_factory=dict)

    def seconds(self, queue: str, outcome: str) -> float | None:
        """Return the seconds for a queue and an outcome. If the queue has no time, the time for all queues applies."""
        own = self.queues.get(queue)
        return own[outcome] if own is not None and outcome in own else self.general.get(outcome)

    def ages(self) -> list[float]:
        """Return all the times in the rules, each once, the shortest first."""
        times = [*self.general.values(), *(time for by_outcome in self.queues.values() for time in by_outcome.values())]
        return sorted({time for time in times if time is not None})

    def only(self, outcomes: Collection[str], queues: Collection[str]) -> Rules:
        """Return only the rules for these outcomes and queues. An empty collection means all."""

        def wanted(queue: str) -> dict[str, float | None]:
            return {outcome: self.seconds(queue, outcome) for outcome in OUTCOMES if not outcomes or outcome in outcomes}

        if queues:
            return Rules({}, {queue: wanted(queue) for queue in queues})
        nothing = {outcome: None for outcome in OUTCOMES if outcomes and outcome not in outcomes}
        general = {outcome: time for outcome, time in self.general.items() if outcome not in nothing}
        return Rules(general, {queue: {**nothing, **wanted(queue)} for queue in self.queues})

    def __bool__(self) -> bool:
        """Return whether the rules have any time."""
        return bool(self.ages())


def rules(name: str, general: Any, by_queue: Mapping[str, Mapping[str, Any]] | None) -> Rules:
    """Return the rules of the setting `name` from its value and the values for individual queues. The caller has checked all of them."""
    of_queues = {queue: _times(by_name[name]) for queue, by_name in (by_queue or {}).items() if name in by_name}
    return Rules(_times(USUAL[name] if general is None else general), of_queues)


def after(outcomes: Iterable[str], seconds: float) -> Rules:
    """Return rules with one time for these outcomes, in every queue."""
    return Rules(dict.fromkeys(outcomes, seconds))


def seconds_or_never(value: Any) -> float | None:
    """Return a time in seconds, None for never. The caller has checked the value."""
    return None if value == NEVER else _seconds(value)


def _times(value: Any) -> Times:
    if isinstance(value, Mapping):
        return {str(name): _seconds(time) for name, time in value.items()}
    return dict.fromkeys(OUTCOMES, _seconds(value))


def _seconds(value: Any) -> float | None:
    if value is None:
        return None
    return value.total_seconds() if isinstance(value, timedelta) else float(value)
