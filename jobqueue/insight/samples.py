"""The samples as operators read them: series of a queue or task, and the load of all of them in the last minutes.

The samples count the jobs of all tenants. A user who may not see all jobs (`VISIBLE_JOBS`) may not see them (`may_see`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from jobqueue.access import visible
from jobqueue.core import histograms
from jobqueue.core.loads import COLUMNS, FINEST, QUEUE, RINGS, TASK, TOTAL, Load, summed
from jobqueue.db import overview
from jobqueue.models import Job, Sample

LAG_SECONDS = 2.0 + FINEST.seconds  # the most seconds from the end of a span to its sample
KINDS = (QUEUE, TASK)
RECENT_SECONDS = 300
SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class Figures:
    """The load of a queue or task in `seconds`, counted from `at`.

    `queued`, `running` and `oldest_seconds` are the highest values that were seen; the numbers of jobs are sums. The
    quantiles are in seconds, and None if no job ended in SUCCESS or ERROR; each is in the same bucket of the histogram
    as the exact value, so at most 1.41 times as high or as low. A wait lasts from the time when a job became claimable
    to the start of its last run.
    """

    at: datetime
    seconds: int
    queued: int
    running: int
    oldest_seconds: float
    enqueued: int
    succeeded: int
    failed: int
    canceled: int
    wait_p50: float | None
    wait_p95: float | None
    wait_p99: float | None
    run_p50: float | None
    run_p95: float | None
    run_p99: float | None


@dataclass(frozen=True, slots=True)
class Series:
    """The load of a queue or task over time: a point for each span, the oldest first, and the whole range."""

    kind: str
    name: str
    period: str
    points: list[Figures]
    total: Figures


@dataclass(frozen=True, slots=True)
class Recent:
    """The load of one queue or task in the last minutes."""

    kind: str
    name: str
    figures: Figures


def may_see(user: Any) -> bool:
    """Return whether the user may see samples, that is, whether there are no jobs that the user may not see."""
    return not visible.is_narrowed(user)


def series(kind: str, name: str, period: str = "1h") -> Series:
    """Return the load of a queue or task (`kind`) over the last hour, day or fortnight (`period`, one of `RINGS`).

    The points are 10 seconds, 1 minute or 15 minutes long, and the last one has ended. A span without a row is one in which
    nothing waited, ran, came or ended: all its numbers are 0. The cost depends on the number of points only.
    """
    ring = RINGS[period]
    end = int((now() - LAG_SECONDS) // ring.seconds) * ring.seconds
    first = end - ring.kept
    rows = stored().filter(kind=kind, name=name, seconds=ring.seconds, begins__gte=first, begins__lt=end)
    loads = {row["begins"]: Load.of_row(row) for row in rows.values("begins", *COLUMNS)}
    spans = [first + ring.seconds * number for number in range(ring.kept // ring.seconds)]
    points = [_figures(loads.get(begins, Load()), begins, ring.seconds) for begins in spans]
    return Series(kind, name, period, points, _figures(summed(loads.values()), first, ring.kept))


def recent(kind: str, seconds: int = RECENT_SECONDS) -> list[Recent]:
    """Return the load of each queue or task in the last `seconds`, at most an hour; the one with the most jobs first."""
    first, loads = int(now()) - min(seconds, FINEST.kept), dict[str, Load]()
    for row in stored().filter(kind=kind, seconds=FINEST.seconds, begins__gte=first).values("name", *COLUMNS):
        loads.setdefault(row["name"], Load()).follow(Load.of_row(row))
    ordered = sorted(loads.items(), key=lambda item: (-item[1].weight, item[0]))
    return [Recent(kind, name, _figures(load, first, seconds)) for name, load in ordered]


def totals() -> Iterator[tuple[str, str, Load]]:
    """Yield the kind, the name, and the sum of all samples of each queue and task; its `queued` and the like are of no use."""
    for row in stored().filter(seconds=TOTAL).values("kind", "name", *COLUMNS):
        yield row["kind"], row["name"], Load.of_row(row)


def stored() -> Any:
    """Return the rows of the samples."""
    return Sample.objects.using(Job.objects.database.alias).order_by()


def now() -> float:
    """Return the time of the database in seconds since 1970."""
    return overview.clock(Job.objects.database).timestamp()


def _figures(load: Load, begins: int, seconds: int) -> Figures:
    wait = [histograms.quantile(load.waits, share) for share in SHARES.values()]
    run = [histograms.quantile(load.runs, share) for share in SHARES.values()]
    return Figures(
        datetime.fromtimestamp(begins, UTC),
        seconds,
        *(load.queued, load.running, load.oldest_seconds),
        *(load.enqueued, load.succeeded, load.failed, load.canceled),
        *(*wait, *run),
    )
