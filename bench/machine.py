"""The whole machine, many coroutines at a time, half load, the heartbeat of many running jobs, and many idle workers."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import stamps
from bench.cluster import Cluster
from bench.lines import _wait_until
from bench.scenarios import DRAIN_CAP_SECONDS, QUIET_SECONDS, SETTLED_SECONDS, WARM_UP, Row, Size, _drain, fresh, paired, quantile
from bench.subjects import BOTH, OURS, RAW, THREADS, Subject, run
from bench.worker import Worker, processor_seconds

REST_SECONDS = 0.05
AT_ONCE = "500"
LONG_SECONDS = "300.0"
RENEWALS = (
    "SELECT sum(calls), sum(rows) FROM pg_stat_statements"
    " WHERE query LIKE 'UPDATE%jobqueue_job%SET priority = priority, lease_expires_at%heartbeat_at%'"
    " AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
UPDATES = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'jobqueue_job'"
CALLS = "SELECT sum(calls) FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"


@dataclasses.dataclass(frozen=True)
class Drained:
    """The result of a drain by several processes: its rate, and the processor time per job.

    The times are in microseconds, of the workers and of the server.
    """

    rate: float
    worker: float
    server: float


def processes(cluster: Cluster, size: Size) -> Iterator[Row]:
    """Drain with 1, 2, 3 ... processes, against as many of the raw limit; all have started before there are jobs."""
    found: dict[int, Row] = {}
    one: list[Drained] = []
    for count in size.processes:
        seen: dict[str, list[Drained]] = {"ours": [], "raw": []}
        for _ in range(size.repeats):
            for subject in BOTH:
                seen[subject.name].append(_processes(cluster, subject, count, count * size.drain))
        rates = {name: [drained.rate for drained in runs] for name, runs in seen.items()}
        row = paired(f"processes_{count}", f"drain with {count} process{'es' if count > 1 else ''}, jobs/s", rates)
        one = one or seen["ours"]
        model = _model(one, size.processes[0], count)
        row.target = f"model: {model:,.0f}"
        row.runs |= {"model": model, "microseconds_per_job": {name: [dataclasses.asdict(of) for of in runs] for name, runs in seen.items()}}
        found[count] = row
        yield row
    count, best = max(found.items(), key=lambda item: item[1].ours)
    ratio = best.ratio or 0.0
    yield Row(
        "machine", f"the whole machine: {count} processes, jobs/s", best.ours, best.raw, ratio, "ratio at least 0.45", met=ratio >= 0.45
    )


def _model(known: list[Drained], of: int, count: int) -> float:
    """Return the rate that a model predicts for `count` processes: proportional to the processes, until the cores are used up."""
    rate = statistics.median(one.rate for one in known) * count / of
    spent = statistics.median(one.worker + one.server for one in known)
    return min(rate, 1e6 * (os.cpu_count() or 1) / spent)


def _processes(cluster: Cluster, subject: Subject, count: int, jobs: int) -> Drained:
    database = fresh(cluster, subject)
    many = subject if subject is RAW else dataclasses.replace(subject, worker=(*subject.worker, "--processes", str(count)))
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(many, cluster, database)) for _ in range(count if subject is RAW else 1)]
        _wait_until(cluster, database, f"SELECT ({subject.started}) >= {count}")
        time.sleep(QUIET_SECONDS)
        before = sum(worker.cpu_seconds for worker in workers)
        served = processor_seconds(cluster.processes())
        run(*subject.burst, str(jobs), environment=cluster.environment(database))
        done, ended = workers[0].wait_until_done(jobs, DRAIN_CAP_SECONDS)
        # All processes of the server now: some connections are opened with the first job.
        spent, served = sum(worker.cpu_seconds for worker in workers) - before, processor_seconds(cluster.processes()) - served
    if done < jobs:
        raise RuntimeError(f"{count} processes of {subject.name} did {done} of {jobs} jobs in {DRAIN_CAP_SECONDS} s")
    began = cluster.execute(f"SELECT extract(epoch FROM min({subject.began}))::float8 FROM {subject.table}", database)[0][0]
    return Drained(done / (ended - began), 1e6 * spent / done, 1e6 * served / done)


def coroutines(cluster: Cluster, size: Size) -> Iterator[Row]:
    """Run coroutines of 10 ms, 500 at a time, against bare asyncio between one claim and one finish of 500."""
    slots = ("--min-workers", AT_ONCE, "--max-workers", AT_ONCE)
    ours = dataclasses.replace(OURS, fill_task="nap", worker=("-m", "django", "runworkers", *slots))
    bare = dataclasses.replace(RAW, worker=("-m", "bench.raw", "nap"))
    runs: dict[str, list[float]] = {"ours": [], "raw": []}
    cpu: dict[str, list[float]] = {"ours": [], "raw": []}
    for _ in range(size.repeats):
        for subject in (ours, bare):
            rate, micros = _drain(cluster, subject, size.coroutines, True)
            runs[subject.name].append(rate)
            cpu[subject.name].append(micros)
    row = paired("coroutines", f"coroutines of 10 ms, {AT_ONCE} at a time, jobs/s", runs, 0.6)
    row.runs["cpu_microseconds_per_job"] = cpu
    yield row


def half_load(cluster: Cluster, size: Size) -> Iterator[Row]:
    """Time the pick-up while half of the slots are busy: jobs of 50 ms, half as many in that time as there are slots."""
    found = [moment for _ in range(size.repeats) for moment in _half_load(cluster, size.half_load)]
    for part in (50, 99):
        row = Row(f"half_load_p{part}", f"pick-up p{part} with half of the slots busy, ms", quantile(found, part / 100))
        if part == 99:
            row.target, row.met, row.runs = "at most 50", row.ours <= 50, {"ours": found}
        yield row


def _half_load(cluster: Cluster, jobs: int) -> list[float]:
    database = fresh(cluster, OURS)
    gap = str(REST_SECONDS / (int(THREADS) / 2))
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
    """Measure the heartbeats of many running jobs: their statements, and the share of updates that change no index."""
    slots = ("--min-workers", str(size.running), "--max-workers", str(size.running))
    subject = dataclasses.replace(OURS, worker=("-m", "django", "runworkers", *slots))
    database = fresh(cluster, OURS)
    run("-m", "bench.client", "rests", str(size.running), LONG_SECONDS, environment=cluster.environment(database))
    with Worker(subject, cluster, database, environment={"BENCH_HEARTBEAT": str(size.heartbeat_every)}) as worker:
        _wait_until(cluster, database, f"SELECT count(*) = {size.running} FROM jobqueue_job WHERE status = 'RUNNING'")
        time.sleep(size.heartbeat_every + QUIET_SECONDS)  # each job has its first renewal, and its start is written
        before = _counts(cluster, database)
        time.sleep(size.heartbeat_seconds)
        calls, rows, updated, heap_only = (now - then for now, then in zip(_counts(cluster, database), before, strict=True))
        worker.kill()
    if not rows or not updated:
        raise RuntimeError(f"No heartbeat was seen in {size.heartbeat_seconds} s: {calls:.0f} statements, {updated:.0f} updates")
    each = size.running * calls / rows
    text = f"statements for one heartbeat of {size.running} jobs"
    yield Row("heartbeat", text, each, target="one", met=each < 1.1, runs={"calls": calls, "rows": rows})
    share = 100 * heap_only / updated
    seen = {"updated": updated, "heap_only": heap_only}
    yield Row("heartbeat_heap_only", "heap-only updates of it, %", share, target="above 95", met=share > 95, runs=seen)


def _counts(cluster: Cluster, database: str) -> tuple[float, ...]:
    return tuple(float(value or 0) for value in (*cluster.execute(RENEWALS, database)[0], *cluster.execute(UPDATES, database)[0]))


def idle_many(cluster: Cluster, size: Size) -> Iterator[Row]:
    """Measure many idle workers on one database: statements and processor time of each."""
    database = fresh(cluster, OURS)
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(OURS, cluster, database)) for _ in range(size.idle_workers)]
        _wait_until(cluster, database, f"SELECT ({OURS.started}) >= {size.idle_workers}")
        time.sleep(min(size.idle_seconds, SETTLED_SECONDS))
        before, cpu, began = _calls(cluster, database), sum(one.cpu_seconds for one in workers), time.monotonic()
        time.sleep(size.idle_seconds)
        span = (time.monotonic() - began) * len(workers)
        statements = (_calls(cluster, database) - before) / span
        percent = 100 * (sum(one.cpu_seconds for one in workers) - cpu) / span
    text = f"each of {len(workers)} idle workers"
    yield Row("idle_many_statements", f"{text}, statements/s", statements, target="at most 2", met=statements <= 2)
    yield Row("idle_many_cpu", f"{text}, CPU %", percent, target="below 0.5", met=percent < 0.5)


def _calls(cluster: Cluster, database: str) -> float:
    return float(cluster.execute(CALLS, database)[0][0] or 0)


MACHINE: dict[str, Callable[[Cluster, Size], Iterator[Row]]] = {
    "processes": processes,
    "coroutines": coroutines,
    "half_load": half_load,
    "heartbeat": heartbeat,
    "idle_many": idle_many,
}
