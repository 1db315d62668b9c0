"""The effect of retention on pick-up times: how soon jobs begin while expired jobs with two events each are deleted."""

from __future__ import annotations

import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import stamps
from bench.cluster import Cluster
from bench.scenarios import GAP_SECONDS, QUIET_SECONDS, WARM_UP, Row, Size, fresh, quantile
from bench.subjects import OURS, run
from bench.worker import Worker

PRUNE = dataclasses.replace(OURS, worker=("-m", "django", "jobqueue", "prune", "--older-than", "3600"))
EXPIRED = (
    "INSERT INTO jobqueue_job (task, queue, status, finished_at, result) SELECT 'bench.tasks.noop', 'old', 'SUCCESS',"
    " now() - interval '1 day', to_jsonb(repeat('x', 200)) FROM generate_series(1, {}) AS n"
)
EVENTS = (
    "INSERT INTO jobqueue_jobevent (job_id, name, at, attempt) SELECT j.id, e.name, now() - interval '1 day', 1 FROM jobqueue_job AS j,"
    " (VALUES ('job.started'), ('job.completed')) AS e(name) ORDER BY j.id"
)
LEFT = "SELECT count(*) FROM jobqueue_job WHERE queue = 'old'"


def retention(cluster: Cluster, size: Size) -> Iterator[Row]:
    """Time from before the enqueue call to the first line of the handler, beside a deletion and without."""
    found: dict[str, list[float]] = {"beside": [], "without": []}
    rates: list[float] = []
    memory: list[float] = []
    for _ in range(size.repeats):
        for name in found:
            times, rate, held = _paced(cluster, size, beside=name == "beside")
            found[name] += times
            if name == "beside":
                rates.append(rate)
                memory.append(held)
    late = {name: quantile(times, 0.95) for name, times in found.items()}
    ratio = late["beside"] / late["without"]
    text = f"pick-up p95 while {size.expired:,} expired jobs are deleted, ms (raw: jobqueue with nothing deleted)"
    yield Row("retention_p95", text, late["beside"], late["without"], ratio, "at most 2 x", ratio <= 2.0, dict(found))
    yield Row("retention_rate", "expired jobs deleted meanwhile, jobs/s", statistics.median(rates), runs={"rates": rates})
    yield Row("retention_memory", "the process that deletes, MB", max(memory), target="at most 150", met=max(memory) <= 150)


def _paced(cluster: Cluster, size: Size, *, beside: bool) -> tuple[list[float], float, float]:
    """Return the times in ms, the deleted jobs per second meanwhile, and the memory of the deleting process in MB."""
    database = fresh(cluster, OURS)
    cluster.execute(EXPIRED.format(size.expired), database)
    cluster.execute(EVENTS, database)
    for table in ("jobqueue_job", "jobqueue_jobevent"):
        cluster.execute(f"VACUUM ANALYZE {table}", database)
    cluster.execute("CHECKPOINT", database)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "stamps"
        with Worker(OURS, cluster, database, stamps=str(file)):
            environment = cluster.environment(database)
            run(*OURS.paced, "0", str(WARM_UP), str(GAP_SECONDS), environment=environment)
            _wait_until_begun(file, WARM_UP)
            time.sleep(QUIET_SECONDS)
            if not beside:
                sent, rate, held = run(*OURS.paced, str(WARM_UP), str(size.latency), str(GAP_SECONDS), environment=environment), 0.0, 0.0
            else:
                with Worker(PRUNE, cluster, database) as prune:
                    before, began = _until_it_deletes(cluster, database, size.expired), time.monotonic()
                    held = prune.rss_megabytes
                    sent = run(*OURS.paced, str(WARM_UP), str(size.latency), str(GAP_SECONDS), environment=environment)
                    rate = (before - cluster.execute(LEFT, database)[0][0]) / (time.monotonic() - began)
                    held = max(held, prune.rss_megabytes if prune.alive else 0.0)
            _wait_until_begun(file, WARM_UP + size.latency)
        begun = stamps.read(file)
    return [1000 * (begun[int(number)] - moment) for number, moment in sent.items()], rate, held


def _until_it_deletes(cluster: Cluster, database: str, expired: int) -> int:
    """Wait until the first batch is deleted; return how many jobs are left."""
    return int(_awaited(lambda: left if (left := cluster.execute(LEFT, database)[0][0]) < expired else None, "a deletion"))


def _wait_until_begun(file: Path, jobs: int) -> None:
    _awaited(lambda: len(stamps.read(file)) >= jobs or None, f"the begin of {jobs} jobs")


def _awaited(look: Callable[[], float | None], what: str) -> float:
    until = time.monotonic() + 60
    while (found := look()) is None:
        if time.monotonic() > until:
            raise RuntimeError(f"A minute was not enough for {what}")
        time.sleep(0.1)
    return found


RETENTION: dict[str, Callable[[Cluster, Size], Iterator[Row]]] = {"retention": retention}
