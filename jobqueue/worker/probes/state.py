"""The state of a worker process, or of a fleet of them, for its probes, and its figures as metrics of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from jobqueue.insight import prometheus

GAUGES: Final = {
    "slots": "Slots of the process.",
    "running_jobs": "Jobs of the process that run, and those whose end is not written yet.",
    "stuck_runs": "Runs that did not stop and were abandoned.",
    "loop_lag_seconds": "How late the event loop ran a callback, or how long it has run none.",
}
COUNTERS: Final = {
    "claimed_jobs": "Jobs that the process has claimed, or taken over from a run of their target.",
    "statements": "Statements that the services of the process have sent to the database.",
    "leases_renewed": "Renewals of leases.",
    "leases_lost": "Leases that the process lost while the run had not ended.",
}
ENDED = "ended_runs"
ENDED_TEXT = 'Runs that ended, by the status of the job after it; "lost": the lease was lost.'
PREFIX = "jobqueue_worker"


class ProbeState(NamedTuple):
    """The state of a process. `unhealthy` says why its heartbeats are not written, `idle` why it claims no jobs; "" if it does.

    `figures` has the values of `GAUGES` and `COUNTERS`, and the numbers of ended runs as ``ended_runs:STATUS``.
    """

    begun: bool = False
    ending: bool = False
    unhealthy: str = ""
    idle: str = "The worker is starting."
    figures: dict[str, float] = {}


Figures = Callable[[], Mapping[str, Mapping[str, float]]]
"""Returns the figures of each process, by its number."""


def exposition(figures: Mapping[str, Mapping[str, float]]) -> bytes:
    """Return the figures of processes in the text format of Prometheus; raise `PrometheusMissing` if the extra is not installed."""
    return prometheus.exposition(_families(figures))


def _families(figures: Mapping[str, Mapping[str, float]]) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for kind, texts in ((GaugeMetricFamily, GAUGES), (CounterMetricFamily, COUNTERS)):
        for name, text in texts.items():
            family = kind(f"{PREFIX}_{name}", text, labels=["process"])
            for process, values in figures.items():
                if name in values:
                    family.add_metric([process], values[name])
            yield family
    ended = CounterMetricFamily(f"{PREFIX}_{ENDED}", ENDED_TEXT, labels=["process", "status"])
    for process, values in figures.items():
        for name, value in values.items():
            if name.startswith(f"{ENDED}:"):
                ended.add_metric([process, name.partition(":")[2]], value)
    yield ended
