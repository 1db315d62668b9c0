"""The link between the parent process and one worker: a socket that carries one JSON array per line.

The worker inherits its end of the socket. When one side dies, for whatever reason, the socket closes, and the other side notices.
"""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any

MAX_BYTES = 65_536

# Messages of the parent
STOP = "stop"  # sent once for each signal that the parent got
DEAD = "dead"  # identities of dead workers whose jobs must be recovered, each with the overdue job for which it was killed, or null
# Messages of the worker
REPORTS = "reports"  # the process runs the main function of a worker
SERVES = "serves"  # its identity, when it begins to claim jobs
RECOVERED = "recovered"  # identities of dead workers whose jobs were recovered
OVERDUE = "overdue"  # the job that still runs long after its time limit
LEAVES = "leaves"  # why the worker ends without a request to stop
PULSE = "pulse"  # a sign of life, with the state for probes once the worker serves
DONE = "nothing is left to do"
FAILED = "a service failed"


class ProcessLink:
    """One end of the link."""

    def __init__(self, end: socket.socket) -> None:
        """Take a connected socket, and make it non-blocking."""
        self._socket = end
        self._socket.setblocking(False)
        self._unread = b""
        self.closed = False

    def fileno(self) -> int:
        """Return the file descriptor, for a selector; -1 when the link is closed."""
        return self._socket.fileno()

    def send(self, kind: str, value: Any = None) -> bool:
        """Send a message; return False if the other side is gone, or the buffer is full because the other side does not read."""
        line = json.dumps([kind, value]).encode() + b"\n"
        try:
            return self._socket.send(line) == len(line)
        except OSError:
            return False

    def receive(self) -> list[tuple[str, Any]]:
        """Return the messages that have arrived since the last call; set `closed` if the other side is gone."""
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


def pair() -> tuple[ProcessLink, socket.socket]:
    """Return the end of this process, and the socket that the child inherits."""
    parent_end, child_end = socket.socketpair()
    return ProcessLink(parent_end), child_end
