"""The deadlines of runs, the nearest first."""

from __future__ import annotations

import heapq
import itertools
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobqueue.worker.running.run import Run

MIN_TO_TIDY = 1000


class Deadlines:
    """The deadlines of runs, held by weak references: a run that ends early is not removed, but dropped when the list is tidied."""

    def __init__(self) -> None:
        """Create an empty list."""
        self._heap: list[tuple[float, int, weakref.ReferenceType[Run]]] = []
        self._numbers = itertools.count()  # two times may be equal, and runs cannot be compared
        self._tidy_at = MIN_TO_TIDY
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of entries, including those of ended runs that are not dropped yet."""
        return len(self._heap)

    @property
    def nearest(self) -> tuple[float, int] | None:
        """The nearest deadline of a run that still runs, and the id of its job; None if there is none."""
        with self._lock:
            while self._heap:
                run = self._heap[0][2]()
                if run is not None and run.ended is None:
                    return self._heap[0][0], run.job.id
                heapq.heappop(self._heap)
            return None

    def add(self, run: Run, at: float) -> bool:
        """Add a deadline on the monotonic clock; return whether it is the nearest."""
        with self._lock:
            if len(self._heap) >= self._tidy_at:
                self._heap = [entry for entry in self._heap if (other := entry[2]()) is not None and other.ended is None]
                heapq.heapify(self._heap)
                self._tidy_at = max(2 * len(self._heap), MIN_TO_TIDY)
            entry = (at, next(self._numbers), weakref.ref(run))
            heapq.heappush(self._heap, entry)
            return self._heap[0] is entry

    def take(self, now: float) -> Run | None:
        """Remove and return a run whose deadline has passed; return None if there is none."""
        with self._lock:
            while self._heap and self._heap[0][0] <= now:
                run = heapq.heappop(self._heap)[2]()
                if run is not None and run.ended is None:
                    return run
            return None
