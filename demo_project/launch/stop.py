"""Signals as requests to stop, so that no step is interrupted halfway and no process is left behind."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(Exception):
    """A request to stop the demo."""


class Stop:
    """The record of Ctrl-C, SIGTERM and SIGHUP; callers check it or wait for it."""

    def __init__(self) -> None:
        """Start without a request."""
        self._wished = threading.Event()
        self._count = 0
        self._whole = 0

    def listen(self) -> None:
        """Install handlers for the signals of this process."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._take)

    def check(self) -> None:
        """Raise `Stopped` after a request to stop."""
        self.wait(0)

    @property
    def urgent(self) -> bool:
        """Whether there was more than one request."""
        return self._count > 1

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Protect a step from signals, because an interrupted step would leave a process behind."""
        self.keep_whole()
        yield
        self._whole -= 1

    def keep_whole(self) -> None:
        """Protect all further steps from signals: the cleanup has begun."""
        self._whole += 1

    def wait(self, seconds: float | None = None) -> None:
        """Wait up to `seconds`; raise `Stopped` as soon as there is a request to stop."""
        if self._wished.wait(seconds):
            raise Stopped

    def _take(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        self._wished.set()
        if self.urgent and not self._whole:  # in a step that does not check for requests, such as a query that does not return
            raise KeyboardInterrupt
