"""What a phase of a pipeline sees beside what every task sees: earlier results, its checkpoint, and how to end until later."""

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
    """Connect a context with whoever runs the phases."""

    @property
    def current(self) -> str | None:
        """The name of the phase that runs; None once all have finished."""

    @property
    def place(self) -> int | None:
        """The place of the phase to which the context was given, from 0 on; None where it was given to none."""

    @property
    def ended(self) -> str | None:
        """The name of that phase, where it has ended; its threads and coroutines may go on."""

    @property
    def checkpoint(self) -> str | None:
        """The checkpoint of the phase that runs, as JSON text."""

    def result(self, name: str) -> str:
        """Return the result of a phase that has finished, as JSON text; raise `PhaseUnknown` where there is none."""

    def results(self) -> dict[str, str]:
        """Return the results of all phases that have finished, as JSON texts, in order."""

    def keep(self, text: str) -> None:
        """Persist the checkpoint of the phase that runs before returning."""

    async def akeep(self, text: str) -> None:
        """Do the same in a coroutine."""

    def suspend(self, suspended: Suspended) -> None:
        """Note that the phase ends with this, whatever the task does with the exception."""

    def open_blocks(self) -> list[str]:
        """Return the aliases for which this thread is in a `transaction.atomic()` that it entered in the phase."""

    def children(self, after: int, limit: int) -> list[Child]:
        """Return what became of the jobs that were waited for."""


class PhaseContext:
    """Be the part of a task's context that is for pipelines; each method raises `NoPhases` in a task without phases."""

    _steps: Steps | None

    def raise_if_cancelled(self) -> None:
        """Raise `Interrupted` once the run is to stop."""
        raise NotImplementedError

    @property
    def phase(self) -> str | None:
        """The name of the phase that runs; None in the pipeline's own function, after the last."""
        return self._of_pipeline("phase").current

    def phase_result(self, name: str) -> Any:
        """Return what an earlier phase returned; raise `PhaseUnknown` (a LookupError) for one that has not finished, or is none."""
        return json.loads(self._of_pipeline("phase_result").result(name))

    def phase_results(self) -> dict[str, Any]:
        """Return what all phases returned that have finished, by name, in order."""
        return {name: json.loads(text) for name, text in self._of_pipeline("phase_results").results().items()}

    @property
    def checkpoint_data(self) -> Any:
        """What `checkpoint` kept in this phase, in this run or an earlier one; None where nothing was."""
        text = self._in_phase("checkpoint_data").checkpoint
        return None if text is None else json.loads(text)

    def checkpoint(self, data: Any) -> None:
        """Keep where in its work this phase is, at once, outside of the task's transactions: JSON of at most 1 MB."""
        self.raise_if_cancelled()
        self._in_phase("checkpoint").keep(payload.dumps_checkpoint(data))
        self.raise_if_cancelled()

    async def acheckpoint(self, data: Any) -> None:
        """Do what `checkpoint` does without blocking the event loop."""
        self.raise_if_cancelled()
        await self._in_phase("acheckpoint").akeep(payload.dumps_checkpoint(data))
        self.raise_if_cancelled()

    def sleep(self, until: float | timedelta | datetime, result: Any = None) -> NoReturn:
        """End this phase with a result, and go on at the next one after so many seconds or a timedelta, or at a time.

        Does not return. The slot is free meanwhile, no attempt is spent, and the job keeps its target. Inside of a
        `transaction.atomic()` it raises `InsideTransaction`.
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
        """End this phase with a result, and go on at the next one when all of these jobs have ended, in whatever way.

        `jobs` are jobs, their numbers or public ids, or the results of their enqueues; one or many. Does not return; see `sleep`.
        """
        self.raise_if_cancelled()
        steps = self._in_phase("wait_for")
        ids = tuple(dict.fromkeys(map(_id_of, _several(jobs))))
        suspended = Suspended("The job waits.", value=result, children=ids)
        _suspend(steps, suspended, "wait_for")

    def children(self, after: int = 0, limit: int = MAX_TOLD) -> list[Child]:
        """Return what became of the jobs that were waited for, by id, the first `limit` behind `after`.

        Each has `job_id`, `status`, `result` and `message`; the status of one that was deleted is "".
        """
        self.raise_if_cancelled()
        return self._of_pipeline("children").children(after, max(limit, 0))

    async def achildren(self, after: int = 0, limit: int = MAX_TOLD) -> list[Child]:
        """Do what `children` does in a coroutine."""
        found: list[Child] = await sync_to_async(self.children)(after, limit)
        return found

    def _of_pipeline(self, name: str) -> Steps:
        if self._steps is None:
            raise NoPhases(f"context.{name} is for pipelines, and this task has no phases. Declare it with @pipeline(phases=[...]).")
        return self._steps

    def _in_phase(self, name: str) -> Steps:
        steps = self._of_pipeline(name)
        if steps.current is None:
            raise NoPhases(f"context.{name} is for phases, and all of them have finished. Make what follows a phase of its own.")
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
            f" an exception, which would undo what was written there. Call it behind the 'with transaction.atomic():'."
        )
    steps.suspend(suspended)
    raise suspended


def _check_length(seconds: float, until: object) -> None:
    # A retry that is cut comes sooner than it might; a job that wakes sooner does what it should not do yet.
    if seconds > MAX_DELAY_SECONDS:
        raise InvalidOption(f"until is {safe_repr(until)}; a job can sleep for at most 366 days. Let several phases sleep in turn.")


def _several(jobs: Any) -> Iterable[Any]:
    if isinstance(jobs, str | bytes) or not isinstance(jobs, Iterable):
        return [jobs]
    return jobs


def _id_of(job: Any) -> int:
    number = job if isinstance(job, int | str) else getattr(job, "pk", None) or getattr(job, "id", None)
    text = str(public_ids.number_of(number))
    if isinstance(job, bool) or not (text.isascii() and text.isdigit() and 0 < int(text[:20]) < 2**63):
        raise InvalidOption(f"wait_for got {safe_repr(job)}; it must be a job, its number, or the result of its enqueue.")
    return int(text)
