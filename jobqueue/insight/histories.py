"""The load of all queues or tasks over a range of time, for charts: one statement, however long the range.

The samples of a long range come from the longest spans. Only its end comes from shorter ones, because a longer span is
summed when it has ended. Like all samples, these count the jobs of all tenants (`samples.may_see`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django.db.models import F, Max, Q, Sum

from jobqueue.core import histograms
from jobqueue.core.loads import COARSER, FINEST, GAUGES, HISTOGRAMS, RINGS, SUMS, Load, Ring, summed
from jobqueue.insight import samples

NOW_SECONDS: Final = 300  # the last minutes, from which the present rates come
POINTS: Final = {"1h": 30, "24h": 900, "14d": 10_800}  # the seconds of a point of a chart
MINUTE, QUARTER = COARSER
UNSUMMED_SECONDS: Final = 180  # within which the sum of a span is written after its end
STEADY_SHARE, STEADY_JOBS = 0.02, 2.0  # the change of a depth in the last minutes that is noise


@dataclass(slots=True)
class History:
    """The load of one queue or task: a load for each point of the range, the whole range, and the last minutes."""

    name: str
    points: list[Load]
    recent: list[Load] = field(default_factory=list)  # spans of 10 s, the oldest first
    total: Load = field(default_factory=Load)  # its histograms are empty until `add_histograms` has read them

    @property
    def now(self) -> Load:
        """The load of the last minutes."""
        return summed(self.recent)

    @property
    def growth_per_second(self) -> float:
        """The change of the number of queued jobs per second in the last minutes; 0 if it is noise."""
        if len(self.recent) < 6:
            return 0.0
        first, last = (sum(load.queued for load in loads) / 3 for loads in (self.recent[:3], self.recent[-3:]))
        if abs(last - first) <= max(STEADY_JOBS, STEADY_SHARE * first):
            return 0.0
        return (last - first) / ((len(self.recent) - 3) * FINEST.seconds)


@dataclass(frozen=True, slots=True)
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

    @property
    def points(self) -> list[Load]:
        """The loads of all of them together at each point."""
        return _together([history.points for history in self.by_name.values()], self.number)

    @property
    def recent(self) -> list[Load]:
        """The loads of all of them together in the last minutes."""
        return _together([history.recent for history in self.by_name.values()], NOW_SECONDS // FINEST.seconds)

    @property
    def total(self) -> Load:
        """The load of all of them together over the range."""
        found = Load()
        for history in self.by_name.values():
            found.join(history.total)
        return found


def histories(kind: str, period: str, name: str | None = None) -> Histories:
    """Return the loads of all queues or tasks (`kind`), or of one, over the last hour, day or fortnight (`period`, one of `RINGS`)."""
    step, end = POINTS[period], _end()
    number = RINGS[period].kept // step
    last = -(-end // step) * step  # the last point may not have ended
    begins = last - number * step
    rows = samples.stored().filter(_spans(period, begins, end), kind=kind)
    named = rows if name is None else rows.filter(name=name)
    found: dict[str, History] = {}
    for row in named.annotate(point=(F("begins") - begins) / step).values("name", "point").annotate(**_AGGREGATES):
        history = found.get(row["name"])
        if history is None:
            history = found[row["name"]] = History(row["name"], [Load() for _ in range(number)])
        if isinstance(row["point"], int) and 0 <= row["point"] < number:
            history.points[row["point"]] = _load(row)
    for history in found.values():
        history.total = summed(history.points)
    _add_recent(kind, found, end)
    return Histories(kind, begins, end, step, number, found)


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
    for name, *found in rows.values_list("name", *columns):
        texts[name].append(tuple(found))
    for history in loads:
        for column, values in zip(columns, zip(*texts[history.name], strict=True), strict=False):
            setattr(history.total, column, histograms.total(values))


_AGGREGATES: Final[dict[str, Any]] = {
    **{f"most_{name}": Max(name) for name in GAUGES},
    **{f"sum_{name}": Sum(name) for name in SUMS},
}


def _load(row: dict[str, Any]) -> Load:
    values = {name: row[f"most_{name}"] for name in GAUGES} | {name: row[f"sum_{name}"] for name in SUMS}
    return Load.of_row({**values, **dict.fromkeys(HISTOGRAMS, "")})


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


def _add_recent(kind: str, found: dict[str, History], end: int) -> None:
    first, number = end - NOW_SECONDS, NOW_SECONDS // FINEST.seconds
    for history in found.values():
        history.recent = [Load() for _ in range(number)]
    columns = [*GAUGES, *SUMS]
    for row in samples.stored().filter(_of(FINEST, first, end), kind=kind, name__in=[*found]).values("name", "begins", *columns):
        load = Load.of_row({**row, **dict.fromkeys(HISTOGRAMS, "")})
        found[row["name"]].recent[(row["begins"] - first) // FINEST.seconds] = load


def _together(series: Iterable[list[Load]], number: int) -> list[Load]:
    found = [Load() for _ in range(number)]
    for loads in series:
        for load, more in zip(found, loads, strict=True):
            load.join(more)
    return found
