"""The two ends of the line between the process that started the workers and one of its workers: JSON objects, one a line.

The line is a socket that the worker inherits. That it closes tells each side of the other's death, whatever it was that killed it.
"""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any

MAX_BYTES = 65_536

# What the parent says.
STOP = "stop"  # once for each signal that it got
DEAD = "dead"  # identities of workers that it saw die, and the job that each was ended because of, if any; their jobs are to be recovered
# What the worker says.
REPORTS = "reports"  # it runs the main function of a worker
SERVES = "serves"  # its identity, once it takes jobs
RECOVERED = "recovered"  # identities whose jobs were recovered
OVERDUE = "overdue"  # the job that goes on for long after its time limit
LEAVES = "leaves"  # why it ends, though nobody asked it to
PULSE = "pulse"  # it lives
DONE = "nothing is left to do"
FAILED = "a service failed"


class Link:
    """Hold one end."""

    def __init__(self, end: socket.socket) -> None:
        """Take a connected socket."""
        self._socket = end
        self._socket.setblocking(False)
        self._unread = b""
        self.closed = False

    def fileno(self) -> int:
        """Return the file descriptor, for a selector; -1 once it is closed."""
        return self._socket.fileno()

    def send(self, kind: str, value: Any = None) -> bool:
        """Say something; return False where it cannot be said: nobody is there, or nobody has read for long."""
        line = json.dumps([kind, value]).encode() + b"\n"
        try:
            return self._socket.send(line) == len(line)
        except OSError:
            return False

    def receive(self) -> list[tuple[str, Any]]:
        """Return what the other side has said since; `closed` is set where it is gone."""
        with contextlib.suppress(BlockingIOError):
            while not self.closed:
                try:
                    data = self._socket.recv(MAX_BYTES)
                except ConnectionError:
                    data = b""
                self.closed = not data
                self._unread += data
        *lines, self._unread = self._unread.split(b"\n")
        return [(kind, value) for kind, value in map(json.loads, lines)]

    def close(self) -> None:
        """Close this end."""
        self.closed = True
        self._socket.close()


def pair() -> tuple[Link, socket.socket]:
    """Return this process's end, and the socket that a child is to inherit."""
    ours, theirs = socket.socketpair()
    return Link(ours), theirs
