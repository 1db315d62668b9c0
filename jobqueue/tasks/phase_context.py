"""The context of a phase of a pipeline: earlier results, its checkpoint, and how to sleep or wait for other jobs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from asgiref.sync import sync_to_async

from jobqueue import clock, public_ids
from jobqueue.core import moments, payload
from jobqueue.core.texts import safe_repr
from jobqueue.exceptions import MAX_DELAY_SECONDS, InsideTransaction, InvalidOption, NoPhases, Suspended, delay_in_seconds

if TYPE_CHECKING:  # a task is declared before the models are loaded
    from jobqueue.lifecycle.children import Child

MAX_TOLD = 1000


class Steps(Protocol):
    """The connection of a context to the run of the phases."""

    @property
    def current(self) -> str | None:
        """The name of the phase that runs; None when all have finished."""

    @property
    def place(self) -> int | None:
        """The index of the phase that got the context, from 0; None if the context belongs to no phase."""

    @property
    def ended(self) -> str | None:
        """The name of that phase if it has ended; its threads and coroutines can still run."""

    @property
    def checkpoint(self) -> str | None:
        """The checkpoint of the phase that runs, as JSON text."""

    def result(self, name: str) -> str:
        """Return the result of a phase that has finished, as JSON text; raise `PhaseUnknown` if there is none."""

    def results(self) -> dict[str, str]:
        """Return the results of all phases that have finished, as JSON texts, in order."""

    def keep(self, text: str) -> None:
        """Store the checkpoint of the phase that runs before returning."""

    async def akeep(self, text: str) -> None:
        """Store the checkpoint, from a coroutine."""

    def suspend(self, suspended: Suspended) -> None:
        """Record that the phase ends with this exception, even if the task catches it."""

    def open_blocks(self) -> list[str]:
        """Return the aliases for which this thread is inside of a `transaction.atomic()` that it entered in the phase."""

    def children(self, after: int, limit: int) -> list[Child]:
        """Return the states and results of the jobs that this job waited for."""


class PhaseContext:
    """The part of a task's context that is for pipelines; each method raises `NoPhases` in a task without phases."""

    _steps: Steps | None

    def raise_if_cancelled(self) -> None:
        """Raise `Interrupted` if the run must stop."""
        raise NotImplementedError

    @property
    def phase(self) -> str | None:
        """The name of the phase that runs; None in the pipeline's own function, after the last phase."""
        return self._of_pipeline("phase").current

    def phase_result(self, name: str) -> Any:
        """Return the result of an earlier phase; raise `PhaseUnknown` (a LookupError) if it does not exist or has not finished."""
        return json.loads(self._of_pipeline("phase_result").result(name))

    def phase_results(self) -> dict[str, Any]:
        """Return the results of all phases that have finished, by name, in order."""
        return {name: json.loads(text) for name, text in self._of_pipeline("phase_results").results().items()}

    @property
    def checkpoint_data(self) -> Any:
        """The value that `checkpoint` stored in this phase, in this run or an earlier one; None if there is none."""
        text = self._in_phase("checkpoint_data").checkpoint
        return None if text is None else json.loads(text)

    def checkpoint(self, data: Any) -> None:
        """Store the position of this phase in its work before returning, outside of the task's transactions: JSON of at most 1 MB."""
        self.raise_if_cancelled()
        self._in_phase("checkpoint").keep(payload.dumps_checkpoint(data))
        self.raise_if_cancelled()

    async def acheckpoint(self, data: Any) -> None:
        """Store a checkpoint as `checkpoint` does, without blocking the event loop."""
        self.raise_if_cancelled()
        await self._in_phase("acheckpoint").akeep(payload.dumps_checkpoint(data))
        self.raise_if_cancelled()

    def sleep(self, until: float | timedelta | datetime, result: Any = None) -> NoReturn:
        """End this phase with a result, and continue with the next phase after a number of seconds or a timedelta, or at a datetime.

        It does not return. Meanwhile the slot is free and the job keeps its target; no attempt is used up. Inside
        of a `transaction.atomic()` it raises `InsideTransaction`.
        """
        self.raise_if_cancelled()
        steps = self._in_phase("sleep")
        if isinstance(until, datetime):
            moments.check_moment(until, "until")
            suspended = Suspended("The job sleeps.", value=result, until=clock.aware(until))
            _check_length((clock.aware(until) - clock.now()).total_seconds(), until)
        else:
            suspended = Suspended("The job sleeps.", value=result, seconds=delay_in_seconds(until, "until"))
            _check_length(until.total_seconds() if isinstance(until, timedelta) else until, until)
        _suspend(steps, suspended, "sleep")

    def wait_for(self, jobs: Any, result: Any = None) -> NoReturn:
        """End this phase with a result, and continue with the next phase when all of these jobs have ended, in any state.

        `jobs` are one or several jobs, their numbers or public ids, or the results of their enqueues. It does not
        return; see `sleep`.
        """
        self.raise_if_cancelled()
        steps = self._in_phase("wait_for")
        ids = tuple(dict.fromkeys(map(_id_of, _several(jobs))))
        suspended = Suspended("The job waits.", value=result, children=ids)
        _suspend(steps, suspended, "wait_for")

    def children(self, after: int = 0, limit: int = MAX_TOLD) -> list[Child]:
        """Return the states and results of the jobs that this job waited for, by id: the first `limit` after the id `after`.

        Each has `job_id`, `status`, `result` and `message`; the status of a deleted job is "".
        """
        self.raise_if_cancelled()
        return self._of_pipeline("children").children(after, max(limit, 0))

    async def achildren(self, after: int = 0, limit: int = MAX_TOLD) -> list[Child]:
        """Return what `children` returns, from a coroutine."""
        children: list[Child] = await sync_to_async(self.children)(after, limit)
        return children

    def _of_pipeline(self, name: str) -> Steps:
        if self._steps is None:
            raise NoPhases(f"context.{name} is for pipelines, and this task has no phases. Declare it with @pipeline(phases=[...]).")
        return self._steps

    def _in_phase(self, name: str) -> Steps:
        steps = self._of_pipeline(name)
        if steps.current is None:
            raise NoPhases(f"context.{name} is for phases, and all of them have finished. Move the code that follows into another phase.")
        return self._while_it_runs(steps, name)

    def _while_it_runs(self, steps: Steps, name: str) -> Steps:
        if (ended := steps.ended) is not None:
            raise NoPhases(
                f"context.{name} was called with the context of phase {ended!r}, which has ended. Let a phase end its threads and"
                " coroutines before it returns."
            )
        return steps


def _suspend(steps: Steps, suspended: Suspended, name: str) -> NoReturn:
    if aliases := steps.open_blocks():
        raise InsideTransaction(
            f"context.{name} was called inside of transaction.atomic() of database {', '.join(map(repr, aliases))}: it ends the phase with"
            f" an exception, which would undo what was written there. Call it after the 'with transaction.atomic():'."
        )
    steps.suspend(suspended)
    raise suspended


def _check_length(seconds: float, until: object) -> None:
    # A retry can be cut to this limit, because an early retry is harmless; an early end of a sleep is not.
    if seconds > MAX_DELAY_SECONDS:
        raise InvalidOption(f"until is {safe_repr(until)}; a job can sleep for at most 366 days. Let several phases sleep in turn.")


def _several(jobs: Any) -> Iterable[Any]:
    if isinstance(jobs, str | bytes) or not isinstance(jobs, Iterable):
        return [jobs]
    return jobs


def _id_of(job: Any) -> int:
    number = public_ids.number_of(job)
    if not 0 < number < 2**63:
        raise public_ids.not_a_job(job)
    return number
