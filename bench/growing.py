"""Rates that must not change with the length of the queue or the number of done jobs: growth, retries, and pinned snapshots."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterator

from bench.cluster import Cluster
from bench.scenarios import DRAIN_CAP_SECONDS, Row, Size, _drain, fresh, paired
from bench.subjects import BOTH, OURS, RAW, Subject, run
from bench.worker import Worker

# A second run sets `started_at` again; `first_started_at` has the beginning of the work.
RETRYING = dataclasses.replace(OURS, fill_task="fail_once", began="first_started_at")
ONE_STATEMENT = (
    "INSERT INTO jobqueue_job (task, queue, args, kwargs, priority)"
    " SELECT 'bench.tasks.noop', 'default', format('[%s]', number)::jsonb, '{{}}', 0 FROM generate_series(1, {jobs}) AS number"
)


def growth(cluster: Cluster, size: Size) -> Iterator[Row]:
    """Measure the rate of the first jobs of a short queue, a long one and a very long one, with statistics and without."""
    for analyzed in size.growth_analyzed:
        runs: dict[int, dict[str, list[float]]] = {jobs: {"ours": [], "raw": []} for jobs in size.growth}
        for _ in range(size.repeats):
            for jobs in size.growth:
                for subject in BOTH:
                    runs[jobs][subject.name].append(_first(cluster, subject, jobs, size.growth_part, analyzed))
        shortest = runs[size.growth[0]]["ours"]
        for jobs in size.growth[1:]:
            share = statistics.median(long / short for long, short in zip(runs[jobs]["ours"], shortest, strict=True))
            row = paired(_key(jobs, size, analyzed), _text(jobs, size, analyzed), runs[jobs])
            row.target, row.met = f"at least 0.9 of {size.growth[0]:,} queued: {share:.3f}", share >= 0.9
            row.runs["shortest"] = shortest
            yield row


def _key(jobs: int, size: Size, analyzed: bool) -> str:
    return f"growth_{'long' if jobs == size.growth[1] else 'very_long'}{'' if analyzed else '_new'}"


def _text(jobs: int, size: Size, analyzed: bool) -> str:
    return f"first {size.growth_part:,} of {jobs:,} queued{'' if analyzed else ', without statistics'}, jobs/s"


def _first(cluster: Cluster, subject: Subject, jobs: int, part: int, analyzed: bool) -> float:
    database = fresh(cluster, subject, analyzed=analyzed)
    if subject is RAW:
        subject.fill(cluster, database, jobs)
    else:
        cluster.execute(ONE_STATEMENT.format(jobs=jobs), database)
    if analyzed:
        cluster.execute("ANALYZE", database)
    cluster.execute("CHECKPOINT")
    with Worker(subject, cluster, database) as worker:
        worker.wait_until_count(part, DRAIN_CAP_SECONDS)
    ended = f"(SELECT {subject.ended} AS moment FROM {subject.table} WHERE {subject.done} ORDER BY moment LIMIT {part}) AS first"
    began = f"(SELECT min({subject.began}) FROM {subject.table})"
    seconds = cluster.execute(f"SELECT extract(epoch FROM max(moment) - {began})::float8 FROM {ended}", database)[0][0]
    return part / max(float(seconds), 1e-3)


def retries(cluster: Cluster, size: Size) -> Iterator[Row]:
    """Drain jobs that fail once and succeed at the second attempt, without a delay, against the plain drain: rates per run."""
    runs: dict[str, list[float]] = {"ours": [], "raw": []}
    for _ in range(size.repeats):
        runs["ours"].append(2 * _drain(cluster, RETRYING, size.retries, True)[0])
        runs["raw"].append(_drain(cluster, OURS, size.retries, True)[0])
    yield paired("retries", "jobs that fail once, runs/s (neighbour: jobqueue without failures)", runs, 0.5)


def pinned_slots(cluster: Cluster, size: Size) -> Iterator[Row]:
    """Run jobs of 1 ms in 8 slots beside an open snapshot: the last jobs against the first."""
    pairs = [_pinned_slots(cluster, size.pinned, size.pinned_part) for _ in range(size.repeats)]
    runs = {"ours": [last for _, last in pairs], "raw": [first for first, _ in pairs]}
    text = f"1 ms jobs beside a pinned snapshot, last {size.pinned_part:,} of {size.pinned:,}, jobs/s (neighbour: the first)"
    yield paired("pinned_slots", text, runs, 0.9)


def _pinned_slots(cluster: Cluster, jobs: int, part: int) -> tuple[float, float]:
    database = fresh(cluster, OURS)
    with cluster.connect(database) as pin:
        pin.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        pin.execute("SELECT count(*) FROM pg_class")
        run("-m", "bench.client", "rests", str(jobs), "0.001", environment=cluster.environment(database))
        cluster.execute("ANALYZE", database)
        with Worker(OURS, cluster, database) as worker:
            worker.wait_until_served(DRAIN_CAP_SECONDS)
        pin.execute("ROLLBACK")
    found = cluster.execute("SELECT extract(epoch FROM finished_at)::float8 FROM jobqueue_job ORDER BY finished_at", database)
    moments = [row[0] for row in found]
    return part / max(moments[part - 1] - moments[0], 1e-3), part / max(moments[-1] - moments[-part], 1e-3)


def pinned(cluster: Cluster, size: Size) -> Iterator[Row]:
    """Drain beside an open snapshot, which keeps all dead row versions: the first jobs against the last."""
    runs: dict[str, list[tuple[float, float]]] = {"ours": [], "raw": []}
    for _ in range(size.repeats):
        for subject in BOTH:
            runs[subject.name].append(_pinned(cluster, subject, size.pinned, size.pinned_part))
    for place, key, text in ((0, "pinned_first", "first"), (1, "pinned_last", "last")):
        rates = {name: [pair[place] for pair in pairs] for name, pairs in runs.items()}
        row = paired(key, f"drain beside a pinned snapshot, {text} {size.pinned_part:,} of {size.pinned:,}, jobs/s", rates)
        if place:
            share = statistics.median(last / first for first, last in runs["ours"])
            row.target, row.met = f"at least 0.9 of the first: {share:.3f}", share >= 0.9
        yield row


def _pinned(cluster: Cluster, subject: Subject, jobs: int, part: int) -> tuple[float, float]:
    database = fresh(cluster, subject)
    with cluster.connect(database) as pin:
        pin.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        pin.execute("SELECT count(*) FROM pg_class")
        subject.fill(cluster, database, jobs)
        cluster.execute("ANALYZE", database)
        with Worker(subject, cluster, database) as worker:
            worker.wait_until_served(DRAIN_CAP_SECONDS)
        pin.execute("ROLLBACK")
    moments = [row[0] for row in cluster.execute(_moments(subject), database)]
    return part / max(moments[part - 1] - moments[0], 1e-3), part / max(moments[-1] - moments[-part], 1e-3)


def _moments(subject: Subject) -> str:
    return f"SELECT extract(epoch FROM {subject.ended})::float8 AS moment FROM {subject.table} WHERE {subject.done} ORDER BY moment"


GROWING: dict[str, Callable[[Cluster, Size], Iterator[Row]]] = {
    "pinned": pinned,
    "growth": growth,
    "retries": retries,
    "pinned_slots": pinned_slots,
}
