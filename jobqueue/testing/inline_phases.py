"""The phase store of a pipeline that runs in the calling thread, without a job in the database: it stores the phases in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from jobqueue.core.phases import PhaseState, reconciled
from jobqueue.lifecycle.children import Child
from jobqueue.lifecycle.outcome import FinishedPhase, Outcome

T = TypeVar("T")


class InlinePhaseStore:
    """The states of the phases, in a list that lasts from one attempt to the next."""

    def __init__(self, states: list[PhaseState], children: list[int]) -> None:
        """Bind the list of the states and the list of the children's ids."""
        self._kept, self._children = states, children

    def open(self, names: Sequence[str]) -> list[PhaseState]:
        """Return the states of all phases."""
        self._kept[:] = reconciled(names, self._kept)
        return self._kept

    def end_phase(self, done: FinishedPhase, following: PhaseState | None, progress: int) -> None:
        """Do nothing: the pipeline itself changes the list."""

    def raise_if_stopping(self) -> None:
        """Do nothing: an inline run is never asked to stop."""

    def transactions(self) -> frozenset[str]:
        """Return an empty set: the transactions belong to the caller."""
        return frozenset()

    def check_transactions(self, name: str, before: frozenset[str]) -> None:
        """Do nothing: the transactions belong to the caller."""

    async def in_connection_thread(self, work: Callable[[], T]) -> T:
        """Call the function in this thread."""
        return work()

    def store_checkpoint(self, name: str, text: str) -> None:
        """Do nothing: the pipeline itself changes the list."""

    def wait(self, ids: Sequence[int]) -> None:
        """Store the ids of the jobs to wait for; all of them count as ended."""
        self._children += ids

    def do(self, work: Callable[[], T]) -> T:
        """Call the function."""
        return work()

    async def ado(self, work: Callable[[], T]) -> T:
        """Call the function."""
        return work()

    def children(self, after: int, limit: int) -> list[Child]:
        """Return the stored children as if they had succeeded."""
        ids = sorted(number for number in self._children if number > after)[:limit]
        return [Child(number, "SUCCESS", None, "") for number in ids]


def store_end(states: Sequence[PhaseState], outcome: Outcome) -> None:
    """Store the end of the phase with which a run was suspended."""
    for state in states:
        if outcome.done is not None and state.name == outcome.done.name:
            state.status, state.result = "SUCCESS", outcome.done.result
