"""The cost of the event log: jobqueue with the log, as by default, against jobqueue without it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from bench.cluster import Cluster
from bench.scenarios import DRAIN_CAP_SECONDS, Row, Size, fresh, paired
from bench.settings import EVENT_LOG
from bench.subjects import OURS, run
from bench.worker import Worker

LOGS = {"ours": "lifecycle", "raw": "none"}
LEAST = 0.6
LOGGED = "SELECT count(*) FROM jobqueue_jobevent"


def events(cluster: Cluster, size: Size) -> Iterator[Row]:
    """Drain, enqueue one by one and enqueue in bulk, each with the log and without, in turns."""
    ways: dict[str, tuple[str, Callable[[Cluster, Size], float]]] = {
        "events_drain": ("drain, jobs/s", _drain),
        "events_enqueue": ("enqueue one by one, jobs/s", _single),
        "events_bulk": ("enqueue_many, jobs/s", _bulk),
    }
    for key, (text, measure) in ways.items():
        runs: dict[str, list[float]] = {name: [] for name in LOGS}
        for _ in range(size.repeats):
            for name, log in LOGS.items():
                with logging(log):
                    runs[name].append(measure(cluster, size))
        yield paired(key, f"with the log of events: {text} (raw: jobqueue without the log)", runs, LEAST)


@contextlib.contextmanager
def logging(log: str) -> Iterator[None]:
    """Set `EVENT_LOG` for the processes that are started inside."""
    os.environ[EVENT_LOG] = log
    try:
        yield
    finally:
        del os.environ[EVENT_LOG]


def _drain(cluster: Cluster, size: Size) -> float:
    database = fresh(cluster, OURS, size.drain)
    with Worker(OURS, cluster, database) as worker:
        done, ended = worker.wait_until_done(size.drain, DRAIN_CAP_SECONDS)
    began = cluster.execute("SELECT extract(epoch FROM min(started_at))::float8 FROM jobqueue_job", database)[0][0]
    logged = cluster.execute(LOGGED, database)[0][0]
    if logged != (3 * done if os.environ[EVENT_LOG] == "lifecycle" else 0):
        raise RuntimeError(f"{logged} events of {done} jobs are not what EVENT_LOG={os.environ[EVENT_LOG]!r} means")
    return float(done / (ended - began))


def _single(cluster: Cluster, size: Size) -> float:
    environment = cluster.environment(fresh(cluster, OURS))
    return float(run("-m", "bench.client", "single", str(size.single), environment=environment)["ours"])


def _bulk(cluster: Cluster, size: Size) -> float:
    environment = cluster.environment(fresh(cluster, OURS))
    return float(run("-m", "bench.client", "bulk", str(size.bulk), "1", environment=environment)["ours"][0])


EVENTS: dict[str, Callable[[Cluster, Size], Iterator[Row]]] = {"events": events}
