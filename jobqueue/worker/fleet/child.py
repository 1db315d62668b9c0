"""One worker process as the one that started it sees it: how it is started, how long it may take, what is known of it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from dataclasses import dataclass, field

from jobqueue.conf import Settings
from jobqueue.worker.board import Board, new_file
from jobqueue.worker.fleet import spawn
from jobqueue.worker.fleet.ipc import Link, pair
from jobqueue.worker.fleet.spawn import Order

CLOSE_SECONDS = 15.0


@dataclass
class Times:
    """Say how long a worker may take to end, and how long it may be silent."""

    drain_seconds: float
    hurried_seconds: float
    silent_seconds: float
    hard_seconds: float
    overdue_seconds: float


def times(settings: Settings) -> Times:
    """Return the times that follow from a worker's settings."""
    hurried = settings.interrupt_grace_seconds + settings.delivery_grace_seconds + CLOSE_SECONDS
    hard = settings.hard_timeout_grace_seconds
    # By then its leases are lost for long, and what it still did would count for nothing.
    return Times(
        settings.shutdown_grace_period_seconds + hurried,
        hurried,
        2 * settings.lease_seconds + 5,
        hard,
        settings.timeout_grace_seconds + hard,
    )


@dataclass
class Worker:
    """Hold one of the numbered places for a worker, and the process that fills it at the moment."""

    number: int
    process: subprocess.Popen[bytes] | None = None
    link: Link | None = None
    identity: str = ""
    started_at: float = 0.0
    reported: bool = False  # it runs our own main function
    served_at: float | None = None
    heard_at: float = 0.0
    start_at: float = 0.0
    kill_at: float | None = None
    killed: bool = False
    leaves: str = ""
    culprit: int | None = None  # the job that it is ended because of
    board: Board | None = None
    falls: int = 0  # how often it died lately
    finished: bool = False  # it has done all that there was to do
    told: set[str] = field(default_factory=set)  # of the dead, those that it was told of

    def start(self, order: Order) -> Link:
        """Start a process and return the link to it; raise `OSError` if the system refuses."""
        self.identity, self.leaves, self.told = "", "", set()
        self.reported = self.killed = False
        self.served_at = self.kill_at = self.culprit = None
        ours, theirs = pair()
        with theirs:
            try:
                shared = new_file()
                try:
                    self.board = Board(shared)
                    self.process = spawn.start(order, self.number, theirs.fileno(), shared)
                finally:
                    os.close(shared)
            except OSError:
                ours.close()
                raise
        self.link, self.started_at = ours, time.monotonic()
        self.heard_at = self.started_at
        return ours

    @property
    def name(self) -> str:
        """What people call it."""
        return f"Worker process {self.number}"

    def overdue(self, now: float, times: Times) -> int | None:
        """Return the job whose time limit is over for so long that its process must end, though it cannot say so."""
        at, job_id = self.board.read() if self.board is not None else (0.0, 0)
        return job_id if at and now - at > times.overdue_seconds and now - self.heard_at > times.hard_seconds else None

    @property
    def serves(self) -> bool:
        """Whether it takes jobs, as far as is known."""
        return self.process is not None and self.served_at is not None and not self.leaves


def collect_orphans(mine: set[int]) -> None:
    """Collect the exit codes of processes that the kernel gave to process 1, but of none of its own children."""
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None and found.si_pid not in mine:
            os.waitpid(found.si_pid, 0)
