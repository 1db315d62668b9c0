"""One client of a stream: what it wants, and its unsent messages."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from jobqueue.db.cursors import Cursor, Position
from jobqueue.events.wanted import EventSelection

MAX_QUEUED = 5000
SLOW = "slow"  # the reason of a client whose queue is full
# How long a server can take to pass one part to the client before the connection is cut.
STALLED_SECONDS, STALLED_AT_END_SECONDS, STALLED_AT_STOP_SECONDS = 30.0, 3.0, 1.0


class Subscription:
    """One client of a stream, with a queue of its unsent messages."""

    def __init__(self, wanted: EventSelection, wake: Callable[[], object], cut: Callable[[], object] = lambda: None) -> None:
        """Store what the client wants, how to wake its sender, and how to cut its connection (from any thread)."""
        self.wanted = wanted
        self.begin: Cursor | None = None  # the position of the reader when this client came
        self.ended = ""  # the reason to end, when its queue is empty
        self.writing_since: float | None = None  # while the server passes a part to the client
        self._wake, self._cut = wake, cut
        self._lock = threading.Lock()
        self._queue: deque[bytes] = deque()
        self._position = Position("0", 0)

    def admit(self, begin: Cursor) -> None:
        """Set the position at which the client begins."""
        self.begin, self._position = begin, begin.position
        self.wake()

    def put(self, messages: Iterable[bytes], position: Position) -> None:
        """Add messages, after which the client is at this position; end the client if its queue is full."""
        with self._lock:
            if not self.ended:
                self._queue.extend(messages)
                self._position = position
                if len(self._queue) > MAX_QUEUED:
                    self.ended = SLOW
        self.wake()

    def settle(self, position: Position) -> None:
        """Move the position if there was nothing for this client."""
        with self._lock:
            if not self.ended:
                self._position = position

    def take(self) -> tuple[bytes, Position]:
        """Return all unsent messages, and the position after them."""
        with self._lock:
            queued = b"".join(self._queue)
            self._queue.clear()
            return queued, self._position

    def end(self, why: str) -> None:
        """End the client's stream after the queued messages."""
        self.ended = self.ended or why
        self.wake()

    def wake(self) -> None:
        """Wake the sender; a closed loop has no sender any more."""
        try:
            self._wake()
        except RuntimeError:
            self.ended = self.ended or "gone"

    def cut_if_stalled(self, *, stopping: bool) -> None:
        """Cut the connection of a client that has not read for too long, because there is no other way to end a blocked write."""
        since = self.writing_since
        limit = STALLED_AT_STOP_SECONDS if stopping else STALLED_AT_END_SECONDS if self.ended else STALLED_SECONDS
        if since is not None and time.monotonic() - since > limit:
            self._cut()
