"""A real worker process, and functions that wait for its results."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from types import TracebackType
from typing import IO, Self

import psutil

from bench.cluster import Cluster
from bench.subjects import CHECKOUT, Subject, variables

LOOK_SECONDS = 0.005
STOP_SECONDS = 15
MEGABYTE = 2**20


def processor_seconds(processes: Iterable[psutil.Process]) -> float:
    """Return the processor time of those of the processes that still exist."""
    spent = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            spent += times.user + times.system
    return spent


class Worker:
    """One worker process of a subject on a database, which ends with the context."""

    def __init__(
        self, subject: Subject, cluster: Cluster, database: str, *, stamps: str = "", environment: dict[str, str] | None = None
    ) -> None:
        """Store the arguments; with `stamps`, the jobs record when they begin."""
        self._subject, self._cluster, self._database = subject, cluster, database
        self._arguments = subject.stamping_worker if stamps else subject.worker
        self._environment = {**cluster.environment(database), **({"BENCH_STAMPS": stamps} if stamps else {}), **(environment or {})}
        self._log: IO[bytes]
        self._process: psutil.Popen

    def __enter__(self) -> Self:
        """Start the process."""
        self._log = tempfile.TemporaryFile()
        self._process = psutil.Popen(
            [sys.executable, *self._arguments],
            cwd=CHECKOUT,
            env=variables(self._environment),
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop the process: by SIGTERM, else by SIGKILL."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except psutil.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    @property
    def rss_megabytes(self) -> float:
        """The memory that the process holds now."""
        return float(self._process.memory_info().rss) / MEGABYTE

    @property
    def cpu_seconds(self) -> float:
        """The processor time that it and its children have used."""
        return processor_seconds([self._process, *self._process.children(recursive=True)])

    def kill(self) -> None:
        """Kill the process, without waiting for its jobs."""
        self._process.kill()

    def wait_until_done(self, jobs: int, cap_seconds: float) -> tuple[int, float]:
        """Wait until the database has recorded this number of jobs as done, or the time is up; return how many, and the time.

        Only the newest job is queried, by its key, until it is done; then all are counted. Queries must not affect
        the measurement.
        """
        look = f"SELECT count(*) FROM {self._subject.table} WHERE {self._subject.done}"
        # In the list of columns: as a condition, it would make the planner use an index of all done jobs.
        newest = f"SELECT {self._subject.done} FROM {self._subject.table} WHERE id = (SELECT max(id) FROM {self._subject.table})"
        until = time.monotonic() + cap_seconds
        with self._cluster.connect(self._database) as connection:
            while time.monotonic() < until:
                row = connection.execute(newest, prepare=True).fetchone()
                if row and row[0]:
                    found = connection.execute(look, prepare=True).fetchone()
                    if found and found[0] >= jobs:
                        return found[0], time.time()
                if self._process.poll() is not None:
                    raise RuntimeError(f"The worker of {self._subject.name} ended by itself: {self._tail()}")
                time.sleep(LOOK_SECONDS)
            return connection.execute(look).fetchone()[0], time.time()  # type: ignore[index]

    def wait_until_count(self, jobs: int, cap_seconds: float) -> None:
        """Wait until this number of jobs is done."""
        look = f"SELECT count(*) FROM (SELECT 1 FROM {self._subject.table} WHERE {self._subject.done} LIMIT {jobs}) AS done"
        until = time.monotonic() + cap_seconds
        with self._cluster.connect(self._database) as connection:
            while connection.execute(look).fetchone()[0] < jobs:  # type: ignore[index]
                if time.monotonic() > until or not self.alive:
                    raise RuntimeError(f"Not {jobs} jobs done in {cap_seconds} s: {self._tail()}")
                time.sleep(0.1)  # the query can read the whole table

    def wait_until_served(self, cap_seconds: float = 60.0) -> None:
        """Wait until all jobs in the table are done; raise if that takes too long."""
        count = f"SELECT count(*) FROM {self._subject.table}"
        with self._cluster.connect(self._database) as connection:
            row = connection.execute(count).fetchone()
        jobs = row[0] if row else 0
        done, _ = self.wait_until_done(jobs, cap_seconds)
        if done < jobs:
            raise RuntimeError(f"The worker of {self._subject.name} did {done} of {jobs} jobs in {cap_seconds} s: {self._tail()}")

    def _tail(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-2000:]
