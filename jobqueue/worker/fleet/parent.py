"""A worker's side of the line to the process that started it (see `processes`): it hears when to stop, and of others' deaths.

Where the parent is gone, whatever killed it, the worker ends in order as after a SIGTERM: nobody would watch over it any more.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence

from jobqueue.core.service import Service
from jobqueue.worker.board import Board
from jobqueue.worker.fleet import ipc
from jobqueue.worker.fleet.ipc import Link

PULSE_SECONDS = 1.0

logger = logging.getLogger("jobqueue")


class Parent(Service):
    """Talk with the parent process."""

    name = "line to the parent process"

    def __init__(self, descriptor: int, board: int) -> None:
        """Take the inherited socket and the file of the board."""
        super().__init__(self._log)
        os.set_inheritable(descriptor, False)  # not for programs that a task starts
        self._link = Link(socket.socket(fileno=descriptor))
        self.board = Board(board)
        os.close(board)
        self._pulsed_at = 0.0
        self.told_to_stop: Callable[[], None] = lambda: None
        self.left_alone: Callable[[], None] = lambda: None
        self.recover: Callable[[Mapping[str, int | None]], None] = lambda owners: None

    def turn(self) -> float | None:
        """Give a sign of life, and hear for a while."""
        if self._link.closed:
            return None
        if time.monotonic() - self._pulsed_at >= PULSE_SECONDS:
            self._pulsed_at = time.monotonic()
            self._link.send(ipc.PULSE)
        select.select([self._link], [], [], PULSE_SECONDS)
        for kind, value in self._link.receive():
            if kind == ipc.STOP:
                self.told_to_stop()
            elif kind == ipc.DEAD:
                self.recover(value)
        if self._link.closed:
            logger.error("The parent process is gone; this worker ends, too.")
            self.left_alone()
        return 0.0

    def _log(self, service: Service, error: BaseException, failures: int) -> None:
        logger.error("The %s failed (try %d) and goes on.", self.name, failures, exc_info=error)

    def reports(self) -> None:
        """Tell that this process was started as a worker, and is one."""
        self._link.send(ipc.REPORTS)

    def serves(self, worker_id: str) -> None:
        """Tell that this worker takes jobs."""
        self._link.send(ipc.SERVES, worker_id)

    def recovered(self, owners: Sequence[str]) -> None:
        """Tell whose jobs were recovered."""
        self._link.send(ipc.RECOVERED, list(owners))

    def overdue(self, job_id: int) -> None:
        """Tell that this process is to end soon because of a job."""
        self._link.send(ipc.OVERDUE, job_id)

    def leaves(self, why: str) -> None:
        """Tell why this worker ends, though the parent did not ask it to."""
        self._link.send(ipc.LEAVES, why)
