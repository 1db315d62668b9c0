"""The slots of a lane: plain functions and coroutines share them, and who was claimed first begins first.

There are no more threads than slots, so functions alone need no counting. Only while coroutines of the lane run, or wait, does a thread
that has taken a function ask whether there is room, and waits for it.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Container
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobqueue.worker.running.run import Run

LOOK_SECONDS = 0.1
YIELD_SECONDS = 0.05
BLOCKED_SECONDS = 1.0


class Slots:
    """Count what runs in the slots of one lane; `size` tells how many there are."""

    def __init__(self, size: Callable[[], int]) -> None:
        """Begin with all of them free."""
        self._size = size
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._functions = 0
        self.ended = 0  # functions that have left their slot, since the start
        self._coroutines: set[Run] = set()
        self._held: list[Run] = []  # functions whose threads wait for room
        self._late: deque[Run] = deque()  # coroutines that wait for room
        self._call_loop: Callable[[], object] | None = None
        self._blocked_until = 0.0  # as far as we know, nothing begins in the loop before

    @property
    def held(self) -> int:
        """How many functions wait, though a thread has taken them."""
        return len(self._held)

    # Called by the threads

    def enter(self, run: Run) -> bool:
        """Occupy a slot with a function, waiting for one; return False where the run was taken back meanwhile."""
        with self._lock:
            if self._coroutines or self._late:
                self._held.append(run)
                self._wait_for_room(run)
                if run not in self._held:
                    return False
                self._held.remove(run)
            self._functions += 1
            return True

    def _wait_for_room(self, run: Run) -> None:
        """Wait until a held run may begin; a coroutine that is older goes first, unless its loop is blocked."""
        free_since = None
        while run in self._held:
            now = time.monotonic()
            if self._has_room(run, yields=now >= self._blocked_until):
                return
            if not self._has_room(run, yields=False):
                free_since = None
            elif now - (free_since := free_since or now) >= YIELD_SECONDS:
                self._blocked_until = now + BLOCKED_SECONDS
                continue
            self._changed.wait(YIELD_SECONDS if free_since else LOOK_SECONDS)

    def leave(self) -> None:
        """Free the slot of a function."""
        with self._lock:
            self._functions -= 1
            self.ended += 1
            self._tell()

    def take_held(self, claimed_before: float) -> list[Run]:
        """Take out the functions that were claimed before a time and have not begun."""
        with self._lock:
            taken = [run for run in self._held if run.claimed_at < claimed_before]
            self._held = [run for run in self._held if run not in taken]
            self._changed.notify_all()
            return taken

    # Called by the loop

    def add(self, run: Run, call_loop: Callable[[], object]) -> None:
        """Let a coroutine wait for a slot; `call_loop` has the loop ask for the `next` one, from any thread."""
        with self._lock:
            self._late.append(run)
            self._call_loop = call_loop

    def next(self, waiting: Container[Run]) -> Run | None:
        """Occupy a slot with the next coroutine that is still among those that are `waiting`; None where no slot is free for it."""
        with self._lock:
            while self._late and self._late[0] not in waiting:
                self._late.popleft()
            if not self._late or not self._has_room(self._late[0], yields=True):
                self._changed.notify_all()  # there may be nobody left to wait for
                return None
            self._blocked_until = 0.0
            self._coroutines.add(run := self._late.popleft())
            return run

    def remove(self, run: Run) -> None:
        """Forget a coroutine that waits no longer."""
        with self._lock, contextlib.suppress(ValueError):
            self._late.remove(run)
            self._changed.notify_all()

    def end(self, run: Run) -> None:
        """Free the slot of a coroutine; the loop itself asks for the next one then."""
        with self._lock:
            self._coroutines.discard(run)
            if self._held:
                self._changed.notify_all()

    def give_up(self, run: Run) -> None:
        """Free the slot of a coroutine that was given up on; from any thread."""
        with self._lock:
            self._coroutines.discard(run)
            self._tell()

    def forget_coroutines(self) -> None:
        """Let those of a loop that was left to itself take up no slots."""
        with self._lock:
            self._coroutines.clear()
            self._late.clear()
            self._call_loop = None
            self._changed.notify_all()

    def _has_room(self, run: Run, yields: bool) -> bool:
        if not self._coroutines and not self._late:  # there are no more threads than slots
            return True
        if self._functions + len(self._coroutines) >= self._size():
            return False
        # Each of the two in the order of their claims, or nearly so: this is asked for each coroutine, of which thousands may wait.
        first = min((one.claimed_at for one in (*self._held, *itertools.islice(self._late, 1))), default=run.claimed_at)
        return not (yields and first < run.claimed_at)

    def _tell(self) -> None:
        if self._held:
            self._changed.notify_all()
        if self._late and self._call_loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                self._call_loop()
