"""Start worker processes on the test database, watch them from outside, and end them.

A worker runs with `tests.faults.settings`; what differs comes by the environment. Conditions are awaited by name (`wait_until`), with
a bound, and never a time alone. Only processes started here are ever signaled.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from django.apps import apps
from django.core.management.color import no_style
from django.db import connection

from jobqueue.models import Job
from jobqueue.models import Worker as WorkerRow
from tests.faults.witness import VARIABLE, Witness

ROOT = Path(__file__).resolve().parent.parent.parent
QUICK: dict[str, Any] = {
    "LEASE_SECONDS": 3,
    "HEARTBEAT_SECONDS": 1,
    "DUTY_LEASE_SECONDS": 1.5,
    "DUTY_HEARTBEAT_SECONDS": 0.5,
    "MIN_WORKERS": 2,
    "MAX_WORKERS": 2,
    "INTERRUPT_GRACE_SECONDS": 1,
}
LEASE_SECONDS = 3
READY = "  stop      Ctrl-C"
FAILURE = re.compile(r"\S+ \S+ (\[\d+\] )?(ERROR|WARNING|INFO) Job \d+ \S+ [A-Z]+ in ")
Found = TypeVar("Found")

_pause = threading.Event()


def wait_until(condition: Callable[[], Found], what: str, seconds: float = 15.0) -> Found:
    """Return the first true answer of a condition; fail, saying what was awaited, when there is none in time."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"In {seconds} s it did not come about that {what}."
        _pause.wait(0.02)
    return found


def database_entry() -> dict[str, Any]:
    """Return the test's own database as a ``DATABASES`` entry that fits into JSON."""
    settings = connection.settings_dict
    names = ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS", "CONN_MAX_AGE", "DISABLE_SERVER_SIDE_CURSORS")
    entry = {name: settings[name] for name in names if name in settings}
    return {**entry, "NAME": str(entry["NAME"])}


def _heed_hang_up() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class WorkerProcess:
    """One ``runworkers`` in a process of its own."""

    def __init__(
        self,
        log: Path,
        witness: Witness,
        *args: str,
        database: dict[str, Any] | None = None,
        python: Iterable[str] = (),
        prefix: Iterable[str] = (),
        command: str = "runworkers",
        program: Iterable[str] = (),
        folder: Path = ROOT,
        output: int | None = None,
        environment: dict[str, str] | None = None,
        **settings: Any,
    ) -> None:
        """Start it; `settings` are those of ``JOBQUEUE``, `python` the interpreter's own options, `prefix` a program that becomes it.

        A `program` is started in place of ``python -m django runworkers``; it prints to the log, or to the descriptor `output`.
        """
        self.log = log
        values = {
            "DJANGO_SETTINGS_MODULE": "tests.faults.settings",
            "FAULTS_DATABASE": json.dumps(database or database_entry()),
            "FAULTS_JOBQUEUE": json.dumps({**QUICK, **settings}),
            VARIABLE: str(witness.path),
            **(environment or {}),
        }
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [*prefix, *(program or (sys.executable, *python, "-m", "django", command)), *args],
                cwd=folder,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **values},
                stdin=subprocess.DEVNULL,
                stdout=file if output is None else output,
                stderr=subprocess.STDOUT,
                # Under nohup a hang-up is ignored here, which a program would inherit.
                preexec_fn=_heed_hang_up if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else None,  # noqa: PLW1509
                start_new_session=True,  # a Ctrl-C in the terminal of the tests is not for it
            )

    @property
    def text(self) -> str:
        """What it has printed so far."""
        return self.log.read_text(errors="replace")

    @property
    def text_without_failures(self) -> str:
        """What it has printed so far, but for the records of failed runs, which have the tracebacks of the tasks."""
        records = re.split(r"(?m)^(?=\d{4}-\d\d-\d\d )", self.text)
        return "".join(record for record in records if not FAILURE.match(record))

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def worker_id(self) -> str:
        """The identity that it greets with."""
        found = re.search(r"jobqueue worker ([0-9a-f-]{36}) ", self.text)
        return found[1] if found else ""

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    def ready(self) -> WorkerProcess:
        """Wait until it has said what it serves."""
        wait_until(lambda: READY in self.text or not self.alive, "the worker greets", 30)
        assert self.alive, self.text
        return self

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        self.process.send_signal(number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it as the kernel does when memory is short."""
        self.send(signal.SIGKILL)
        self.process.wait(10)

    def wait(self, seconds: float = 20.0) -> int:
        """Return its exit code, once it has ended."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"The worker did not end in {seconds} s. It said:\n{self.text}") from None

    def stop(self, seconds: float = 20.0) -> int:
        """Ask the worker to end, and return its exit code; it can still be starting when other workers have done its jobs."""
        wait_until(lambda: READY in self.text or not self.alive, "the worker greets", 30)
        self.terminate()
        return self.wait(seconds)

    def hurry(self) -> None:
        """Send the signal to end twice; the kernel merges a second signal that follows immediately."""
        self.terminate()
        wait_until(lambda: "Stopping: " in self.text or not self.alive, "the worker receives the first signal")
        self.terminate()

    def clean_up(self) -> None:
        """End it whatever state it is in, and show what it said if the test fails."""
        if self.alive:
            self.send(signal.SIGCONT)
            self.kill()
        sys.stdout.write(f"--- {self.log.name}, exit code {self.process.returncode}\n{self.text}\n")


class Workers:
    """Start workers for a test, and end them all with it."""

    def __init__(self, directory: Path, queue: str = "") -> None:
        """Keep logs and the witness's file in a directory; with a queue, serve that one alone."""
        self.directory, self.queue = directory, queue
        self.witness = Witness(directory / "witness.jsonl")
        self._started: list[WorkerProcess] = []

    def start(self, *args: str, **options: Any) -> WorkerProcess:
        """Start a worker; see `WorkerProcess`."""
        log = self.directory / f"worker-{len(self._started) + 1}.log"
        if self.queue:
            args = ("--queues", self.queue, *args)
        worker = WorkerProcess(log, self.witness, *args, **options)
        self._started.append(worker)
        return worker

    def enqueue(self, task: Any, *args: Any, **options: Any) -> Any:
        """Enqueue a job for these workers."""
        return task.using(queue_name=self.queue or "default", **options).enqueue(*args)

    @property
    def jobs(self) -> Any:
        """The jobs of these workers."""
        return Job.objects.current.in_queues([self.queue] if self.queue else [])

    @property
    def shown(self) -> int:
        """How many of these workers show themselves."""
        return len([row for row in WorkerRow.objects.all() if not self.queue or row.queues == [self.queue]])

    def clean_up(self) -> None:
        """End them all."""
        for worker in self._started:
            worker.clean_up()


def empty_tables() -> None:
    """Empty the app's tables, also those that the duties of real workers fill."""
    tables = [model._meta.db_table for model in apps.get_app_config("jobqueue").get_models()]
    connection.ops.execute_sql_flush(connection.ops.sql_flush(no_style(), tables, allow_cascade=True))


def state(job: Any) -> str:
    """Return a job's status as the database has it now."""
    return str(Job.objects.values_list("status", flat=True).get(pk=job_id(job)))


def job_id(job: Any) -> int:
    """Return the id of a job or of a task result."""
    return int(job.pk if isinstance(job, Job) else getattr(job, "job_id", job))


def row(job: Any) -> Job:
    """Return a job's row as it is now."""
    return Job.objects.get(pk=job_id(job))


def wait_for(job: Any, *statuses: str, seconds: float = 15.0) -> Job:
    """Return a job's row once its status is one of these."""
    found: dict[str, Job] = {}

    def is_there() -> bool:
        found["job"] = row(job)
        return found["job"].status in statuses

    try:
        wait_until(is_there, f"job {job_id(job)} is {' or '.join(statuses)}", seconds)
    except AssertionError as error:
        raise AssertionError(f"{error} It is {found['job'].status}: {found['job'].message}") from None
    return found["job"]


def wait_until_started(witness: Witness, *jobs: Any, seconds: float = 15.0) -> None:
    """Return once the witness has seen every one of these jobs begin."""
    wanted = {job_id(job) for job in jobs}
    wait_until(lambda: wanted <= set(witness.starts()), f"the jobs {sorted(wanted)} have begun", seconds)
