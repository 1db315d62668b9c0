"""The start, the stop and the waits of every background thread of a worker.

A `Service` repeats `turn` until it is stopped. `turn` returns how many seconds the service then rests. `wake`
ends the rest early. If `wake` is called during a turn, the next turn follows immediately. If a turn raises
anything, the error is reported, and the turn is tried again after a growing, jittered pause. One bad turn never
ends a service.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Protocol

logger = logging.getLogger("jobqueue")


class Named(Protocol):
    """The interface of an object whose failures are reported: a service, or a duty."""

    name: str


ErrorHandler = Callable[[Named, BaseException, int], None]
_local = threading.local()


def in_service_thread() -> bool:
    """Return whether the calling thread is that of a service. Such a thread must not wait for code of the user's project."""
    return getattr(_local, "is_service", False)


class Service:
    """A thread that repeats `turn`."""

    name = "service"
    longest_backoff_seconds = 5.0
    calls_project_code = False  # if set, a turn can hang in code of the user's project; this is reported, but does not end the worker

    def __init__(self, on_error: ErrorHandler | None = None) -> None:
        """Prepare the thread; `on_error` is called for each failed turn with the number of failures in a row."""
        self._on_error = on_error
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self.turn_began: float | None = None
        self.last_good_turn = time.monotonic()
        self.failures = 0

    def set_up(self) -> None:
        """Prepare what the thread needs. The thread calls this before the first turn."""

    def turn(self) -> float | None:
        """Do one round of work; return the seconds to rest, or None to rest until woken."""
        raise NotImplementedError

    def tear_down(self) -> None:
        """Release what the thread uses. The thread calls this after the last turn."""

    def report(self) -> None:
        """Log problems, if there are any; called regularly, so it must not wait."""

    def start(self) -> None:
        """Start the thread; a second call does nothing."""
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._main, name=f"jobqueue-{self.name}", daemon=True)
                thread.start()
                self._thread = thread  # set after the start, because a thread that has not started cannot be joined

    def stop(self) -> None:
        """Ask the service to end after its current turn; return immediately."""
        self._stopping.set()
        self._wake.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end of the thread; return whether it has ended."""
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def wake(self) -> None:
        """Start the next turn now, or right after the current one."""
        if not self._wake.is_set():  # a check first, because `set` takes a lock, and this is called for every job
            self._wake.set()

    def wait(self, seconds: float | None) -> bool:
        """Rest for up to `seconds`; return whether the service is to stop. Use it instead of sleep."""
        self._wake.wait(seconds)
        return self._stopping.is_set()

    @property
    def details(self) -> dict[str, float | str]:
        """Further values of the state of the service, for the worker's row."""
        return {}

    @property
    def stopping(self) -> bool:
        """Whether the service was requested to stop."""
        return self._stopping.is_set()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def busy_seconds(self) -> float:
        """How long the current turn has lasted; 0 between turns."""
        began = self.turn_began
        return 0.0 if began is None else time.monotonic() - began

    def _main(self) -> None:
        _local.is_service = True
        try:
            self._attempt(self.set_up)
            while not self._stopping.is_set():
                self._wake.clear()  # before the turn, so that a wake during the turn is kept
                pause = self._attempt(self.turn)
                if not self._stopping.is_set():
                    self._wake.wait(pause)
        finally:
            self._attempt(self.tear_down)

    def _attempt(self, step: Callable[[], float | None]) -> float | None:
        self.turn_began = time.monotonic()
        try:
            pause = step()
        except BaseException as error:  # noqa: BLE001 - SystemExit and the like must not end a background thread unnoticed
            self.failures += 1
            self._report_error(error)
            return self.backoff_seconds()
        else:
            self.failures = 0
            self.last_good_turn = time.monotonic()
            return pause
        finally:
            self.turn_began = None

    def _report_error(self, error: BaseException) -> None:
        if self._on_error is None:
            return
        try:
            self._on_error(self, error, self.failures)
        except Exception:
            logger.exception("The failure of the %s could not be reported: %s", self.name, error)

    def backoff_seconds(self) -> float:
        """Return the pause after the current number of failures in a row, jittered so that workers do not retry in step."""
        ceiling: float = min(0.1 * 2.0 ** min(self.failures, 10), self.longest_backoff_seconds)
        return ceiling * random.uniform(0.5, 1.0)  # noqa: S311
