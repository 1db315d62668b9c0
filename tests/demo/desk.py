"""Run a task's function without a worker."""

from types import SimpleNamespace
from typing import Any

from jobqueue import Interrupted, TaskContext


class Desk:
    """A replacement for the worker behind a context: record what a task reports, and interrupt it on request."""

    def __init__(self, interrupt_after: int | None = None) -> None:
        """Interrupt the task at the wait after this number of waits."""
        self.reports: list[tuple[int, str | None]] = []
        self.waits: list[float] = []
        self.interrupt_after = interrupt_after

    def interruption(self) -> Interrupted | None:
        """Return an interruption once the task has waited often enough."""
        due = self.interrupt_after is not None and len(self.waits) > self.interrupt_after
        return Interrupted("enough") if due else None

    def wait(self, seconds: float) -> None:
        """Note the wait; do not wait."""
        self.waits.append(seconds)

    def report(self, progress: int, message: str | None) -> None:
        """Note the progress."""
        self.reports.append((progress, message))

    def save(self, metadata: str) -> None:
        """Refuse: no task of the demo keeps metadata."""
        raise NotImplementedError

    def result(self) -> Any:
        """Raise an error: no task of the demo reads its result."""
        raise NotImplementedError


def context(desk: Desk | None = None, attempt: int = 1) -> TaskContext:
    """Return what a task sees in its run number `attempt`."""
    return TaskContext(SimpleNamespace(id=7, attempt=attempt, lease_token=1, metadata="{}"), desk or Desk())  # type: ignore[arg-type]
