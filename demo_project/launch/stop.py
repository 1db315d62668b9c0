"""Turn signals into a wish to stop, so that nothing is cut off half-way and no process stays behind."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(Exception):
    """Say that somebody asked the demo to stop."""


class Stop:
    """Know whether Ctrl-C, SIGTERM or SIGHUP has come, and wait for it."""

    def __init__(self) -> None:
        """Start with no wish."""
        self._wished = threading.Event()
        self._count = 0
        self._whole = 0

    def listen(self) -> None:
        """Take over the signals of this process."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._take)

    def check(self) -> None:
        """Raise `Stopped` where somebody has asked to stop."""
        self.wait(0)

    @property
    def urgent(self) -> bool:
        """Whether somebody asked more than once."""
        return self._count > 1

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Let no signal cut a step short that would leave a process behind."""
        self.keep_whole()
        yield
        self._whole -= 1

    def keep_whole(self) -> None:
        """Let no signal cut anything short from now on: the cleaning up has begun."""
        self._whole += 1

    def wait(self, seconds: float | None = None) -> None:
        """Rest so long; raise `Stopped` as soon as somebody asks to stop."""
        if self._wished.wait(seconds):
            raise Stopped

    def _take(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        self._wished.set()
        if self.urgent and not self._whole:  # in a step that does not look at the wish, such as a database that does not answer
            raise KeyboardInterrupt
