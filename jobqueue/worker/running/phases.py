"""Run the phases of a pipeline in order, each until it has finished once.

The end of a phase and the beginning of the next are one side write, and the next phase does not begin before it is done. So a phase that
is known to have finished never runs again, and a phase whose end could not be written runs again from its checkpoint. A coroutine's run
takes the same steps as a plain function's; only the waiting differs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from jobqueue.core import payload
from jobqueue.core.forks import aguarded, guarded
from jobqueue.core.phases import Phase, PhaseState, overall
from jobqueue.db import hygiene
from jobqueue.exceptions import NoPhases, PhaseResultNotStorable, PhaseUnknown, ResultNotStorable, Suspended
from jobqueue.lifecycle.children import Child
from jobqueue.lifecycle.outcome import FinishedPhase, PhaseProgress
from jobqueue.tasks.context import for_phase
from jobqueue.worker.running import groups
from jobqueue.worker.running.arguments import PipelineArguments

T = TypeVar("T")


class PhaseStore(Protocol):
    """A store for the states of the phases of one run. `do` executes each call that writes, perhaps more than once."""

    def open(self, names: Sequence[str]) -> list[PhaseState]:
        """Begin the first phase that has not finished; return the states of all phases."""

    def end_phase(self, done: FinishedPhase, following: PhaseState | None, progress: int) -> None:
        """End a phase and begin the next, unless the run is to stop."""

    def raise_if_stopping(self) -> None:
        """Raise the exception with which the run is to stop; called before a phase begins."""

    def transactions(self) -> frozenset[str]:
        """Return the aliases of the caller's connections that are in a transaction."""

    def check_transactions(self, name: str, before: frozenset[str]) -> None:
        """Raise if a phase has left a transaction open that was not open before."""

    def store_checkpoint(self, name: str, text: str) -> None:
        """Store a checkpoint."""

    def wait(self, children: Sequence[int]) -> None:
        """Make the job wait for other jobs when its run has ended."""

    def do(self, work: Callable[[], T]) -> T:
        """Execute one of these calls and return its value."""

    async def ado(self, work: Callable[[], T]) -> T:
        """Execute one of these calls for a coroutine."""

    async def in_connection_thread(self, work: Callable[[], T]) -> T:
        """Execute a function in the thread that has the connections of a coroutine."""

    def children(self, after: int, limit: int) -> list[Child]:
        """Return the outcomes of the jobs that were waited for."""


class Pipeline:
    """One run of a pipeline; the context of the run works on it."""

    def __init__(self, phases: Sequence[Phase], func: Callable[..., Any], store: PhaseStore) -> None:
        """Create the pipeline; the states of its phases are not known yet."""
        self._phases, self._func, self._store = phases, func, store
        self._states: list[PhaseState] = []
        self._at = 0
        self._last_returned = -1  # the place of the phase that has returned last
        self._outer = hygiene.atomic_blocks()  # those of the caller, if it runs jobs in a transaction, as a test does
        self.progress = 0
        self.shown: PhaseProgress | None = None
        self.suspended: Suspended | None = None
        self.done: FinishedPhase | None = None

    # Run

    def run(self, context: Any, *args: Any, **kwargs: Any) -> Any:
        """Run the phases that have not finished, and then the pipeline's own function; return the job's result."""
        store, given, value = self._store, PipelineArguments(args, kwargs), None
        self._opened(store.do(self._open))
        while self._at < len(self._phases):
            store.raise_if_stopping()
            before = store.transactions()
            try:
                value = given.to(guarded(self._phases[self._at].func), for_phase(context, InPhase(self, self._at)))
            except BaseException as error:
                if not self._is_suspended_by(error):
                    raise
            self._last_returned = self._at
            store.check_transactions(self._phases[self._at].name, before)
            done = self._ended(value)
            if self.suspended is not None:
                store.do(self._wait)
                raise self.suspended
            store.do(partial(store.end_phase, done, self._following, self.after))
            self._advance(done)
        store.raise_if_stopping()  # also before the pipeline's own function
        return self._result(given.to(self._func, context))

    async def arun(self, context: Any, *args: Any, **kwargs: Any) -> Any:
        """Run the phases and the pipeline's own function as coroutines; return the job's result."""
        store, given, value = self._store, PipelineArguments(args, kwargs), None
        self._opened(await store.ado(self._open))
        while self._at < len(self._phases):
            store.raise_if_stopping()
            before = await store.in_connection_thread(store.transactions)
            try:
                value = await given.to(aguarded(self._phases[self._at].func), for_phase(context, InPhase(self, self._at)))
            except BaseException as error:
                if not self._is_suspended_by(error):
                    raise
            self._last_returned = self._at
            await store.in_connection_thread(partial(store.check_transactions, self._phases[self._at].name, before))
            done = self._ended(value)
            if self.suspended is not None:
                await store.ado(self._wait)
                raise self.suspended
            await store.ado(partial(store.end_phase, done, self._following, self.after))
            self._advance(done)
        store.raise_if_stopping()
        return self._result(await given.to(self._func, context))

    def _open(self) -> list[PhaseState]:
        return self._store.open([phase.name for phase in self._phases])

    def _opened(self, states: list[PhaseState]) -> None:
        self._states = states
        self._at = sum(state.finished for state in states[: len(self._phases)])
        self._show_begun()

    def _is_suspended_by(self, error: BaseException) -> bool:
        decisive = groups.decisive(error).error
        if isinstance(decisive, Suspended):
            self.suspended = decisive
        return isinstance(decisive, Suspended)

    def _ended(self, value: Any) -> FinishedPhase:
        if self.suspended is not None:  # even if the task has swallowed the exception
            value = self.suspended.value
        name = self._phases[self._at].name
        try:
            self.done = FinishedPhase(name, self._at, payload.dumps_result(value))
        except ResultNotStorable as error:
            raise PhaseResultNotStorable(f"Phase {name!r}: {error}") from error
        return self.done

    def _wait(self) -> None:
        if self.suspended is not None and self.suspended.children is not None:
            self._store.wait(self.suspended.children)

    @property
    def _following(self) -> PhaseState | None:
        return self._states[self._at + 1] if self._at + 1 < len(self._phases) else None

    @property
    def after(self) -> int:
        """The progress of the job in percent once the phase that runs has finished."""
        return max(self.progress, overall(self._at + 1, 0, len(self._phases)))

    @property
    def following(self) -> str:
        """The name of the next phase; "" if there is none."""
        return self._following.name if self._following is not None else ""

    def _advance(self, done: FinishedPhase) -> None:
        state = self._states[self._at]
        state.status, state.result = "SUCCESS", done.result
        self.done = None
        self._at += 1
        self._show_begun()

    def _show_begun(self) -> None:
        self.progress = max(self.progress, overall(self._at, 0, len(self._phases)))
        self.shown = None
        if self._at < len(self._phases):
            self._states[self._at].attempts += 1

    def _result(self, value: Any) -> Any:
        if value is not None:
            return value
        last = self._states[len(self._phases) - 1].result
        return None if last is None else json.loads(last)

    def report(self, percent: int, message: str | None, at: int | None = None) -> int:
        """Keep the progress of the phase at this place if it still runs; return the job's progress, which never decreases within a run."""
        if self._at < len(self._phases) and at in (None, self._at):
            before = self.shown.message if self.shown is not None else None
            self.shown = PhaseProgress(self._phases[self._at].name, percent, before if message is None else message)
            self.progress = max(self.progress, overall(self._at, percent, len(self._phases)))
        return self.progress

    @property
    def opened(self) -> bool:
        """Whether the states of the phases are known."""
        return bool(self._states)

    # What the context calls

    @property
    def current(self) -> str | None:
        """The name of the phase that runs; None once all phases have finished."""
        return self._phases[self._at].name if self._at < len(self._phases) else None

    @property
    def place(self) -> int | None:
        """None: the pipeline represents whichever phase runs."""
        return None

    @property
    def ended(self) -> str | None:
        """None: the pipeline represents whichever phase runs."""
        return None

    @property
    def checkpoint(self) -> str | None:
        """The checkpoint of the phase that runs, as JSON text."""
        return self.checkpoint_at(self._at)

    def ended_at(self, at: int) -> str | None:
        """Return the name of the phase at this place if it has ended."""
        return self._phases[at].name if self._at > at or self._last_returned >= at else None

    def checkpoint_at(self, at: int) -> str | None:
        """Return the checkpoint of the phase at this place, as JSON text."""
        return self._states[at].checkpoint

    def result(self, name: str) -> str:
        """Return the result of a phase that has finished, as JSON text."""
        results = self.results()
        if name not in results:
            known = [phase.name for phase in self._phases]
            why = "has not finished yet" if name in known else "is not a phase of this pipeline"
            raise PhaseUnknown(f"Phase {name!r} {why}; finished are: {', '.join(results) or 'none'}. The phases are {', '.join(known)}.")
        return results[name]

    def results(self) -> dict[str, str]:
        """Return the results of all phases that have finished, as JSON texts, in order."""
        return {state.name: state.result or "null" for state in self._states if state.finished}

    def keep(self, text: str, at: int | None = None) -> None:
        """Store the checkpoint of the phase at this place, by default of the phase that runs, before returning."""
        state = self._states[self._at if at is None else at]
        self._store.do(partial(self._store.store_checkpoint, state.name, text))
        state.checkpoint = text

    async def akeep(self, text: str, at: int | None = None) -> None:
        """Store a checkpoint from a coroutine, as `keep` does."""
        state = self._states[self._at if at is None else at]
        await self._store.ado(partial(self._store.store_checkpoint, state.name, text))
        state.checkpoint = text

    def suspend(self, suspended: Suspended) -> None:
        """Record that the phase ends with this suspension, whatever the task does with the exception."""
        if self.suspended is not None:
            raise NoPhases("context.sleep or context.wait_for was already called, and its exception was caught: do not catch it.")
        self.suspended = suspended

    def open_blocks(self) -> list[str]:
        """Return the aliases for which this thread is in a `transaction.atomic()` that it entered in the phase."""
        return [alias for alias, blocks in hygiene.atomic_blocks().items() if blocks > self._outer.get(alias, 0)]

    def children(self, after: int, limit: int) -> list[Child]:
        """Return the outcomes of the jobs that were waited for."""
        return self._store.children(after, limit)


class InPhase:
    """A pipeline as one of its phases sees it: a thread that outlives its phase must not write for the next phase."""

    def __init__(self, pipeline: Pipeline, place: int) -> None:
        """Bind the phase at this place."""
        self._pipeline, self.place = pipeline, place

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the pipeline that is the same for all phases."""
        return getattr(self._pipeline, name)

    @property
    def ended(self) -> str | None:
        """The name of this phase if it has ended."""
        return self._pipeline.ended_at(self.place)

    @property
    def checkpoint(self) -> str | None:
        """The checkpoint of this phase, as JSON text."""
        return self._pipeline.checkpoint_at(self.place)

    def keep(self, text: str) -> None:
        """Store the checkpoint of this phase before returning."""
        self._pipeline.keep(text, self.place)

    async def akeep(self, text: str) -> None:
        """Store the checkpoint of this phase from a coroutine."""
        await self._pipeline.akeep(text, self.place)
