"""Run child processes in groups of their own, so that Ctrl-C reaches them through us alone, and end them whole."""

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from demo_project.launch.stop import Stop

TICK = 0.1


class Child:
    """One child process and whatever it starts itself."""

    def __init__(self, arguments: Sequence[str], log: Path, cwd: Path) -> None:
        """Start the child; what it prints goes to the end of `log`."""
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                arguments, cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def pid(self) -> int:
        """The child's process id, which is its group's id as well."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal, or None while the child runs."""
        return self._process.poll()

    def end(self, stop: Stop, grace: float = 15.0) -> None:
        """Ask the child to end, wait so many seconds or until somebody insists, then kill what is left of its group."""
        if self.code is None:
            self._send(signal.SIGTERM)
        while self.code is None and grace > 0 and not stop.urgent:
            self.wait(TICK)
            grace -= TICK
        self._send(signal.SIGKILL)
        self._process.wait()

    def wait(self, seconds: float) -> int | None:
        """Wait so long for the child to end and return its exit code, None if it still runs."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def _send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)
