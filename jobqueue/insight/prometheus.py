"""The metrics of the installation for Prometheus, from the samples: the cost does not depend on the number of jobs.

The labels are the names of queues and tasks that have samples, at most 101 of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

from jobqueue.core.histograms import BOUNDS
from jobqueue.core.loads import COLUMNS, FINEST, OUTCOMES, Load
from jobqueue.core.masking import mask_text
from jobqueue.exceptions import JobQueueError
from jobqueue.insight import samples
from jobqueue.insight.scaler import queue_demands

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
EXTRA = "Metrics need the package prometheus-client. Install it with: pip install 'jobqueue[prometheus]'"
EVERY = 2  # one of two bounds, so that each is twice as high as the one before
GAUGES = {
    "queued_jobs": ("queued", "Jobs that can be claimed."),
    "running_jobs": ("running", "Jobs that run."),
    "oldest_wait_seconds": ("oldest_seconds", "How long the oldest queued job has waited."),
}
HISTOGRAMS = {
    "wait_seconds": ("waits", "wait_seconds", "From the time when a job became claimable to the start of its last run."),
    "run_seconds": ("runs", "run_seconds", "The duration of the last run of a job."),
}


class PrometheusMissing(JobQueueError):
    """The package prometheus-client is not installed."""


def text() -> bytes:
    """Return the metrics in the text format of Prometheus; raise `PrometheusMissing` if the extra is not installed."""
    return exposition(families())


def exposition(families: Iterator[Any]) -> bytes:
    """Return metric families in the text format of Prometheus."""
    try:
        from prometheus_client import generate_latest
    except ImportError as error:
        raise PrometheusMissing(EXTRA) from error
    return generate_latest(_Collected(families))


class _Collected:
    """What prometheus-client expects of a registry."""

    def __init__(self, found: Iterator[Any]) -> None:
        self.found = found

    def collect(self) -> Iterator[Any]:
        """Return the metric families."""
        return self.found


def families() -> Iterator[Any]:
    """Yield the metric families of all queues and tasks, and of the autoscaling signal."""
    from prometheus_client.core import GaugeMetricFamily

    totals, newest = _masked(samples.totals()), _masked(_newest())
    for kind in samples.KINDS:
        yield from _of_kind(kind, {name: load for (one, name), load in totals.items() if one == kind}, newest)
    wanted = GaugeMetricFamily("jobqueue_queue_wanted_slots", "Slots that the queue needs: the autoscaling signal.", labels=["queue"])
    slots = Counter[str]()
    for demand in queue_demands():
        slots[mask_text(demand.queue)] += demand.slots_wanted
    for name, number in slots.items():
        wanted.add_metric([name], number)
    yield wanted


def _of_kind(kind: str, totals: dict[str, Load], newest: dict[tuple[str, str], Load]) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    for suffix, (column, help_text) in GAUGES.items():
        gauge = GaugeMetricFamily(f"jobqueue_{kind}_{suffix}", help_text, labels=[kind])
        for name in totals:
            gauge.add_metric([name], getattr(newest.get((kind, name), Load()), column))
        yield gauge
    enqueued = CounterMetricFamily(f"jobqueue_{kind}_enqueued_jobs", "Jobs that were created.", labels=[kind])
    ended = CounterMetricFamily(f"jobqueue_{kind}_ended_jobs", "Jobs that ended, by status.", labels=[kind, "status"])
    for name, load in totals.items():
        enqueued.add_metric([name], load.enqueued)
        for status, column in OUTCOMES.items():
            ended.add_metric([name, status.value], getattr(load, column))
    yield from (enqueued, ended)
    for suffix, (column, total, help_text) in HISTOGRAMS.items():
        histogram = HistogramMetricFamily(f"jobqueue_{kind}_{suffix}", help_text, labels=[kind])
        for name, load in totals.items():
            histogram.add_metric([name], _buckets(getattr(load, column)), getattr(load, total))
        yield histogram


def _buckets(counts: list[int]) -> list[tuple[str, float]]:
    """Return the upper bounds and the numbers of the durations below them."""
    below = [*accumulate([*counts, *[0] * (len(BOUNDS) + 1 - len(counts))])]
    return [*((repr(BOUNDS[position]), below[position]) for position in range(0, len(BOUNDS), EVERY)), ("+Inf", below[-1])]


def _masked(found: Iterable[tuple[str, str, Load]]) -> dict[tuple[str, str], Load]:
    """Return loads by kind and masked name. Those with the same masked name are joined, since labels must differ."""
    masked: dict[tuple[str, str], Load] = {}
    for kind, name, load in found:
        masked.setdefault((kind, mask_text(name)), Load()).join(load)
    return masked


def _newest() -> Iterable[tuple[str, str, Load]]:
    """Return the load of each queue and task in the last span that must have a sample."""
    first = int((samples.now() - samples.LAG_SECONDS) // FINEST.seconds) * FINEST.seconds - FINEST.seconds
    rows = samples.stored().filter(seconds=FINEST.seconds, begins__gte=first).order_by("begins")
    found = {(row["kind"], row["name"]): Load.of_row(row) for row in rows.values("kind", "name", *COLUMNS)}
    return [(*name, load) for name, load in found.items()]
