"""The cost of targets: a table full of blocked jobs, many short lines, one long line. Each row names its neighbour."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator

from bench import chain
from bench.cluster import Cluster
from bench.scenarios import DRAIN_CAP_SECONDS, Row, Size, fresh, paired
from bench.subjects import OURS, THREADS, Subject, run
from bench.worker import LOOK_SECONDS, Worker

BUSY = 2
# A worker process elsewhere runs the first jobs of both targets.
HOLD = (
    "UPDATE jobqueue_job SET status = 'RUNNING', holds_target = true, attempt = 1, lease_owner = 'elsewhere', lease_token = 1,"
    f" lease_expires_at = now() + interval '1 hour', heartbeat_at = now() WHERE id <= {BUSY}"
)
SPAN = (
    "SELECT extract(epoch FROM min(started_at))::float8, extract(epoch FROM max(finished_at))::float8 FROM jobqueue_job"
    " WHERE status = 'SUCCESS'"
)
PARKED = f"SELECT status = 'PENDING' FROM jobqueue_job WHERE id = {BUSY + 1}"
UNCHAINED = dataclasses.replace(OURS, worker=("-m", "bench.unchained", "--min-workers", THREADS, "--max-workers", THREADS))


def blocked(cluster: Cluster, size: Size) -> Iterator[Row]:
    """Drain free jobs that were queued after very many whose targets are busy, against the same without those."""
    runs: dict[str, list[float]] = {"ours": [], "raw": []}
    parking: list[float] = []
    for _ in range(size.repeats):
        rate, seconds = _blocked(cluster, size.blocked, size.drain)
        runs["ours"].append(rate)
        parking.append(seconds)
        runs["raw"].append(_blocked(cluster, 0, size.drain)[0])
    row = paired(
        "blocked", f"{size.drain:,} free jobs behind {size.blocked:,} blocked ones, jobs/s (raw: jobqueue without those)", runs, 0.9
    )
    row.runs["parking_seconds"] = parking
    yield row
    yield Row("parking", f"parking of the {size.blocked:,}, once, s", statistics.median(parking))


def _blocked(cluster: Cluster, jobs: int, free: int) -> tuple[float, float]:
    """Return the rate of the free jobs, and how long the parking of the blocked ones before them took."""
    database = fresh(cluster, OURS)
    if jobs:
        _fill_lines(cluster, database, BUSY + jobs, BUSY)
        cluster.execute(HOLD, database)
    OURS.fill(cluster, database, free)
    cluster.execute("ANALYZE", database)
    cluster.execute("CHECKPOINT", database)
    with Worker(OURS, cluster, database) as worker:
        parking_at = _wait_until(cluster, database, PARKED) if jobs else 0.0
        _wait_until_done(worker, free)
    began, ended = cluster.execute(SPAN, database)[0]
    return free / float(ended - began), began - parking_at if jobs else 0.0


def many_lines(cluster: Cluster, size: Size) -> Iterator[Row]:
    """Drain jobs of many targets, against the same number of jobs without targets."""
    runs: dict[str, list[float]] = {"ours": [], "raw": []}
    for _ in range(size.repeats):
        runs["ours"].append(_lines(cluster, size.drain, size.lines))
        runs["raw"].append(_lines(cluster, size.drain, 0))
    yield paired("many_lines", f"{size.drain:,} jobs of {size.lines:,} targets, jobs/s (raw: jobqueue without targets)", runs, 0.3)


def one_line(cluster: Cluster, size: Size) -> Iterator[Row]:
    """Run the jobs of one target one after another, against the bare statements, and against jobqueue without hand-over."""
    ways: dict[str, Callable[[], float]] = {
        "ours": lambda: _lines(cluster, size.chain, 1),
        "same": lambda: _same_chain(cluster, size.chain),
        "least": lambda: _raw_chain(cluster, size.chain),
        "unchained": lambda: _lines(cluster, size.chain, 1, UNCHAINED),
    }
    runs: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(size.repeats):
        for name, way in ways.items():
            runs[name].append(way())
    text = f"{size.chain:,} jobs of one target, jobs/s"
    yield paired("one_line", f"{text} (raw: the same statements in a bare loop)", {"ours": runs["ours"], "raw": runs["same"]}, 0.4)
    yield paired("one_line_least", f"{text} (raw: the least statements that would do)", {"ours": runs["ours"], "raw": runs["least"]})
    yield paired("one_line_hand_over", f"{text} (raw: jobqueue without hand-over)", {"ours": runs["ours"], "raw": runs["unchained"]}, 1.5)


def _lines(cluster: Cluster, jobs: int, targets: int, subject: Subject = OURS) -> float:
    database = fresh(cluster, OURS)
    if targets:
        _fill_lines(cluster, database, jobs, targets)
    else:
        OURS.fill(cluster, database, jobs)
    cluster.execute("ANALYZE", database)
    cluster.execute("CHECKPOINT", database)
    with Worker(subject, cluster, database) as worker:
        _wait_until_done(worker, jobs)
    began, ended = cluster.execute(SPAN, database)[0]
    return jobs / float(ended - began)


def _same_chain(cluster: Cluster, jobs: int) -> float:
    database = _parked(cluster, jobs)
    return float(run("-m", "bench.client", "chain", str(jobs), environment=cluster.environment(database))["rate"])


def _parked(cluster: Cluster, jobs: int) -> str:
    database = fresh(cluster, OURS)
    _fill_lines(cluster, database, jobs, 1)
    cluster.execute(chain.PARK, database)
    cluster.execute("ANALYZE", database)
    cluster.execute("CHECKPOINT", database)
    return database


def _raw_chain(cluster: Cluster, jobs: int) -> float:
    database = _parked(cluster, jobs)
    with cluster.connect(database) as connection:
        return chain.run(connection, jobs)


def _fill_lines(cluster: Cluster, database: str, jobs: int, targets: int) -> None:
    run("-m", "bench.client", "lines", str(jobs), str(targets), environment=cluster.environment(database))


def _wait_until_done(worker: Worker, jobs: int) -> None:
    done, _ = worker.wait_until_done(jobs, DRAIN_CAP_SECONDS)
    if done < jobs:
        raise RuntimeError(f"The worker did {done} of {jobs} jobs in {DRAIN_CAP_SECONDS} s")


def _wait_until(cluster: Cluster, database: str, look: str) -> float:
    """Wait until a query returns true; return the time."""
    until = time.monotonic() + DRAIN_CAP_SECONDS
    with cluster.connect(database) as connection:
        while time.monotonic() < until:
            row = connection.execute(look, prepare=True).fetchone()
            if row and row[0]:
                return time.time()
            time.sleep(LOOK_SECONDS)
    raise RuntimeError(f"Not within {DRAIN_CAP_SECONDS} s: {look}")


LINES: dict[str, Callable[[Cluster, Size], Iterator[Row]]] = {"blocked": blocked, "many_lines": many_lines, "one_line": one_line}
