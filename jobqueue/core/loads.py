"""The load of a queue or a task in one span of time, and the spans of which samples are kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from jobqueue.core import histograms
from jobqueue.core.states import Status


class Ring(NamedTuple):
    """Samples of one length, and how long they are kept. Both are in seconds."""

    seconds: int
    kept: int


RINGS = {"1h": Ring(10, 3600), "24h": Ring(60, 86400), "14d": Ring(900, 14 * 86400)}
FINEST, *COARSER = RINGS.values()
TOTAL = 0  # instead of a length: the sum since the first sample
OTHER = "(other)"  # the name under which those are counted that have no samples of their own
QUEUE, TASK = "queue", "task"
OUTCOMES = {Status.SUCCESS: "succeeded", Status.ERROR: "failed", Status.CANCELED: "canceled"}


@dataclass(slots=True)
class Load:
    """The numbers of one queue or task in one span.

    `queued`, `running` and `oldest_seconds` are the highest that were seen. The other numbers are sums. `waits` and
    `runs` are histograms of jobs that ended in SUCCESS or ERROR, and `wait_seconds` and `run_seconds` the sums of the
    same durations.
    """

    queued: int = 0
    running: int = 0
    oldest_seconds: float = 0.0
    enqueued: int = 0
    succeeded: int = 0
    failed: int = 0
    canceled: int = 0
    wait_seconds: float = 0.0
    run_seconds: float = 0.0
    waits: list[int] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)

    @property
    def ended(self) -> int:
        """The number of jobs that ended."""
        return self.succeeded + self.failed + self.canceled

    @property
    def weight(self) -> int:
        """The number of jobs that waited, ran, came or ended."""
        return self.queued + self.running + self.enqueued + self.ended

    def follow(self, later: Load) -> None:
        """Add the load of another span of the same queue or task."""
        self._add(later)
        for name in GAUGES:
            setattr(self, name, max(getattr(self, name), getattr(later, name)))

    def join(self, other: Load) -> None:
        """Add the load of another queue or task in the same span."""
        self._add(other)
        self.queued += other.queued
        self.running += other.running
        self.oldest_seconds = max(self.oldest_seconds, other.oldest_seconds)

    def _add(self, other: Load) -> None:
        for name in SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in HISTOGRAMS:
            histograms.add(getattr(self, name), getattr(other, name))

    def columns(self) -> dict[str, Any]:
        """Return the values for a row."""
        return {name: histograms.to_text(value) if name in HISTOGRAMS else value for name, value in self._values()}

    def _values(self) -> Iterable[tuple[str, Any]]:
        return ((name, getattr(self, name)) for name in COLUMNS)

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Load:
        """Return the load of a row; a value that cannot be read counts as 0."""
        values: dict[str, Any] = {name: histograms.from_text(row[name]) if name in HISTOGRAMS else _number(row[name]) for name in COLUMNS}
        return cls(**values)


GAUGES = ("queued", "running", "oldest_seconds")
HISTOGRAMS = ("waits", "runs")
COLUMNS = tuple(one.name for one in fields(Load))
SUMS = tuple(name for name in COLUMNS if name not in GAUGES + HISTOGRAMS)


def summed(loads: Iterable[Load]) -> Load:
    """Return the load of several spans together."""
    found = Load()
    for load in loads:
        found.follow(load)
    return found


def _number(value: object) -> Any:
    """Return a number of a row, 0 for a text that SQLite stores in a column of numbers."""
    return value if isinstance(value, int | float) and 0 <= value < float("inf") else 0
