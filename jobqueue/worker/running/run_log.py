"""The last lines that a run has logged, kept until they are written to the database."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import NamedTuple

MAX_LINES = 200
MAX_BYTES = 64_000

Line = tuple[float, int, str, str]
"""One line: its time by the monotonic clock, its level, its logger, its text."""


class Taken(NamedTuple):
    """The new lines, and the number of the first. `kept_from` is above 0 if lines before this number were taken, and are dropped now."""

    lines: list[Line]
    first: int
    kept_from: int


class RunLog:
    """The last lines of one run. The oldest line is dropped if the lines are too many or too long."""

    def __init__(self, least: int = 0) -> None:
        """Begin without lines. Records below the level `least` are not kept."""
        self.least = least
        self._lock = threading.Lock()  # held only while lines are moved: nothing that can log runs under it
        self._lines: deque[Line] = deque()
        self._size = 0
        self._number = self._taken = self._erased = 0
        self.taken_at = time.monotonic()
        self.keepers: set[int] = set()
        """The threads that keep a record now. A record that one of them logs meanwhile, as by the text of an argument, is not kept."""

    @property
    def is_new(self) -> bool:
        """Whether there are lines that were not taken yet."""
        return self._number > self._taken

    def add(self, level: int, logger: str, text: str) -> None:
        """Append a line; several threads of a task may call this at the same time."""
        size, lines = _size(text), self._lines
        with self._lock:
            self._number += 1
            lines.append((time.monotonic(), level, logger, text))
            self._size += size
            while lines and (len(lines) > MAX_LINES or self._size > MAX_BYTES):
                self._size -= _size(lines.popleft()[3])

    def take(self) -> Taken:
        """Return the lines that were not taken yet."""
        with self._lock:
            dropped = self._number - len(self._lines)
            lines = [*self._lines][max(self._taken - dropped, 0) :]
            erased = min(dropped, self._taken)
            taken = Taken(lines, self._number - len(lines) + 1, dropped + 1 if erased > self._erased else 0)
            self._erased, self._taken, self.taken_at = erased, self._number, time.monotonic()
            return taken

    def put_back(self, taken: Taken) -> None:
        """Make the next call to `take` return these lines again, as far as they are still kept."""
        with self._lock:
            self._taken, self._erased = taken.first - 1, 0


def _size(text: str) -> int:
    return len(text) if text.isascii() else 4 * len(text)
