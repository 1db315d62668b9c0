"""The two subjects, jobqueue and the raw limit: their setup, their queues, their processes, and the times in their tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import raw
from bench.cluster import Cluster

CHECKOUT = Path(__file__).resolve().parent.parent
THREADS = "8"
CLIENT_SECONDS = 900


@dataclass(frozen=True)
class Subject:
    """The differences between the two: SQL, and arguments for the interpreter."""

    name: str
    table: str
    done: str
    began: str
    ended: str
    worker: tuple[str, ...]
    stamping_worker: tuple[str, ...]
    paced: tuple[str, ...]
    burst: tuple[str, ...]
    started: str
    fill_task: str = "noop"

    @property
    def template(self) -> str:
        """The database from which the database of each measurement is copied."""
        return f"{self.name}_template"

    def prepare(self, cluster: Cluster) -> None:
        """Create the template with empty tables."""
        cluster.create(self.template)
        if self is RAW:
            cluster.execute(raw.SCHEMA, self.template)
        else:
            run("-m", "django", "migrate", "--verbosity", "0", environment=cluster.environment(self.template))

    def fill(self, cluster: Cluster, database: str, jobs: int) -> None:
        """Queue jobs; nothing is measured."""
        if self.name == "raw":
            cluster.execute(raw.FILL.format(first=1, last=jobs), database)
        else:
            run("-m", "bench.client", "fill", str(jobs), self.fill_task, environment=cluster.environment(database))


OURS = Subject(
    name="ours",
    table="jobqueue_job",
    done="status = 'SUCCESS'",
    began="started_at",
    ended="finished_at",
    worker=("-m", "django", "runworkers", "--min-workers", THREADS, "--max-workers", THREADS),
    stamping_worker=("-m", "django", "runworkers", "--min-workers", THREADS, "--max-workers", THREADS),
    paced=("-m", "bench.client", "paced"),
    burst=("-m", "bench.client", "burst"),
    started="SELECT count(*) FROM jobqueue_worker",
)
RAW = Subject(
    name="raw",
    table="raw_job",
    done="state = 2",
    began="began",
    ended="ended",
    worker=("-m", "bench.raw", "work"),
    stamping_worker=("-m", "bench.raw", "stamp"),
    paced=("-m", "bench.raw", "paced"),
    burst=("-m", "bench.raw", "burst"),
    # Not LISTEN: pg_stat_activity shows a connection's last statement, a claim.
    started="SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'UPDATE raw_job%'",
)
BOTH = (OURS, RAW)


def variables(environment: dict[str, str]) -> dict[str, str]:
    """Return the environment of a child process."""
    return {**os.environ, "DJANGO_SETTINGS_MODULE": "bench.settings", "PYTHONUNBUFFERED": "1", **environment}


def run(*arguments: str, environment: dict[str, str]) -> Any:
    """Run the interpreter in the checkout; return the value of its last line of JSON, if there is one."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=CHECKOUT,
        env=variables(environment),
        capture_output=True,
        text=True,
        timeout=CLIENT_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else None
