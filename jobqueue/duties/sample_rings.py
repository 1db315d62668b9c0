"""The rows of samples: rings of spans of three lengths, and a row with the sum of all for each queue and task.

The rows of longer spans are summed from those of the next shorter ones, so a new leader can continue from the rows alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from django.db.models import Q

from jobqueue.core.loads import COARSER, COLUMNS, FINEST, OTHER, RINGS, TOTAL, Load, Ring
from jobqueue.insight.samples import stored
from jobqueue.models import Job, Sample

MAX_NAMES = 100  # of each kind; further queues or tasks are counted as OTHER
FORGET_SECONDS, MAX_FORGOTTEN = 60.0, 1000
TOTAL_KEPT = 86400  # seconds without change after which a queue or task leaves the totals, and another can take its place
MAX_SPANS = 5  # spans of one length that are summed in one run

Name = tuple[str, str]  # the kind and the name
Loads = dict[int, dict[Name, Load]]  # the loads of each span, by its begin


class Rings:
    """The writer of samples during a term of leadership."""

    def __init__(self) -> None:
        """Create it without knowledge of the rows."""
        self._forget_at = 0.0
        self._written = 0  # the begin of the last span that has a row
        self._summed: dict[int, int] = {}  # the end of the last span of each length that was summed

    def sampled_until(self, end: int) -> int:
        """Return the end of the last span that has a row, at most an hour ago.

        If there is none, return the begin of the last span but one, because a new leader waits for a span before its first sample.
        """
        self._written = _newest(FINEST, end) or 0
        for finer, ring in zip(RINGS.values(), COARSER, strict=False):
            known = _newest(ring, end)
            self._summed[ring.seconds] = max(_floor(end - finer.kept, ring), 0 if known is None else known + ring.seconds)
        return max(self._written + FINEST.seconds, end - FINEST.kept) if self._written else end - 2 * FINEST.seconds

    def write(self, made: Loads, end: int) -> int:
        """Write the samples of spans, sum up longer ones, and delete old ones; return the number of samples that were written."""
        made = {span: {name: load for name, load in found.items() if load.weight} for span, found in made.items()}
        began, written = time.monotonic(), sum(map(len, made.values()))
        self._written = max([self._written, *(span for span, found in made.items() if found)])
        forgets = began >= self._forget_at
        if written or forgets or any(self._is_due(ring, end) for ring in COARSER):
            with Job.objects.database.atomic():
                if written:
                    _add(made)
                until = end
                for finer, ring in zip(RINGS.values(), COARSER, strict=False):
                    until = self._sum_up(ring, finer, until)
                if forgets:
                    self._forget_at = 0.0 if _forget(end) else began + FORGET_SECONDS
        return written

    def _is_due(self, ring: Ring, end: int) -> bool:
        """Return whether a span of this length has ended and may have rows."""
        if self._summed[ring.seconds] > self._written:
            self._summed[ring.seconds] = max(self._summed[ring.seconds], _floor(end, ring))
        return self._summed[ring.seconds] + ring.seconds <= end

    def _sum_up(self, ring: Ring, finer: Ring, end: int) -> int:
        """Write the samples of the spans that have ended, a few at a time; return the end of the last one."""
        for _ in range(MAX_SPANS):
            if not self._is_due(ring, end):
                break
            rows = stored().filter(seconds=finer.seconds, begins__gte=self._summed[ring.seconds], begins__lt=_floor(end, ring))
            first = rows.order_by("begins").values_list("begins", flat=True).first()
            if first is None:  # one query for all spans without rows: a new leader may find thousands
                self._summed[ring.seconds] = _floor(end, ring)
                break
            begins, found = _floor(first, ring), dict[Name, Load]()
            for row in rows.filter(begins__lt=begins + ring.seconds).values("kind", "name", *COLUMNS):
                found.setdefault((row["kind"], row["name"]), Load()).follow(Load.of_row(row))
            _upsert(ring, begins, found)
            self._summed[ring.seconds] = begins + ring.seconds
        return self._summed[ring.seconds]


def _newest(ring: Ring, end: int) -> int | None:
    """Return the begin of the newest span that has a row and has ended."""
    ended = stored().filter(seconds=ring.seconds, begins__lte=end - ring.seconds)
    found: int | None = ended.order_by("-begins").values_list("begins", flat=True).first()
    return found


def _add(made: Loads) -> None:
    """Write the samples of the shortest spans, and add them to the sums."""
    totals = {(row["kind"], row["name"]): Load.of_row(row) for row in stored().filter(seconds=TOTAL).values("kind", "name", *COLUMNS)}
    changed: dict[Name, Load] = {}
    for begins, found in sorted(made.items()):
        named = _named(found, totals)
        _upsert(FINEST, begins, named)
        for name, load in named.items():
            changed[name] = totals.setdefault(name, Load())
            changed[name].follow(load)
    _upsert(Ring(TOTAL, TOTAL_KEPT), max(made), changed)


def _named(found: dict[Name, Load], known: Iterable[Name]) -> dict[Name, Load]:
    """Return the loads of the known names and of the busiest new ones; the loads of further names are joined."""
    named: dict[Name, Load] = {}
    names = {*known}
    room = {kind: MAX_NAMES - sum(one[0] == kind and one[1] != OTHER for one in names) for kind, _ in found}
    for (kind, name), load in sorted(found.items(), key=lambda one: (-one[1].weight, one[0])):
        if (kind, name) not in names and room[kind] > 0:
            names.add((kind, name))
            room[kind] -= 1
        named.setdefault((kind, name if (kind, name) in names else OTHER), Load()).join(load)
    return named


def _upsert(ring: Ring, begins: int, found: dict[Name, Load]) -> None:
    """Write the rows of a span over those of the span that was at its place in the ring."""
    slot = begins // ring.seconds % (ring.kept // ring.seconds) if ring.seconds else 0
    rows = [
        Sample(kind=kind, name=name, seconds=ring.seconds, slot=slot, begins=begins, **load.columns())
        for (kind, name), load in sorted(found.items())
    ]
    place = ["kind", "name", "seconds", "slot"]
    stored().bulk_create(rows, update_conflicts=True, unique_fields=place, update_fields=["begins", *COLUMNS])


def _forget(end: int) -> bool:
    """Delete rows that are too old; return whether there are more."""
    kept = [*RINGS.values(), Ring(TOTAL, TOTAL_KEPT)]
    old = Q.create([Q(seconds=ring.seconds, begins__lt=end - ring.kept) for ring in kept], connector=Q.OR)
    found = list(stored().filter(old).values_list("pk", flat=True)[:MAX_FORGOTTEN])
    if found:
        stored().filter(pk__in=found).delete()
    return len(found) == MAX_FORGOTTEN


def _floor(moment: int, ring: Ring) -> int:
    return moment // ring.seconds * ring.seconds
