"""The link of a worker to its parent process (see `jobqueue.worker.fleet.processes`), which requests stops and recoveries.

If the parent process is gone, for whatever reason, the worker ends in order as after SIGTERM, since no process watches it any more.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jobqueue.core.service import Named, Service
from jobqueue.worker.board import Board
from jobqueue.worker.fleet import ipc
from jobqueue.worker.fleet.ipc import ProcessLink
from jobqueue.worker.wakeups import Signal, Wakeups

if TYPE_CHECKING:
    from jobqueue.worker.probes.state import ProbeState

PULSE_SECONDS = 1.0

logger = logging.getLogger("jobqueue")


class Parent(Service):
    """The thread that exchanges messages with the parent process."""

    name = "line to the parent process"

    def __init__(self, descriptor: int, board: int, wakeups: Wakeups) -> None:
        """Take the descriptors of the inherited socket and of the file of the board."""
        super().__init__(self._log)
        os.set_inheritable(descriptor, False)  # programs that a task starts must not inherit it
        self._link = ProcessLink(socket.socket(fileno=descriptor))
        self.board = Board(board)
        os.close(board)
        self._pulsed_at = 0.0
        self._state: Callable[[], ProbeState] | None = None
        self.wakeups = wakeups

    def turn(self) -> float | None:
        """Send a sign of life if it is due, then wait for messages for up to `PULSE_SECONDS`."""
        if self._link.closed:
            return None
        if time.monotonic() - self._pulsed_at >= PULSE_SECONDS:
            self._pulsed_at = time.monotonic()
            self._link.send(ipc.PULSE, self._read_state())
        select.select([self._link], [], [], PULSE_SECONDS)
        for kind, value in self._link.receive():
            if kind == ipc.STOP:
                self.wakeups.set(Signal.PARENT_STOPS)
            elif kind == ipc.DEAD:
                self.wakeups.set(Signal.DEAD, value)
        if self._link.closed:
            logger.error("The parent process has ended; this worker ends, too.")
            self.wakeups.set(Signal.PARENT_GONE)
        return 0.0

    def _read_state(self) -> ProbeState | None:
        try:
            return None if self._state is None else self._state()
        except Exception:  # a bug, because of which this worker must not seem to be silent, and be killed
            logger.exception("The state of the worker cannot be read for its probes.")
            return None

    def _log(self, service: Named, error: BaseException, failures: int) -> None:
        logger.error("The %s failed (try %d) and continues.", self.name, failures, exc_info=error)

    def reports(self) -> None:
        """Report that this process runs the main function of a worker."""
        self._link.send(ipc.REPORTS)

    def serves(self, worker_id: str, state: Callable[[], ProbeState]) -> None:
        """Report that this worker claims jobs; from now on, send its state with each sign of life."""
        self._state = state
        self._link.send(ipc.SERVES, worker_id)

    def recovered(self, owners: Sequence[str]) -> None:
        """Report the dead workers whose jobs were recovered."""
        self._link.send(ipc.RECOVERED, list(owners))

    def overdue(self, job_id: int) -> None:
        """Report that this process must end soon because of a job that is over its time limit."""
        self._link.send(ipc.OVERDUE, job_id)

    def leaves(self, why: str) -> None:
        """Report why this worker ends without a request of the parent."""
        self._link.send(ipc.LEAVES, why)
