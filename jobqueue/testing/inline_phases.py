"""The journal of a pipeline that runs in the calling thread, without a job in the database: what it keeps, it keeps in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from jobqueue.core.phases import Standing, reconciled
from jobqueue.lifecycle.children import Child
from jobqueue.lifecycle.outcome import Done, Outcome

T = TypeVar("T")


class InlineJournal:
    """Keep how the phases stand in a list, from one attempt to the next."""

    def __init__(self, kept: list[Standing], children: list[int]) -> None:
        """Bind the list, and that of the children."""
        self._kept, self._children = kept, children

    def open(self, names: Sequence[str]) -> list[Standing]:
        """Return how all stand."""
        self._kept[:] = reconciled(names, self._kept)
        return self._kept

    def go_on(self, done: Done, following: Standing | None, progress: int) -> None:
        """Do nothing: the pipeline itself notes it in the list."""

    def look(self) -> None:
        """Do nothing: nobody asks it to stop."""

    def transactions(self) -> frozenset[str]:
        """Return nothing: the caller's transactions are the caller's."""
        return frozenset()

    def check(self, name: str, before: frozenset[str]) -> None:
        """Do nothing, for the same reason."""

    async def there(self, work: Callable[[], T]) -> T:
        """Do it."""
        return work()

    def keep(self, name: str, text: str) -> None:
        """Do nothing, for the same reason."""

    def wait(self, ids: Sequence[int]) -> None:
        """Note for whom it would wait; whatever they are, they count as ended."""
        self._children += ids

    def do(self, work: Callable[[], T]) -> T:
        """Do it."""
        return work()

    async def ado(self, work: Callable[[], T]) -> T:
        """Do it."""
        return work()

    def children(self, after: int, limit: int) -> list[Child]:
        """Return those that were noted, as if they had succeeded."""
        ids = sorted(number for number in self._children if number > after)[:limit]
        return [Child(number, "SUCCESS", None, "") for number in ids]


def keep_end(kept: Sequence[Standing], outcome: Outcome) -> None:
    """Note the end of the phase with which a run was suspended."""
    for one in kept:
        if outcome.done is not None and one.name == outcome.done.name:
            one.status, one.result = "SUCCESS", outcome.done.result
