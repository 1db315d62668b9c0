"""What a running task sees of its job: who it is, whether it shall stop, and how it tells of its progress."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from jobqueue import compat
from jobqueue.core import payload
from jobqueue.core.texts import safe_repr
from jobqueue.exceptions import Interrupted, delay_in_seconds
from jobqueue.tasks.phase_context import PhaseContext, Steps

if TYPE_CHECKING:
    from jobqueue.db import Claimed


class Control(Protocol):
    """Connect a context with whoever runs the task."""

    def interruption(self) -> Interrupted | None:
        """Return what the run is to be stopped with, or None."""

    def wait(self, seconds: float) -> None:
        """Rest so long, or until the run is to stop."""

    def report(self, progress: int, message: str | None, at: int | None = None) -> None:
        """Persist progress soon, of the phase at this place (None: of whatever runs); the last value always."""

    def save(self, metadata: str) -> None:
        """Persist metadata (JSON text) before returning; raise `LeaseLost` where the job is no longer ours."""

    def result(self) -> Any:
        """Return the job's task result as the database has it."""


class TaskContext(PhaseContext, compat.TaskContext):  # type: ignore[misc]
    """The `context` argument of a task that takes one. Every method raises `Interrupted` once the run is to stop."""

    def __init__(self, job: Claimed, control: Control, steps: Steps | None = None) -> None:
        """Bind the run; `steps` are those of a pipeline."""
        # The parent is a frozen dataclass with slots.
        for name, value in (("_job", job), ("_control", control), ("_steps", steps), ("_metadata", None), ("_result", None)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_whole", self)

    @property
    def task_result(self) -> Any:
        """The job's result so far, read from the database at the first look."""
        if self._result is None:
            object.__setattr__(self, "_result", self._control.result())
        return self._result

    @property
    def job_id(self) -> int:
        """The job's id."""
        return int(self._job.id)

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1 on."""
        return int(self._job.attempt)

    @property
    def lease_token(self) -> int:
        """A number that rises at every claim of the job: a fence for other systems."""
        return int(self._job.lease_token)

    @property
    def cancelled(self) -> bool:
        """Whether the run is to stop."""
        return self._control.interruption() is not None

    def raise_if_cancelled(self) -> None:
        """Raise `Interrupted` (or `LeaseLost`) once the run is to stop."""
        interruption = self._control.interruption()
        if interruption is not None:
            raise interruption

    def wait(self, seconds: float | timedelta) -> None:
        """Rest so many seconds; raise at once when the run is to stop. In a coroutine use ``asyncio.sleep``."""
        self.raise_if_cancelled()
        self._control.wait(delay_in_seconds(seconds, "seconds"))
        self.raise_if_cancelled()

    def progress(self, percent: float, message: str | None = None) -> None:
        """Tell how far the work is, from 0 to 100 percent, and what it does; in a phase, how far the phase is."""
        self.raise_if_cancelled()
        at = None if self._steps is None else self._while_it_runs(self._steps, "progress").place
        # Without phases there is no place: whoever stands in for a run in a project's tests need not know of them.
        self._control.report(whole_percent(percent), message if message is None else str(message), *(() if at is None else (at,)))

    @property
    def metadata(self) -> dict[str, Any]:
        """The job's metadata; changes are kept by `save_metadata`."""
        whole = self._whole  # what one phase has changed is there in the next
        if whole._metadata is None:
            object.__setattr__(whole, "_metadata", json.loads(self._job.metadata))
        return whole._metadata  # type: ignore[no-any-return]

    def save_metadata(self) -> None:
        """Write the metadata to the job, on a connection that takes no part in the task's transactions."""
        self.raise_if_cancelled()
        self._control.save(payload.dumps_metadata(self.metadata))


def whole_percent(percent: Any) -> int:
    """Return a percentage rounded half up; refuse what is no number from 0 to 100."""
    if isinstance(percent, bool) or not isinstance(percent, int | float) or not 0 <= percent <= 100:
        raise ValueError(f"progress is {safe_repr(percent)}; it must be a number from 0 to 100. Cut it: min(max(percent, 0), 100).")
    return math.floor(percent + 0.5)


def for_phase(whole: TaskContext, steps: Steps) -> TaskContext:
    """Return what one phase gets of the context of a whole run: beyond its end it keeps and tells nothing more."""
    made = TaskContext(whole._job, whole._control, steps)
    object.__setattr__(made, "_whole", whole)
    return made
