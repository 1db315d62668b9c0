"""The whole machine, many coroutines at once, half load, and the heartbeat of many running jobs."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import stamps
from bench.cluster import Cluster
from bench.scenarios import DRAIN_CAP_SECONDS, WARM_UP, Row, Size, _drain, fresh, paired, quantile
from bench.subjects import BOTH, OURS, RAW, Subject, run
from bench.worker import Worker

REST_SECONDS = 0.05
SLOTS = 8
AT_ONCE = "500"
RUNNING = 200
RENEWALS = (
    "SELECT sum(calls)::float8, sum(rows)::float8 FROM pg_stat_statements WHERE query ILIKE '%UPDATE%heartbeat_at%'"
    " AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
UPDATES = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'jobqueue_job'"


def processes(cluster: Cluster, size: Size) -> Iterator[Row]:
    """Drain with 1, 2, 3 ... processes, against as many of the raw limit; all have started before there is work."""
    found = {}
    for count in size.processes:
        runs: dict[str, list[float]] = {"ours": [], "raw": []}
        for _ in range(size.repeats):
            for subject in BOTH:
                runs[subject.name].append(_processes(cluster, subject, count, size.drain))
        found[count] = paired(f"processes_{count}", f"drain with {count} processes, jobs/s", runs)
        yield found[count]
    count, best = max(found.items(), key=lambda item: item[1].ours)
    ratio = best.ratio or 0.0
    text = f"the whole machine, {count} processes, jobs/s"
    yield Row("processes", text, best.ours, best.raw, ratio, "ratio at least 0.45", ratio >= 0.45)


def _processes(cluster: Cluster, subject: Subject, count: int, jobs: int) -> float:
    database = fresh(cluster, subject)
    many = subject if subject is RAW else dataclasses.replace(subject, worker=(*subject.worker, "--processes", str(count)))
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(many, cluster, database)) for _ in range(count if subject is RAW else 1)]
        _wait_for_listeners(cluster, database, count)
        subject.fill(cluster, database, jobs)
        if subject is RAW:
            cluster.execute("NOTIFY raw_job", database)
        done, ended = workers[0].wait_until_done(jobs, DRAIN_CAP_SECONDS)
    began = cluster.execute(f"SELECT extract(epoch FROM min({subject.began}))::float8 FROM {subject.table}", database)[0][0]
    return done / (ended - began)


def _wait_for_listeners(cluster: Cluster, database: str, count: int) -> None:
    look = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}' AND query ILIKE 'LISTEN%'"
    until = time.monotonic() + 30
    while cluster.execute(look)[0][0] < count and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(1.0)


def coroutines(cluster: Cluster, size: Size) -> Iterator[Row]:
    """Run coroutines of 10 ms, 500 at a time, against bare asyncio between one claim and one finish of 500."""
    slots = ("--min-workers", AT_ONCE, "--max-workers", AT_ONCE)
    ours = dataclasses.replace(OURS, fill_task="nap", worker=("-m", "django", "runworkers", *slots))
    bare = dataclasses.replace(RAW, worker=("-m", "bench.raw", "nap"))
    runs: dict[str, list[float]] = {"ours": [], "raw": []}
    for _ in range(size.repeats):
        runs["ours"].append(_drain(cluster, ours, size.coroutines, True)[0])
        runs["raw"].append(_drain(cluster, bare, size.coroutines, True)[0])
    yield paired("coroutines", f"coroutines of 10 ms, {AT_ONCE} at a time, jobs/s", runs, 0.6)


def half_load(cluster: Cluster, size: Size) -> Iterator[Row]:
    """Time the pick-up while half of the slots are busy: jobs of 50 ms, four in that time, for 8 slots."""
    found = [moment for _ in range(size.repeats) for moment in _half_load(cluster, size.half_load)]
    for part in (50, 95, 99):
        row = Row(f"half_load_p{part}", f"pick-up p{part} with half of the slots busy, ms", quantile(found, part / 100))
        if part == 99:
            row.target, row.met, row.runs = "at most 50 ms", row.ours <= 50, {"ours": found}
        yield row


def _half_load(cluster: Cluster, jobs: int) -> list[float]:
    database = fresh(cluster, OURS)
    gap = str(REST_SECONDS / (SLOTS / 2))
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "stamps"
        with Worker(OURS, cluster, database, stamps=str(file)) as worker:
            environment = cluster.environment(database)
            run("-m", "bench.client", "half", "0", str(WARM_UP), gap, environment=environment)
            worker.wait_until_served()
            sent = run("-m", "bench.client", "half", str(WARM_UP), str(jobs), gap, environment=environment)
            worker.wait_until_served()
        began = stamps.read(file)
    return [1000 * (began[int(number)] - moment) for number, moment in sent.items()]


def heartbeat(cluster: Cluster, size: Size) -> Iterator[Row]:
    """Watch the heartbeats of 200 running jobs: statements for each, and how many of the updates stay out of the indexes."""
    slots = ("--min-workers", str(RUNNING), "--max-workers", str(RUNNING))
    subject = dataclasses.replace(OURS, worker=("-m", "django", "runworkers", *slots))
    database = fresh(cluster, OURS)
    seconds = size.heartbeat_seconds
    run("-m", "bench.client", "rests", str(RUNNING), str(seconds + 20.0), environment=cluster.environment(database))
    with Worker(subject, cluster, database, environment={"BENCH_HEARTBEAT": str(size.heartbeat_every)}):
        until = time.monotonic() + 30
        running = "SELECT count(*) FROM jobqueue_job WHERE status = 'RUNNING'"
        while cluster.execute(running, database)[0][0] < RUNNING and time.monotonic() < until:
            time.sleep(0.2)
        time.sleep(size.heartbeat_every + 1.0)
        before = _counts(cluster, database)
        time.sleep(seconds)
        calls, rows, updated, heap_only = (now - then for now, then in zip(_counts(cluster, database), before, strict=True))
    each = RUNNING * calls / max(rows, 1)
    yield Row("heartbeat", f"statements for one heartbeat of {RUNNING} jobs", each, target="one", met=0.9 < each < 1.1)
    share = 100 * heap_only / max(updated, 1)
    yield Row("heartbeat_heap_only", "heap-only updates of it, %", share, target="above 95", met=share > 95)


def _counts(cluster: Cluster, database: str) -> tuple[float, ...]:
    return tuple(float(value or 0) for value in (*cluster.execute(RENEWALS, database)[0], *cluster.execute(UPDATES, database)[0]))


def idle_many(cluster: Cluster, size: Size) -> Iterator[Row]:
    """Watch many idle workers on one database: statements and processor time of each."""
    database = fresh(cluster, OURS)
    look = "SELECT sum(calls)::float8 FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(OURS, cluster, database)) for _ in range(size.idle_workers)]
        time.sleep(2.0 + size.idle_seconds / 2)
        before, cpu, began = cluster.execute(look, database)[0][0] or 0.0, [one.cpu_seconds for one in workers], time.monotonic()
        time.sleep(size.idle_seconds)
        span = (time.monotonic() - began) * len(workers)
        calls = cluster.execute(look, database)[0][0] - before
        spent = statistics.mean(one.cpu_seconds - then for one, then in zip(workers, cpu, strict=True)) * len(workers)
    statements, percent, text = calls / span, 100 * spent / span, f"each of {len(workers)} idle workers"
    yield Row("idle_many_statements", f"{text}, statements/s", statements, target="at most 2", met=statements <= 2)
    yield Row("idle_many_cpu", f"{text}, CPU %", percent, target="below 0.5", met=percent < 0.5)


MACHINE: dict[str, Callable[[Cluster, Size], Iterator[Row]]] = {
    "processes": processes,
    "coroutines": coroutines,
    "half_load": half_load,
    "heartbeat": heartbeat,
    "idle_many": idle_many,
}
