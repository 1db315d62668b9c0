"""The demo's `manage.py runworkers` process, which is restarted if it is killed."""

import sys
from pathlib import Path

from demo_project import embedded
from demo_project.launch.children import Child
from demo_project.launch.stop import Stop

RESTARTS = 5
GRACE_SECONDS = 5


class WorkersFailed(Exception):
    """The error for workers that ended by themselves, or too often."""


class Workers:
    """The worker process; a new one is started if it is killed."""

    def __init__(self, log: Path, stop: Stop) -> None:
        """Start it."""
        self.log = log
        self._stop = stop
        self._restarts = 0
        self._child = self._start()

    @property
    def pid(self) -> int:
        """The process id of the current worker."""
        return self._child.pid

    def check(self) -> str | None:
        """Start a new process if the old one was killed, and return a notice; raise `WorkersFailed` if it failed by itself."""
        code = self._child.code
        if code is None:
            return None
        if code > 0 or self._restarts == RESTARTS:
            raise WorkersFailed(f"runworkers ended with status {code}; the end of {self.log}:\n{self.tail()}")
        self._restarts += 1
        old = self.pid
        with self._stop.whole():
            self._child = self._start()
        return f"Worker process {old} has ended ({_reason(code)}); process {self.pid} takes over, and no job is lost."

    def tail(self, lines: int = 15) -> str:
        """Return the last lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def end(self) -> None:
        """Stop the worker, which hands back its jobs first."""
        self._child.end(self._stop)

    def _start(self) -> Child:
        options = ["--min-workers", "2", "--max-workers", "8", "--shutdown-grace-period-seconds", str(GRACE_SECONDS)]
        return Child([sys.executable, "manage.py", "runworkers", *options], self.log, embedded.CHECKOUT)


def _reason(code: int) -> str:
    return f"signal {-code}" if code < 0 else "it was asked to end"
