"""The load of all queues or tasks over a range of time, for charts: one statement, however long the range.

The samples of a long range come from the longest spans. Only its end comes from shorter ones, because a longer span is
summed when it has ended. Like all samples, these count the jobs of all tenants (`samples.may_see`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from django.db.models import BigIntegerField, F, Max, Q, Sum
from django.db.models.functions import Cast

from jobqueue.core import histograms
from jobqueue.core.loads import COARSER, FINEST, GAUGES, HISTOGRAMS, RINGS, SUMS, Load, Ring
from jobqueue.db import loads as loads_sql
from jobqueue.insight import samples
from jobqueue.models import Job

NOW_SECONDS: Final = 300  # the last minutes, from which the present rates come
POINTS: Final = {"1h": 30, "24h": 900, "14d": 10_800}  # the seconds of a point of a chart
MINUTE, QUARTER = COARSER
UNSUMMED_SECONDS: Final = 180  # within which the sum of a span is written after its end
STEADY_SHARE, STEADY_JOBS = 0.02, 2.0  # the change of a depth in the last minutes that is noise


@dataclass(slots=True)
class History:
    """The load of one queue or task: a load for each point of the range, the whole range, and the last minutes."""

    name: str
    points: Sequence[Load] = ()  # empty if only the total was read
    recent: list[Load] = field(default_factory=list)  # spans of 10 s, the oldest first
    total: Load = field(default_factory=Load)  # its histograms are empty until `add_histograms` has read them

    @property
    def now(self) -> Load:
        """The load of the last minutes."""
        return _in_order(self.recent)

    @property
    def growth_per_second(self) -> float:
        """The change of the number of queued jobs per second in the last minutes; 0 if it is noise."""
        if len(self.recent) < 6:
            return 0.0
        first, last = (sum(load.queued for load in loads) / 3 for loads in (self.recent[:3], self.recent[-3:]))
        if abs(last - first) <= max(STEADY_JOBS, STEADY_SHARE * first):
            return 0.0
        return (last - first) / ((len(self.recent) - 3) * FINEST.seconds)


@dataclass(frozen=True)
class Histories:
    """The loads of all queues or tasks. The points are `step` seconds long, from `begins` on, in seconds since 1970.

    The samples end at `end`, so the last point can be shorter.
    """

    kind: str
    begins: int
    end: int
    step: int
    number: int
    by_name: dict[str, History]

    def seconds(self, point: int) -> int:
        """Return the length of a point."""
        return min(self.step, self.end - self.begins - point * self.step)

    def rates(self, values: Iterable[float]) -> list[float]:
        """Return numbers of the points as numbers per second."""
        return [value / self.seconds(point) for point, value in enumerate(values)]

    @cached_property
    def points(self) -> list[Load]:
        """The loads of all of them together at each point."""
        return _together([history.points for history in self.by_name.values()], self.number)

    @cached_property
    def recent(self) -> list[Load]:
        """The loads of all of them together in the last minutes."""
        return _together([history.recent for history in self.by_name.values()], NOW_SECONDS // FINEST.seconds)

    @cached_property
    def total(self) -> Load:
        """The load of all of them together over the range."""
        found = Load()
        for history in self.by_name.values():
            found.join(history.total)
        return found


def histories(kind: str, period: str, name: str | None = None) -> Histories:
    """Return the loads of all queues or tasks (`kind`), or of one, over the last hour, day or fortnight (`period`, one of `RINGS`)."""
    frame = _frame(kind, period)
    rows = _rows(frame, period, name)
    found: dict[str, dict[int, Load]] = {}
    grouped = rows.annotate(point=(F("begins") - frame.begins) / frame.step).values("name", "point").annotate(**_AGGREGATES)
    for row in loads_sql.raw_rows(Job.objects.database, grouped.values_list("name", "point", *_AGGREGATES), hashed=True):
        found.setdefault(row[0], {})[row[1]] = _load(row[2:])
    for queue, loads in found.items():
        points = [loads.get(point, NONE) for point in range(frame.number)]
        frame.by_name[queue] = History(queue, points, total=_in_order(loads.values()))
    _add_recent(frame)
    return frame


def totals(kind: str, period: str) -> Histories:
    """Return the loads of all queues or tasks over a range without its points, which costs less."""
    frame = _frame(kind, period)
    grouped = _rows(frame, period, None, is_summed=True).values("name").annotate(**_AGGREGATES)
    for name, *values in loads_sql.raw_rows(Job.objects.database, grouped.values_list("name", *_AGGREGATES)):
        frame.by_name[name] = History(name, total=_load(values))
    _add_recent(frame)
    return frame


def add_histograms(
    kind: str, period: str, loads: Collection[History], columns: Sequence[str] = HISTOGRAMS, *, end: int | None = None
) -> None:
    """Read the histograms of the range up to `end` (or some of `HISTOGRAMS`) for some queues or tasks, into their totals."""
    if not loads:
        return
    end = _end() if end is None else end
    texts: dict[str, list[tuple[str, ...]]] = {history.name: [] for history in loads}
    spans = _spans(period, end - RINGS[period].kept, end, is_summed=True)
    rows = samples.stored().filter(spans, kind=kind, name__in=[*texts])
    for name, *found in loads_sql.raw_rows(Job.objects.database, rows.order_by().values_list("name", *columns)):
        texts[name].append(tuple(found))
    for history in loads:
        for column, values in zip(columns, zip(*texts[history.name], strict=True), strict=False):
            setattr(history.total, column, histograms.total(values))


GAUGES_AND_SUMS: Final = (*GAUGES, *SUMS)
_AGGREGATES: Final = {
    # PostgreSQL returns the sum of a bigint as a decimal number.
    f"of_{name}": Max(name) if name in GAUGES else Sum(name) if name.endswith("_seconds") else Cast(Sum(name), BigIntegerField())
    for name in GAUGES_AND_SUMS
}
NONE: Final = Load()  # of a point in which nothing happened; never changed


def _frame(kind: str, period: str) -> Histories:
    step, end = POINTS[period], _end()
    number = RINGS[period].kept // step
    last = -(-end // step) * step  # the last point may not have ended
    return Histories(kind, last - number * step, end, step, number, {})


def _rows(frame: Histories, period: str, name: str | None, *, is_summed: bool = False) -> Any:
    rows = samples.stored().filter(_spans(period, frame.begins, frame.end, is_summed=is_summed), kind=frame.kind)
    return rows if name is None else rows.filter(name=name)


def _load(values: Sequence[Any]) -> Load:
    """Return a load from the values of `GAUGES_AND_SUMS`."""
    # SQLite stores any value in any column.
    if Job.objects.database.is_sqlite and any(not isinstance(value, int | float) for value in values):
        return Load.of_row({**dict(zip(GAUGES_AND_SUMS, values, strict=True)), **dict.fromkeys(HISTOGRAMS, "")})
    return Load(*values)


def _end() -> int:
    """Return the end of the last span that must have a sample."""
    return int((samples.now() - samples.LAG_SECONDS) // FINEST.seconds) * FINEST.seconds


def _spans(period: str, begins: int, end: int, *, is_summed: bool = False) -> Q:
    """Return the condition for the samples from a time on, each time once, from the longest spans that are surely summed.

    The points of an hour are shorter than a minute, unless only the sum is needed (`is_summed`).
    """
    minutes_end = (end - UNSUMMED_SECONDS) // MINUTE.seconds * MINUTE.seconds
    quarters_end = (end - UNSUMMED_SECONDS) // QUARTER.seconds * QUARTER.seconds
    if period != "1h":
        return _of(QUARTER, begins, quarters_end) | _of(MINUTE, quarters_end, minutes_end) | _of(FINEST, minutes_end, end)
    return _of(MINUTE, begins, minutes_end) | _of(FINEST, minutes_end, end) if is_summed else _of(FINEST, begins, end)


def _of(ring: Ring, first: int, end: int) -> Q:
    return Q(seconds=ring.seconds, begins__gte=first, begins__lt=end)


def _add_recent(frame: Histories) -> None:
    first, number = frame.end - NOW_SECONDS, NOW_SECONDS // FINEST.seconds
    for history in frame.by_name.values():
        history.recent = [NONE] * number
    rows = samples.stored().filter(_of(FINEST, first, frame.end), kind=frame.kind, name__in=[*frame.by_name])
    values_of = rows.order_by().values_list("name", "begins", *GAUGES_AND_SUMS)
    for name, begins, *values in loads_sql.raw_rows(Job.objects.database, values_of):
        frame.by_name[name].recent[(begins - first) // FINEST.seconds] = _load(values)


def _in_order(loads: Collection[Load]) -> Load:
    """Return the load of several spans of one queue or task, without histograms, faster than `summed`."""
    highest: list[Any] = [max((getattr(load, name) for load in loads), default=0) for name in GAUGES]
    return Load(*highest, *(sum(getattr(load, name) for load in loads) for name in SUMS))


def _together(series: Iterable[Sequence[Load]], number: int) -> list[Load]:
    """Return the load of several queues or tasks together at each point, without histograms."""
    if not (found := [loads for loads in series if loads]):
        return [NONE] * number
    return [_at_once([load for load in loads if load is not NONE]) for loads in zip(*found, strict=True)]


def _at_once(loads: Collection[Load]) -> Load:
    sums = {name: sum(getattr(load, name) for load in loads) for name in GAUGES_AND_SUMS if name != "oldest_seconds"}
    return Load(oldest_seconds=max((load.oldest_seconds for load in loads), default=0.0), **sums)
