"""The slots of a lane: plain functions and coroutines share them, and runs begin in the order of their claims.

A pool has no more threads than slots, so functions alone need no counting. Only while coroutines of the lane run or wait, a thread that
has taken a function checks for a free slot and waits for one.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Container
from typing import Any, Generic, Protocol, TypeVar

CHECK_SECONDS = 0.1
YIELD_SECONDS = 0.05
BLOCKED_SECONDS = 1.0


class Waiting(Protocol):
    """What these classes need to know of a run: when its job was claimed."""

    claimed_at: float


R = TypeVar("R", bound=Waiting)


class Slots(Generic[R]):
    """A counter of the runs in the slots of one lane; `size` returns the number of slots."""

    def __init__(self, size: Callable[[], int]) -> None:
        """Create the counter with all slots free."""
        self._size = size
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._functions = 0
        self.ended = 0  # functions that have left their slot since the start
        self._coroutines: set[R] = set()
        self._held: list[R] = []  # functions whose threads wait for a slot
        self._late: deque[R] = deque()  # coroutines that wait for a slot
        self._call_loop: Callable[[], object] | None = None
        self._blocked_until = 0.0  # no coroutine is expected to begin before this time: the loop seems blocked

    @property
    def held(self) -> int:
        """The number of functions that wait although a thread has taken them."""
        return len(self._held)

    # Called by the threads

    def enter(self, run: R) -> bool:
        """Wait for a slot and occupy it with a function; return False if the run was removed meanwhile."""
        with self._lock:
            if self._coroutines or self._late:
                self._held.append(run)
                self._wait_for_room(run)
                if run not in self._held:
                    return False
                self._held.remove(run)
            self._functions += 1
            return True

    def _wait_for_room(self, run: R) -> None:
        """Wait until a held run may begin; an older coroutine begins first, unless its loop is blocked."""
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
            self._changed.wait(YIELD_SECONDS if free_since else CHECK_SECONDS)

    def release(self) -> None:
        """Free the slot of a function."""
        with self._lock:
            self._functions -= 1
            self.ended += 1
            if self._held or self._late:
                self._notify()

    def take_held(self, claimed_before: float) -> list[R]:
        """Remove and return the functions that were claimed before a time and have not begun."""
        with self._lock:
            runs = [run for run in self._held if run.claimed_at < claimed_before]
            self._held = [run for run in self._held if run not in runs]
            self._changed.notify_all()
            return runs

    # Called by the loop

    def add(self, run: R, call_loop: Callable[[], object]) -> None:
        """Add a coroutine that waits for a slot; `call_loop` makes the loop call `next`, from any thread."""
        with self._lock:
            self._late.append(run)
            self._call_loop = call_loop

    def next(self, waiting: Container[R]) -> R | None:
        """Occupy a slot with the next coroutine that is still in `waiting`; return None if no slot is free for it."""
        with self._lock:
            while self._late and self._late[0] not in waiting:
                self._late.popleft()
            if not self._late or not self._has_room(self._late[0], yields=True):
                self._changed.notify_all()  # a held function may have waited for a coroutine that is gone
                return None
            self._blocked_until = 0.0
            self._coroutines.add(run := self._late.popleft())
            return run

    def remove(self, run: R) -> None:
        """Remove a coroutine that no longer waits."""
        with self._lock, contextlib.suppress(ValueError):
            self._late.remove(run)
            self._changed.notify_all()

    def end(self, run: R) -> None:
        """Free the slot of a coroutine; the loop then calls `next` itself."""
        with self._lock:
            self._coroutines.discard(run)
            if self._held:
                self._changed.notify_all()

    def give_up(self, run: R) -> None:
        """Free the slot of an abandoned coroutine; from any thread."""
        with self._lock:
            self._coroutines.discard(run)
            self._notify()

    def forget_coroutines(self) -> None:
        """Free the slots of the coroutines of an abandoned loop."""
        with self._lock:
            self._coroutines.clear()
            self._late.clear()
            self._call_loop = None
            self._changed.notify_all()

    def _has_room(self, run: R, yields: bool) -> bool:
        if not self._coroutines and not self._late:  # a pool has no more threads than slots
            return True
        if self._functions + len(self._coroutines) >= self._size():
            return False
        # Compare only the first coroutine: this runs for each coroutine, and thousands may wait. The order is nearly that of the claims.
        first = min((waiting.claimed_at for waiting in (*self._held, *itertools.islice(self._late, 1))), default=run.claimed_at)
        return not (yields and first < run.claimed_at)

    def _notify(self) -> None:
        if self._held:
            self._changed.notify_all()
        if self._late and self._call_loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                self._call_loop()


# The lane of a run, as the run and the event loop use it.


class SlotPool(Protocol):
    """The pool of a lane: its number of slots, and who uses them."""

    size: int
    slots: Slots[Any]

    def submit(self, runs: list[Any]) -> None:
        """Queue runs, in order."""

    def abandon_thread(self, run: Any) -> None:
        """Count the thread of an abandoned run as stuck."""

    def record_coroutine(self, seconds: float) -> None:
        """Count a coroutine that has ended."""

    def remove_slot(self) -> None:
        """Remove one slot: an abandoned coroutine keeps it."""

    def restore_slot(self) -> None:
        """Add the slot of an abandoned coroutine again."""


class RunLane(Protocol):
    """The lane of a run: the number of its claimed runs, and its pool."""

    busy: int
    peak: int

    @property
    def pool(self) -> SlotPool:
        """The pool that has the slots."""

    @property
    def free(self) -> int:
        """The number of unused slots."""
