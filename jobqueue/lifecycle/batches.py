"""Batches of rows for a duty. After a timeout, batches are smaller. A bad row is set aside, so that it does not stop the other rows."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jobqueue import db
from jobqueue.core import repeats
from jobqueue.lifecycle.aside import reason_of

SET_ASIDE_SECONDS = 300.0
MAX_SET_ASIDE = 10_000

logger = logging.getLogger("jobqueue")


@dataclass(frozen=True, slots=True)
class Batch:
    """The result of a batch: the number of rows that were moved, and of rows that were set aside."""

    moved: int = 0
    set_aside: int = 0


class Batches:
    """The size of the next batch, and the rows that are skipped for a while."""

    def __init__(self, operation: str, size: int) -> None:
        """Start with full batches. `operation` is its name in log messages."""
        self._operation, self._most = operation, size
        self.size = size
        self._aside: dict[int, float] = {}

    @property
    def set_aside(self) -> list[int]:
        """The rows that are skipped now."""
        now = time.monotonic()
        self._aside = {row: until for row, until in self._aside.items() if until > now}
        return list(self._aside)

    def set_row_aside(self, row: int) -> None:
        """Skip a row for `SET_ASIDE_SECONDS`."""
        if len(self._aside) < MAX_SET_ASIDE:
            self._aside[row] = time.monotonic() + SET_ASIDE_SECONDS

    def run(
        self,
        at_once: Callable[[int], int],
        find: Callable[[int], Sequence[int]],
        move_one: Callable[[int], int],
        end: Callable[[int, Exception], bool] | None = None,
    ) -> Batch:
        """Move up to `size` rows by `at_once`, in one transaction; return how many rows were moved and how many were set aside.

        If the database refuses the batch, `move_one` moves each of the rows that `find` returns. A row that fails alone is
        set aside and its reason is logged, unless `end` ends the row for good. Errors of the connection are raised.
        """
        try:
            moved = at_once(self.size)
        except Exception as error:
            if db.was_given_up(error) and self.size > 1:
                self.size = max(self.size // 2, 1)
                logger.warning("%s timed out; the next batches have at most %d rows: %s", self._operation, self.size, reason_of(error))
                return Batch()
            if not _is_of_a_row(error):
                raise
            return self._one_by_one(find(self.size), move_one, end)
        self.size = min(2 * self.size, self._most)
        return Batch(moved)

    def _one_by_one(self, rows: Sequence[int], move_one: Callable[[int], int], end: Callable[[int, Exception], bool] | None) -> Batch:
        moved, set_aside = 0, 0
        for row in rows:
            try:
                moved += move_one(row)
            except Exception as error:
                if not _is_of_a_row(error):
                    raise
                set_aside += 1
                if end is not None and end(row, error):
                    continue
                self.set_row_aside(row)
                repeats.log(
                    logging.ERROR,
                    "%s failed for %d, which is set aside for %g s: %s",
                    self._operation,
                    row,
                    SET_ASIDE_SECONDS,
                    reason_of(error),
                    kind=self._operation,
                )
        return Batch(moved, set_aside)


def _is_of_a_row(error: Exception) -> bool:
    """Return whether an error is about a row, and not about the connection or the leadership of the duty."""
    return db.is_refusal(error) or db.was_given_up(error)
