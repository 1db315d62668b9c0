"""The context of a running task: its job, requests to stop, and progress."""

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
    """The connection of a context to the run of the task."""

    def interruption(self) -> Interrupted | None:
        """Return the exception with which the run must stop, or None."""

    def wait(self, seconds: float) -> None:
        """Wait for this number of seconds, or until the run must stop."""

    def report(self, progress: int, message: str | None, at: int | None = None) -> None:
        """Store progress soon, of the phase with this index (None: the task or phase that runs); the last value is always stored."""

    def save(self, metadata: str) -> None:
        """Store metadata (JSON text) before returning; raise `LeaseLost` if the worker has lost its lease."""

    def result(self) -> Any:
        """Return the job's task result from the database."""


class TaskContext(PhaseContext, compat.TaskContext):  # type: ignore[misc]
    """The `context` argument of a task that takes one. Each method raises `Interrupted` if the run must stop."""

    def __init__(self, job: Claimed, control: Control, steps: Steps | None = None) -> None:
        """Bind the context to a run; `steps` are those of a pipeline."""
        # The parent is a frozen dataclass with slots.
        for name, value in (("_job", job), ("_control", control), ("_steps", steps), ("_metadata", None), ("_result", None)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_whole", self)

    @property
    def task_result(self) -> Any:
        """The job's result so far, read from the database at the first access."""
        if self._result is None:
            object.__setattr__(self, "_result", self._control.result())
        return self._result

    @property
    def job_id(self) -> int:
        """The job's id."""
        return int(self._job.id)

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return int(self._job.attempt)

    @property
    def lease_token(self) -> int:
        """A number that rises at each claim of the job: a fence for other systems."""
        return int(self._job.lease_token)

    @property
    def cancelled(self) -> bool:
        """Whether the run must stop."""
        return self._control.interruption() is not None

    def raise_if_cancelled(self) -> None:
        """Raise `Interrupted` (or `LeaseLost`) if the run must stop."""
        interruption = self._control.interruption()
        if interruption is not None:
            raise interruption

    def wait(self, seconds: float | timedelta) -> None:
        """Wait for this number of seconds; raise immediately if the run must stop. In a coroutine, use ``asyncio.sleep``."""
        self.raise_if_cancelled()
        self._control.wait(delay_in_seconds(seconds, "seconds"))
        self.raise_if_cancelled()

    def progress(self, percent: float, message: str | None = None) -> None:
        """Report how much of the work is done, from 0 to 100 percent, and what the task does; in a phase, the progress of the phase."""
        self.raise_if_cancelled()
        at = None if self._steps is None else self._while_it_runs(self._steps, "progress").place
        # Without phases there is no index, so that a substitute for a run in a project's tests can ignore phases.
        self._control.report(whole_percent(percent), message if message is None else str(message), *(() if at is None else (at,)))

    @property
    def metadata(self) -> dict[str, Any]:
        """The job's metadata; `save_metadata` stores changes."""
        context = self._whole  # a phase sees the changes of earlier phases
        if context._metadata is None:
            object.__setattr__(context, "_metadata", json.loads(self._job.metadata))
        return context._metadata  # type: ignore[no-any-return]

    def __setattr__(self, name: str, value: object) -> None:
        """Reject assignments: only the content of `metadata` can change."""
        text = f"context.{name} cannot be assigned. Change the content: context.metadata['key'] = 1, context.metadata.clear()."
        raise AttributeError(text)

    def save_metadata(self) -> None:
        """Write the metadata to the job, on a connection outside of the task's transactions."""
        self.raise_if_cancelled()
        self._control.save(payload.dumps_metadata(self.metadata))


def whole_percent(percent: Any) -> int:
    """Return a percentage rounded half up; reject values that are not a number from 0 to 100."""
    if isinstance(percent, bool) or not isinstance(percent, int | float) or not 0 <= percent <= 100:
        raise ValueError(f"progress is {safe_repr(percent)}; it must be a number from 0 to 100. Cut it: min(max(percent, 0), 100).")
    return math.floor(percent + 0.5)


def for_phase(context: TaskContext, steps: Steps) -> TaskContext:
    """Return the context for one phase of a run; it stores and reports nothing after the end of the phase."""
    phase_context = TaskContext(context._job, context._control, steps)
    object.__setattr__(phase_context, "_whole", context)
    return phase_context
