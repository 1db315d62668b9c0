"""Child processes in groups of their own: Ctrl-C reaches them only through the demo, and each ends with its whole group."""

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from demo_project.launch.stop import Stop

TICK = 0.1


class Child:
    """A child process and the processes that it starts."""

    def __init__(self, arguments: Sequence[str], log: Path, cwd: Path) -> None:
        """Start the child; its output goes to the end of `log`."""
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                arguments, cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def pid(self) -> int:
        """The child's process id, which is also its group's id."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal, or None while the child runs."""
        return self._process.poll()

    def end(self, stop: Stop, grace: float = 15.0) -> None:
        """Ask the child to end, wait up to `grace` seconds or until a second request to stop, then kill the rest of its group."""
        if self.code is None:
            self._send(signal.SIGTERM)
        while self.code is None and grace > 0 and not stop.urgent:
            self.wait(TICK)
            grace -= TICK
        self._send(signal.SIGKILL)
        self._process.wait()

    def wait(self, seconds: float) -> int | None:
        """Wait up to `seconds` for the child to end; return its exit code, or None if it still runs."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def _send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)
