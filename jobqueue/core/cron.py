"""The times of a schedule: nominal times from a cron expression in a time zone, or from an interval. No clock and no database is used.

The rules for changes of the clock (daylight saving time):

- If the hour is a wildcard (``*`` or ``*/2``), an expression follows elapsed time. It is due at every instant whose local time
  matches. ``0 * * * *`` has 25 times on the long day and 23 on the short one.
- Any other expression means local times of the day. A time that occurs twice is due once, when it occurs first. A time that does not
  exist is due at the end of the gap; several that fall into one gap are due there once.
- An interval counts from 1970 in UTC and has no time zone: 3600 s means every full hour.

cronsim parses the expression and finds the local times. This module converts them to UTC.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import metadata
from importlib.metadata import PackageNotFoundError
from itertools import islice, takewhile
from pathlib import Path
from typing import Final
from zoneinfo import TZPATH, ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from jobqueue.core.sentences import joined, sentence
from jobqueue.core.texts import safe_repr
from jobqueue.exceptions import InvalidOption

MAX_CRON: Final = 200
MAX_ZONE: Final = 100
MAX_INTERVAL: Final = 366 * 24 * 3600
ON_TIME_SECONDS: Final = 60
MISSED: Final = ("skip", "once", "all")
MAX_MISSED: Final = 1000
SECOND, DAY = timedelta(seconds=1), timedelta(days=1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EXAMPLE: Final = sentence("For example, '0 3 * * *' is every night at three: minute, hour, day of the month, month, day of the week.")


@dataclass(frozen=True, slots=True)
class Timing:
    """A cron expression with its time zone, or an interval; exactly one of the two."""

    cron: str = ""
    interval_seconds: int | None = None
    time_zone: str = "UTC"

    def text(self, rules: str) -> str:
        """Return the timing and the version of the time zone rules as one text, in the form of `ScheduleQuerySet.planned_otherwise`."""
        return f"{self.cron}|{'' if self.interval_seconds is None else self.interval_seconds}|{self.time_zone}|{rules}"

    def check(self, now: datetime) -> None:
        """Reject a timing that can never be due after `now`; the error names the value, the rule and the fix."""
        if bool(self.cron) == (self.interval_seconds is not None):
            text = (
                sentence("A schedule has either cron or an interval, but both are given.")
                if self.cron
                else sentence("A schedule has either cron or an interval, but none is given.")
            )
            raise InvalidOption(joined(text, EXAMPLE))
        zone_of(self.time_zone)
        self.after(now)

    def after(self, moment: datetime) -> datetime:
        """Return the first nominal time after a moment, in UTC."""
        return next(self.times(moment))

    def times(self, moment: datetime) -> Iterator[datetime]:
        """Yield the nominal times after a moment, in UTC, without end."""
        moment = moment.astimezone(UTC)
        if self.interval_seconds is not None:
            yield from self._intervals(moment)
        zone = zone_of(self.time_zone)
        walls = _elapsed if "*" in _hours(self.cron) else _fixed
        while True:
            moment = walls(self.cron, zone, moment)
            yield moment

    def _intervals(self, moment: datetime) -> Iterator[datetime]:
        check_interval(self.interval_seconds)
        step = timedelta(seconds=self.interval_seconds or 1)
        moment = EPOCH + ((moment - EPOCH) // step + 1) * step
        while True:
            yield moment
            moment += step


def check_interval(seconds: object) -> None:
    """Reject anything but whole seconds within the bounds."""
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 1 <= seconds <= MAX_INTERVAL:
        raise InvalidOption(
            sentence(
                "The interval is %(value)s; it must be a whole number of seconds from 1 to %(most)s (366 days), or a timedelta in that "
                "range.",
                value=safe_repr(seconds),
                most=str(MAX_INTERVAL),
            )
        )


def zone_of(name: str) -> ZoneInfo:
    """Return a time zone by its name."""
    try:
        if 0 < len(name) <= MAX_ZONE:
            return ZoneInfo(name)
    except Exception:  # noqa: BLE001, S110 - KeyError, ValueError, or OSError if the name is that of a folder
        pass
    near = difflib.get_close_matches(str(name)[:MAX_ZONE], available_timezones(), 1)
    shown = safe_repr(name)
    if near:
        raise InvalidOption(sentence("The time zone %(name)s is not known here: did you mean %(near)s?", name=shown, near=repr(near[0])))
    raise InvalidOption(
        sentence("The time zone %(name)s is not known here: it must be a name such as 'Europe/Berlin' or 'UTC'.", name=shown)
    )


@functools.cache
def rules_version() -> str:
    """Return the version of the time zone rules that this process reads, such as "2025b"; "" if none is named."""
    for folder in TZPATH:
        with contextlib.suppress(OSError, UnicodeDecodeError), open(Path(folder) / "tzdata.zi", encoding="ascii") as lines:
            word, _, version = lines.readline().strip().rpartition(" ")
            if word == "# version":
                return version[:20]
    with contextlib.suppress(PackageNotFoundError):
        return metadata.version("tzdata")[:20]
    return ""


def due(timing: Timing, next_at: datetime, now: datetime, missed: str, most: int) -> list[datetime]:
    """Return the nominal times from `next_at` to `now` that get a job, the oldest first.

    If the oldest is at most a minute old, these are all. Otherwise there was a downtime, and `missed` decides: "once"
    returns only the newest, "skip" the newest if it is at most a minute old, "all" the newest `most`. This takes
    about `most` steps, however long the downtime was.
    """
    before = next_at - SECOND
    if (now - next_at).total_seconds() <= ON_TIME_SECONDS:
        return _between(timing, before, now, ON_TIME_SECONDS + 1)
    if missed == "skip":
        before = max(before, now - timedelta(seconds=ON_TIME_SECONDS, microseconds=1))
    return _newest(timing, before, now, most if missed == "all" else 1)


def _between(timing: Timing, before: datetime, now: datetime, most: int) -> list[datetime]:
    return list(takewhile(lambda moment: moment <= now, islice(timing.times(before), most)))


def _newest(timing: Timing, before: datetime, now: datetime, number: int) -> list[datetime]:
    """Return the newest times up to `now`, by bisection: a loop over all missed times could take very long."""
    times = _between(timing, before, now, number + 1)
    if len(times) <= number:
        return times
    low, high = before, now  # there are more than `number` times after `low`, and none after `high`
    while high - low > SECOND:
        middle = low + (high - low) / 2
        times = _between(timing, middle, now, number + 1)
        if len(times) == number:
            return times
        low, high = (middle, high) if len(times) > number else (low, middle)
    return _between(timing, low, now, number + 1)[-number:]


# Local times


def _walls(cron: str, wall: datetime) -> Iterator[datetime]:
    """Yield the matching local times after a local time, without a time zone."""
    try:
        if len(cron) > MAX_CRON:
            raise CronSimError(f"longer than {MAX_CRON} characters")
        if len(cron.split()) != 5:  # a sixth field would be seconds, for which there are intervals
            raise CronSimError("Wrong number of fields")
        iterator = CronSim(cron, wall)
    except Exception as error:
        text = sentence("The cron expression %(cron)s cannot be read: %(error)s.", cron=safe_repr(cron), error=str(error))
        raise InvalidOption(joined(text, EXAMPLE)) from error
    yield from iterator
    text = sentence("The cron expression %(cron)s is not due within 50 years: no such day exists.", cron=safe_repr(cron))
    raise InvalidOption(joined(text, EXAMPLE))


def _hours(cron: str) -> str:
    return [*cron.split(), "", ""][1]


def _offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta()


def _naive(moment: datetime) -> datetime:
    return moment.replace(tzinfo=None)


def _fixed(cron: str, zone: ZoneInfo, moment: datetime) -> datetime:
    """Return the first instant after a moment, if each local time counts once."""
    for wall in _walls(cron, _naive(moment.astimezone(zone))):
        instant = _first(zone, wall)
        if instant > moment:  # a time that is repeated was due when it occurred first
            return instant
    raise AssertionError("unreachable")


def _first(zone: ZoneInfo, wall: datetime) -> datetime:
    """Return when a local time occurs first; for a time that does not exist, the end of the gap."""
    later = wall.replace(tzinfo=zone).astimezone(UTC)
    if _naive(later.astimezone(zone)) == wall:
        return later
    earlier = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return _change(zone, earlier, later)


def _elapsed(cron: str, zone: ZoneInfo, moment: datetime) -> datetime:
    """Return the first instant after a moment whose local time matches."""
    offset = _offset(zone, moment)
    while True:
        match = next(_walls(cron, _naive(moment + offset))).replace(tzinfo=UTC) - offset
        seen = min(match, moment + DAY)
        if _offset(zone, seen) != offset:  # the clock changes before that: continue from there, with the new offset
            moment = _change(zone, moment, seen) - SECOND
            offset = _offset(zone, moment + SECOND)
        elif seen == match:
            return match
        else:  # nothing matches for more than a day: continue shortly before the next match
            moment = max(seen, match - 2 * DAY)
            offset = _offset(zone, moment)


def _change(zone: ZoneInfo, low: datetime, high: datetime) -> datetime:
    """Return the instant between two at which the offset becomes that of the later one."""
    after = _offset(zone, high)
    while high - low > SECOND:
        middle = low + timedelta(seconds=(high - low) // SECOND // 2)
        low, high = (low, middle) if _offset(zone, middle) == after else (middle, high)
    return high.replace(microsecond=0)
