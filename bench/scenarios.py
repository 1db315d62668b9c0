"""The scenarios, each measured for jobqueue and then for the raw limit, so that both run under the same conditions."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from bench import stamps
from bench.cluster import Cluster
from bench.subjects import BOTH, OURS, Subject, run
from bench.worker import Worker

DRAIN_CAP_SECONDS = 120.0
GAP_SECONDS = 0.05
QUIET_SECONDS = 3.0
SETTLED_SECONDS = 20.0
WARM_UP = 3
STATEMENTS = "SELECT query, calls FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"


@dataclass(frozen=True)
class Size:
    """The sizes of the measurements."""

    repeats: int = 3
    drain: int = 20_000
    single: int = 2_000
    bulk: int = 100_000
    latency: int = 200
    idle_seconds: float = 60.0
    memory: tuple[int, int, int] = (20_000, 200_000, 1_000_000)
    pinned: int = 50_000
    pinned_part: int = 5_000
    blocked: int = 100_000
    lines: int = 10_000
    chain: int = 2_000
    burst: int = 200
    waves: int = 5
    wave: int = 40
    expired: int = 300_000
    growth: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    growth_part: int = 5_000
    growth_analyzed: tuple[bool, ...] = (True, False)
    retries: int = 20_000
    processes: tuple[int, ...] = (1, 2, 3, 4)
    coroutines: int = 20_000
    half_load: int = 1_000
    running: int = 200
    heartbeat_seconds: float = 30.0
    heartbeat_every: float = 2.0
    idle_workers: int = 20


QUICK = Size(
    repeats=1,
    drain=400,
    single=40,
    bulk=400,
    latency=10,
    idle_seconds=1.0,
    memory=(200, 400, 800),
    pinned=600,
    pinned_part=100,
    blocked=2_000,
    lines=200,
    chain=100,
    burst=12,
    waves=1,
    wave=12,
    expired=30_000,
    growth=(200, 400),
    growth_part=100,
    growth_analyzed=(True,),
    retries=200,
    processes=(2,),
    coroutines=1_000,
    half_load=40,
    running=20,
    heartbeat_seconds=2.5,
    heartbeat_every=0.5,
    idle_workers=2,
)


@dataclass
class Row:
    """One line of the report; `target` describes the goal for jobqueue's figure or the ratio, `met` its result."""

    key: str
    text: str
    ours: float
    raw: float | None = None
    ratio: float | None = None
    target: str = ""
    met: bool | None = None
    runs: dict[str, Any] = field(default_factory=dict)


def paired(key: str, text: str, runs: dict[str, list[float]], least: float | None = None) -> Row:
    """Return the row of rates that were measured in turns: medians, and the median of the ratios of neighbours."""
    ratio = statistics.median(ours / raw for ours, raw in zip(runs["ours"], runs["raw"], strict=True))
    return Row(
        key,
        text,
        statistics.median(runs["ours"]),
        statistics.median(runs["raw"]),
        ratio,
        "" if least is None else f"ratio at least {least}",
        None if least is None else ratio >= least,
        dict(runs),
    )


def fresh(cluster: Cluster, subject: Subject, jobs: int = 0, *, analyzed: bool = True) -> str:
    """Create the subject's database again, with `jobs` queued jobs; return its name."""
    database = f"{subject.name}_run"
    cluster.create(database, subject.template)
    if not analyzed:  # else autovacuum's ANALYZE falls into only some of the runs
        cluster.execute(f"ALTER TABLE {subject.table} SET (autovacuum_enabled = false)", database)
    if jobs:
        subject.fill(cluster, database, jobs)
    if analyzed:
        cluster.execute("ANALYZE", database)
    cluster.execute("CHECKPOINT")
    return database


def drain(cluster: Cluster, size: Size) -> Iterator[Row]:
    """Drain a queue of empty jobs, with statistics, and without, as after a burst into a new table."""
    analyzed_rates: list[float] = []
    for key, text, analyzed in (("drain", "drain, jobs/s", True), ("drain_new", "drain without statistics, jobs/s", False)):
        runs: dict[str, list[float]] = {"ours": [], "raw": []}
        cpu: dict[str, list[float]] = {"ours": [], "raw": []}
        for _ in range(size.repeats):
            for subject in BOTH:
                rate, micros = _drain(cluster, subject, size.drain, analyzed)
                runs[subject.name].append(rate)
                cpu[subject.name].append(micros)
        row = paired(key, text, runs, 0.5 if analyzed else None)
        if analyzed:
            analyzed_rates = runs["ours"]
        else:
            share = statistics.median(new / known for new, known in zip(runs["ours"], analyzed_rates, strict=True))
            row.target, row.met = f"at least 0.9 of its own with statistics: {share:.3f}", share >= 0.9
        row.runs["cpu_microseconds_per_job"] = cpu
        yield row


def _drain(cluster: Cluster, subject: Subject, jobs: int, analyzed: bool) -> tuple[float, float]:
    database = fresh(cluster, subject, jobs, analyzed=analyzed)
    with Worker(subject, cluster, database) as worker:
        done, ended = worker.wait_until_done(jobs, DRAIN_CAP_SECONDS)
        cpu = worker.cpu_seconds
    began = cluster.execute(f"SELECT extract(epoch FROM min({subject.began}))::float8 FROM {subject.table}", database)[0][0]
    return done / (ended - began), 1e6 * cpu / max(done, 1)


def enqueue(cluster: Cluster, size: Size) -> Iterator[Row]:
    """Enqueue one by one, each committed, against a bare cursor INSERT of the same row."""
    runs: dict[str, list[float]] = {"ours": [], "raw": []}
    for _ in range(size.repeats):
        database = fresh(cluster, OURS)
        for name, rate in run("-m", "bench.client", "single", str(size.single), environment=cluster.environment(database)).items():
            runs[name].append(rate)
    yield paired("enqueue", "enqueue one by one, jobs/s (raw: INSERT of the same row)", runs, 0.5)


def bulk(cluster: Cluster, size: Size) -> Iterator[Row]:
    """Enqueue many in one call, against COPY of the same columns."""
    database = fresh(cluster, OURS)
    command = ("-m", "bench.client", "bulk", str(size.bulk), str(size.repeats))
    runs = run(*command, environment=cluster.environment(database))
    yield paired("bulk", "enqueue_many, jobs/s (raw: COPY of the same columns)", runs, 0.4)


def latency(cluster: Cluster, size: Size) -> Iterator[Row]:
    """Time from before the enqueue call to the first line of the handler, for an idle worker and jobs 50 ms apart."""
    found: dict[str, list[float]] = {subject.name: [] for subject in BOTH}
    for _ in range(size.repeats):
        for subject in BOTH:
            found[subject.name] += _latency(cluster, subject, size.latency)
    middle, late = ({name: quantile(times, part) for name, times in found.items()} for part in (0.5, 0.99))
    for key, text, value in (("latency_p50", "pick-up p50, ms", middle), ("latency_p99", "pick-up p99, ms", late)):
        row = Row(key, text, value["ours"], value["raw"], value["ours"] / value["raw"])
        if key == "latency_p99":
            row.target, row.met = "at most 3 x p50", late["ours"] <= 3 * middle["ours"]
            row.runs = found
        yield row


def _latency(cluster: Cluster, subject: Subject, jobs: int) -> list[float]:
    database = fresh(cluster, subject)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "stamps"
        with Worker(subject, cluster, database, stamps=str(file)) as worker:
            environment = cluster.environment(database)
            run(*subject.paced, "0", str(WARM_UP), str(GAP_SECONDS), environment=environment)
            worker.wait_until_served()
            time.sleep(QUIET_SECONDS)
            sent = run(*subject.paced, str(WARM_UP), str(jobs), str(GAP_SECONDS), environment=environment)
            worker.wait_until_served()
        began = stamps.read(file)
    return [1000 * (began[int(number)] - moment) for number, moment in sent.items()]


def quantile(values: list[float], part: float) -> float:
    """Return the value that a given part of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


def idle(cluster: Cluster, size: Size) -> Iterator[Row]:
    """Measure one idle worker: statements by pg_stat_statements, and processor time."""
    found = {subject.name: _idle(cluster, subject, size.idle_seconds) for subject in BOTH}
    rates = {name: sum(seen["statements"].values()) for name, seen in found.items()}
    yield Row(
        "idle_statements",
        "idle worker, statements/s",
        rates["ours"],
        rates["raw"],
        target="at most 2",
        met=rates["ours"] <= 2,
        runs={name: seen["statements"] for name, seen in found.items()},
    )
    cpu = {name: seen["cpu_percent"] for name, seen in found.items()}
    yield Row("idle_cpu", "idle worker, CPU %", cpu["ours"], cpu["raw"], target="below 0.5", met=cpu["ours"] < 0.5)


def _idle(cluster: Cluster, subject: Subject, seconds: float) -> dict[str, Any]:
    database = fresh(cluster, subject, jobs=1)
    with Worker(subject, cluster, database) as worker, cluster.connect(database) as connection:
        worker.wait_until_served()
        time.sleep(min(seconds, SETTLED_SECONDS))  # it polls more often for a while after work
        before, cpu, began = _calls(connection), worker.cpu_seconds, time.monotonic()
        time.sleep(seconds)
        after, spent, span = _calls(connection), worker.cpu_seconds - cpu, time.monotonic() - began
    rates = {text: round((calls - before.get(text, 0)) / span, 3) for text, calls in after.items() if calls > before.get(text, 0)}
    return {"statements": dict(sorted(rates.items(), key=lambda item: -item[1])), "cpu_percent": 100 * spent / span}


def _calls(connection: psycopg.Connection[Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text, calls in connection.execute(STATEMENTS).fetchall():
        if "pg_stat_statements" not in text:  # not the query above
            found[text] = found.get(text, 0) + calls
    return found


def memory(cluster: Cluster, size: Size) -> Iterator[Row]:
    """Measure the memory of the worker process after some jobs, and whether it grows from ten times as many."""
    few, _, many = size.memory
    found = {subject.name: _memory(cluster, subject, size.memory) for subject in BOTH}
    ours, raw = found["ours"], found["raw"]
    yield Row("memory", f"worker after {few:,} jobs, MB", ours[few], raw[few], target="at most 90", met=ours[few] <= 90, runs=found)
    *_, warm, last = ours.values()
    met = last <= min(1.05 * warm, 90)
    yield Row("memory_many", f"worker after {many:,} jobs, MB", last, raw[many], target=f"{warm:.1f} before, flat (5 %)", met=met)


def _memory(cluster: Cluster, subject: Subject, numbers: Sequence[int]) -> dict[int, float]:
    database, done, found = fresh(cluster, subject, numbers[0]), numbers[0], {}
    with Worker(subject, cluster, database) as worker:
        for number in numbers:
            while done < number:  # in portions of the first size, because the length of the queue is not measured here
                subject.fill(cluster, database, min(numbers[0], number - done))
                done += numbers[0]
                worker.wait_until_served(DRAIN_CAP_SECONDS)
            worker.wait_until_served(DRAIN_CAP_SECONDS)
            found[number] = worker.rss_megabytes
    return found


SCENARIOS: dict[str, Callable[[Cluster, Size], Iterator[Row]]] = {
    "drain": drain,
    "enqueue": enqueue,
    "bulk": bulk,
    "latency": latency,
    "idle": idle,
    "memory": memory,
}
