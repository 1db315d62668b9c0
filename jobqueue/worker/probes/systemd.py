"""Messages to systemd for a service of ``Type=notify``: READY, STOPPING, and WATCHDOG while heartbeats are written."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable

from jobqueue.core.service import Named, Service
from jobqueue.worker.probes.state import ProbeState

START_SECONDS = 0.2
CHECK_SECONDS = 1.0

logger = logging.getLogger("jobqueue")


class SystemdNotifier(Service):
    """The thread that sends the state of this process to the socket of the service manager."""

    name = "systemd notifier"

    def __init__(self, path: str, watchdog_seconds: float | None, state: Callable[[], ProbeState]) -> None:
        """Store the path of the socket; a path with a leading ``@`` is an abstract one. Without `watchdog_seconds`, send no WATCHDOG."""
        super().__init__(self._log)
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        self._watchdog_seconds, self._state = watchdog_seconds, state
        self._sent: set[str] = set()

    def turn(self) -> float | None:
        """Send what has changed, and a sign of life if heartbeats are written."""
        state = self._state()
        if state.begun:
            self._send_once("READY=1")
        if state.ending:
            self._send_once("STOPPING=1")
        if self._watchdog_seconds is None:
            return CHECK_SECONDS if state.begun else START_SECONDS
        if not state.unhealthy:
            self._send("WATCHDOG=1")
        return min(CHECK_SECONDS if state.begun else START_SECONDS, self._watchdog_seconds / 3)

    def _send_once(self, message: str) -> None:
        if message not in self._sent:
            self._send(message)
            self._sent.add(message)

    def _send(self, message: str) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)  # systemd may not read; the next message follows soon
            sender.connect(self._address)
            sender.send(message.encode())

    def _log(self, service: Named, error: BaseException, failures: int) -> None:
        if failures == 1:
            logger.warning("systemd cannot be notified: %s", error)


def from_environment(state: Callable[[], ProbeState]) -> SystemdNotifier | None:
    """Return the notifier if systemd has given this process a socket. The variables are removed: they are not for programs of tasks."""
    path = os.environ.pop("NOTIFY_SOCKET", "")
    interval, pid = os.environ.pop("WATCHDOG_USEC", ""), os.environ.pop("WATCHDOG_PID", "")
    if not path:
        return None
    is_ours = interval.isdigit() and int(interval) > 0 and pid in ("", str(os.getpid()))
    return SystemdNotifier(path, int(interval) / 1_000_000 if is_ours else None, state)
