"""The announcer calls the receivers of signals in a separate thread, so that no receiver delays claims, leases or outcomes.

The queue is bounded. If it is full because a receiver hangs, further signals are dropped and counted. The supervisor calls `report`, which
logs the name of the receiver.
"""

from __future__ import annotations

import itertools
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from django.dispatch import Signal

from jobqueue.core import repeats
from jobqueue.core.forks import guarded
from jobqueue.core.service import ErrorHandler, Service
from jobqueue.db import hygiene
from jobqueue.signals import Read, Send

MAX_WAITING = 10_000
BATCH = 100
HANG_SECONDS = 10.0
REPORT_SECONDS = 60.0
STEP_SECONDS = 0.05

logger = logging.getLogger("jobqueue")


class Announcer(Service):
    """A thread that sends the signals of a worker process."""

    name = "announcer"
    calls_project_code = True

    def __init__(self, on_error: ErrorHandler | None = None) -> None:
        """Prepare the thread."""
        super().__init__(on_error)
        self._queue: deque[tuple[Read | None, Send, Any]] = deque()
        self._batch = 0
        self._room = threading.Event()
        self._call_began: float | None = None
        self._rested_at = time.monotonic()
        self._reported_at: float | None = None
        self._dropped_reported = 0
        self.dropped = 0

    @property
    def waiting(self) -> int:
        """The number of signals that are not sent yet."""
        return len(self._queue) + self._batch

    @property
    def busy_seconds(self) -> float:
        """The seconds since the current call to a receiver began; 0 between calls."""
        began = self._call_began
        return 0.0 if began is None else time.monotonic() - began

    def put(self, send: Send, items: Iterable[Any], read: Read | None = None, patience: float = 0.0) -> None:
        """Queue one call to `send` for each item; drop an item if the queue is full for `patience` seconds. Call it from any thread."""
        deadline = time.monotonic() + patience
        for item in items:
            if len(self._queue) >= MAX_WAITING and not self._wait_for_room(deadline):
                self.dropped += 1
            else:
                self._queue.append((read, send, item))
        self.wake()

    def _wait_for_room(self, deadline: float) -> bool:
        self.wake()
        while len(self._queue) >= MAX_WAITING:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or self.busy_seconds > STEP_SECONDS:  # with a slow receiver, waiting is pointless
                return False
            self._room.clear()
            self._room.wait(min(remaining, STEP_SECONDS))
        return True

    def turn(self) -> float | None:
        """Send one batch of up to `BATCH` signals."""
        batch = [self._queue.popleft() for _ in range(min(len(self._queue), BATCH))]
        if not batch:
            return None
        self._batch = len(batch)
        hygiene.before_task(time.monotonic() - self._rested_at)
        try:
            for (read, send), group in itertools.groupby(batch, key=lambda entry: entry[:2]):
                self._send_all(read, send, [item for _, _, item in group])
        finally:
            self._batch = 0
            self._rested_at = time.monotonic()
            self._room.set()
            hygiene.after_task()
        return 0.0 if self._queue else None

    def _send_all(self, read: Read | None, send: Send, items: list[Any]) -> None:
        known = self._call(read, items) if read is not None else None
        for item in items:
            self._call(send, item, known)
            self._batch -= 1

    def _call(self, function: Any, *args: Any) -> Any:
        self._call_began = time.monotonic()
        try:
            return guarded(function)(*args)
        except BaseException:  # noqa: BLE001 - an error of a receiver or a log handler must not stop the other signals
            repeats.log(logging.ERROR, "A signal was not sent.", exc_info=True)
            hygiene.close_all()
            return None
        finally:
            self._call_began = None

    def tear_down(self) -> None:
        """Close the connections that receivers have opened."""
        hygiene.close_all()

    # Called by the supervisor

    @property
    def details(self) -> dict[str, float | str]:
        """The numbers of signals that wait and that were dropped, and the name of a receiver that hangs."""
        receiver = self.receiver if self.busy_seconds >= HANG_SECONDS else ""
        return {"waiting": self.waiting, "dropped": self.dropped, "receiver": receiver}

    def report(self) -> None:
        """Log that a receiver hangs or that signals were dropped, at most once a minute.

        The supervisor calls this in each of its checks. It never blocks.
        """
        now = time.monotonic()
        seconds, dropped = self.busy_seconds, self.dropped - self._dropped_reported
        if (seconds < HANG_SECONDS and not dropped) or (self._reported_at is not None and now - self._reported_at < REPORT_SECONDS):
            return
        self._reported_at, self._dropped_reported = now, self.dropped
        text = "%s has not returned for %.0f s. Jobs continue, but %d signals wait and %d were dropped."
        if seconds < HANG_SECONDS:
            text = "The receivers of signals are too slow (now: %s, for %.0f s): %d signals wait and %d were dropped."
        args = (text, self.receiver or "A receiver", seconds, self.waiting, dropped)
        # In a thread: the call that hangs may be in a log handler.
        threading.Thread(target=logger.error, args=args, name="jobqueue-report", daemon=True).start()

    @property
    def receiver(self) -> str:
        """The dotted name of the receiver that is running now; "" if none is."""
        frame = sys._current_frames().get((self._thread and self._thread.ident) or 0)
        inner = None
        while frame is not None:
            if frame.f_code is Signal.send_robust.__code__:
                return "" if inner is None else f"{inner.f_globals.get('__name__')}.{inner.f_code.co_qualname}"
            frame, inner = frame.f_back, frame
        return ""
