"""A worker process as its parent process sees it: its start, its time limits, and its known state."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from dataclasses import dataclass, field
from typing import Any

from jobqueue.conf import Settings
from jobqueue.worker.board import Board, new_file
from jobqueue.worker.fleet import spawn
from jobqueue.worker.fleet.ipc import PULSE, ProcessLink, pair
from jobqueue.worker.fleet.spawn import Order
from jobqueue.worker.probes.state import ProbeState

CLOSE_SECONDS = 15.0


@dataclass
class Times:
    """The seconds after which the parent process kills a worker that does not end or is silent."""

    drain_seconds: float
    hurried_seconds: float
    silent_seconds: float
    hard_seconds: float
    overdue_seconds: float


def times(settings: Settings) -> Times:
    """Return the times that follow from the settings of a worker."""
    hurried = settings.interrupt_grace_seconds + settings.delivery_grace_seconds + CLOSE_SECONDS
    hard = settings.hard_timeout_grace_seconds
    # A worker that is silent for more than two lease times has lost its leases, so its outcomes no longer count.
    return Times(
        settings.shutdown_grace_period_seconds + hurried,
        hurried,
        2 * settings.lease_seconds + 5,
        hard,
        settings.timeout_grace_seconds + hard,
    )


@dataclass
class Worker:
    """A numbered place for a worker, and the process that runs in it now."""

    number: int
    process: subprocess.Popen[bytes] | None = None
    link: ProcessLink | None = None
    identity: str = ""
    started_at: float = 0.0
    reported: bool = False  # the process runs the main function of a worker
    served_at: float | None = None
    last_message_at: float = 0.0
    state: ProbeState | None = None  # the newest that it has sent
    start_at: float = 0.0
    kill_at: float | None = None
    killed: bool = False
    leaves: str = ""
    culprit: int | None = None  # the overdue job for which the process is killed
    board: Board | None = None
    crashes: int = 0  # how often in a row the process died soon after its start
    finished: bool = False  # no job was left to do
    known_dead: set[str] = field(default_factory=set)  # the dead workers whose jobs it was asked to recover

    def start(self, order: Order) -> ProcessLink:
        """Start a process and return the link to it; raise `OSError` if the system cannot start it."""
        self.identity, self.leaves, self.known_dead = "", "", set()
        self.reported = self.killed = False
        self.served_at = self.kill_at = self.culprit = self.state = None
        parent_end, child_end = pair()
        with child_end:
            try:
                shared = new_file()
                try:
                    self.board = Board(shared)
                    self.process = spawn.start(order, self.number, child_end.fileno(), shared)
                finally:
                    os.close(shared)
            except OSError:
                parent_end.close()
                raise
        self.link, self.started_at = parent_end, time.monotonic()
        self.last_message_at = self.started_at
        return parent_end

    def record_message(self, kind: str, value: Any) -> None:
        """Record a sign of life, and the state for probes if it came with it."""
        self.last_message_at = time.monotonic()
        # A deployment may have replaced the code, so that a new worker sends another form than this process knows.
        if kind == PULSE and isinstance(value, list) and len(value) == len(ProbeState._fields):
            self.state = ProbeState(*value)

    @property
    def name(self) -> str:
        """The name of the place in logs."""
        return f"Worker process {self.number}"

    def overdue(self, now: float, times: Times) -> int | None:
        """Return the overdue job for which a silent process must be killed; None if there is none.

        The job exceeded its time limit more than `overdue_seconds` ago, and the process has sent nothing for `hard_seconds`.
        """
        at, job_id = self.board.read() if self.board is not None else (0.0, 0)
        return job_id if at and now - at > times.overdue_seconds and now - self.last_message_at > times.hard_seconds else None

    @property
    def serves(self) -> bool:
        """Whether the worker claims jobs, as far as the parent knows."""
        return self.process is not None and self.served_at is not None and not self.leaves


def collect_orphans(own_processes: set[int]) -> None:
    """Collect the exit codes of orphans that the kernel has given to process 1, but not those of the processes in `own_processes`."""
    with contextlib.suppress(ChildProcessError):
        while (exited := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None and exited.si_pid not in own_processes:
            os.waitpid(exited.si_pid, 0)
