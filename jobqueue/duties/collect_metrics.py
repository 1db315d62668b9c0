"""The duty of metrics: it samples the load of all queues every `SLOT_SECONDS`, at bounded cost, into a ring of rows.

Depth, age and running jobs are counted up to a limit (see ``insight/queues.py``). Rates are counted from the
rows: created jobs by the ids since the sample before, ended jobs by the index of ends. Both read at most
`MAX_COUNTED` rows. If there are more, the rate is that of the newest `MAX_COUNTED` jobs, over the time in which
they came.

The rates describe a window that closed `LAG_SECONDS` ago, so that late commits are counted, too. Not counted are:
jobs that were deleted before the sample (immediate retention); jobs of an enqueue whose transaction took longer
than `LAG_SECONDS`; failed runs that are retried.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from jobqueue.core import states
from jobqueue.db import Flow, Now, ended_jobs
from jobqueue.duties.base import Duty, Report
from jobqueue.insight.metrics import SLOT_SECONDS, SLOTS, VALUES, ring
from jobqueue.insight.queues import QueueState, queue_states
from jobqueue.models import Job, Queue, QueueSample

MAX_QUEUES = 100
MAX_COUNTED = 20_000
FORGET_SECONDS, MAX_FORGOTTEN = 60.0, 1000
LAG_SECONDS = 2.0
MAX_WINDOW = 120.0


class CollectMetrics(Duty):
    """The duty that writes samples of all queues."""

    name = "collect_metrics"
    interval_seconds = float(SLOT_SECONDS)
    is_short = True

    def __init__(self) -> None:
        """Start without an earlier sample."""
        self._collector = Collector()

    def run_once(self, now: datetime) -> Report:
        """Take one sample of each queue."""
        return Report(items=self._collector.write_samples(now))


class Collector:
    """A periodic sampler of all queues; it stores the state of the last sample, for the rates."""

    def __init__(self) -> None:
        """Create it without a last sample; the first sample has no rates."""
        self._sampled_at: float | None = None
        self._forget_at = 0.0
        self._saw_nothing = False
        self._ids = (0, 0)  # the highest id at each of the last two samples: the whole window lies behind the older one

    def write_samples(self, now: datetime) -> int:
        """Write a sample of each queue, and delete samples older than an hour; return the number of samples that were written."""
        made = self._samples(int(now.timestamp() // SLOT_SECONDS) % SLOTS)
        began = time.monotonic()
        if made or began >= self._forget_at:
            with Job.objects.database.atomic():
                ring().bulk_create(made, update_conflicts=True, unique_fields=["queue", "slot"], update_fields=["at", *VALUES])
                if began >= self._forget_at:
                    old = ring().filter(at__lt=Now() - timedelta(seconds=SLOTS * SLOT_SECONDS))
                    found = list(old.values_list("pk", flat=True)[:MAX_FORGOTTEN])
                    old.filter(pk__in=found).delete()
                    self._forget_at = began + FORGET_SECONDS if len(found) < MAX_FORGOTTEN else 0.0
        return len(made)

    def _samples(self, slot: int) -> list[QueueSample]:
        at_rest, nothing = self._is_at_rest()
        if nothing:
            return []
        rates = {} if at_rest else self._rates()
        seen = {one.name: one for one in queue_states(at_rest=at_rest)}
        self._saw_nothing = rates == {} and all(one.queued == one.running == 0 for one in seen.values())
        busiest = sorted({*seen, *(rates or {})}, key=lambda name: (-_weight(name, seen, rates or {}), str(name)))[:MAX_QUEUES]
        made = []
        for name in sorted(busiest, key=str):
            state = seen.get(name)
            here: dict[str, Any] = {}
            if state:
                here = {"queued": state.queued, "running": state.running, "oldest_seconds": state.oldest_queued_seconds}
            if rates is not None:
                here |= dict(zip(VALUES[3:], rates.get(name, (0.0, 0.0, 0.0)), strict=True))
            made.append(QueueSample(queue=name, slot=slot, at=Now(), **here))
        return made

    def _is_at_rest(self) -> tuple[bool, bool]:
        """Return whether there is nothing to count, and whether there is not even a row of a queue.

        It is queried only if the last sample was empty, because then the next one is probably empty, too.
        """
        if not self._saw_nothing or self._sampled_at is None or self._ids[0] != self._ids[1]:
            return False, False
        now = time.monotonic()
        window = min(now - self._sampled_at, MAX_WINDOW) + LAG_SECONDS
        at_rest, no_queues = ended_jobs.rest(Job.objects.database, self._ids[1], window, Queue._meta.db_table)
        if at_rest:
            self._sampled_at = now
        return at_rest, at_rest and no_queues

    def _rates(self) -> dict[str, tuple[float, float, float]] | None:
        """Return how many jobs per second each queue got, ended and failed since the last sample; None for the first sample."""
        database = Job.objects.database
        before, now = self._sampled_at, time.monotonic()
        newest = ended_jobs.newest_id(database)
        if before is None:
            self._sampled_at, self._ids = now, (max(newest - MAX_COUNTED, 0), newest)
            return None
        begin, floor = min(now - before, MAX_WINDOW) + LAG_SECONDS, self._ids[0]
        arrived = ended_jobs.arrivals_within(database, floor, begin, LAG_SECONDS, MAX_COUNTED) if newest > floor else []
        came = _per_second(arrived, begin)
        flows = ended_jobs.ends_within(database, begin, LAG_SECONDS, MAX_COUNTED)
        self._sampled_at, self._ids = now, (self._ids[1], newest)
        finished, failed = _per_second(flows, begin), _per_second(flows, begin, only=states.Status.ERROR)
        return {name: (came.get(name, 0.0), finished.get(name, 0.0), failed.get(name, 0.0)) for name in {*came, *finished}}


def _per_second(flows: Collection[Flow], begin: float, only: str = "") -> dict[str, float]:
    """Return the rate of each queue; if not all rows were read, the rate of those that were read."""
    cut = sum(flow.read for flow in flows) >= MAX_COUNTED
    seconds = max(max(flow.first for flow in flows) if cut else begin - LAG_SECONDS, 0.001)
    found: dict[str, float] = {}
    for flow in flows:
        if not only or flow.status == only:
            found[flow.queue] = found.get(flow.queue, 0.0) + (flow.read if cut else flow.number) / seconds
    return found


def _weight(name: str, seen: Mapping[str, QueueState], rates: Mapping[str, tuple[float, ...]]) -> float:
    state = seen.get(name)
    return (state.queued + state.running if state else 0) + sum(rates.get(name, ()))
