"""A thread that writes the log, so that an output that blocks (such as a pipe that no process reads) stops no other thread.

Each handler that exists at the start is replaced by one that puts records into a bounded queue. If the queue is full, threads that log
wait for room. When these waits add up to `PATIENCE_SECONDS`, further records are dropped and counted, until the queue is half empty.
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from jobqueue.core import repeats
from jobqueue.core.forks import guarded
from jobqueue.db import hygiene
from jobqueue.worker.forked import drop_at_fork

MAX_RECORDS = 5000
PATIENCE_SECONDS = 1.0
END_SECONDS = 1.0
POLL_SECONDS = 0.02
# Types whose text cannot change before it is written.
FIXED = (str, bytes, int, float, complex, type(None))

logger = logging.getLogger("jobqueue")
Item = tuple[contextvars.Context, Callable[[Any], Any], Any]


class LogThread:
    """The queue of log records, and the thread that writes them."""

    def __init__(self) -> None:
        """Create the queue; entering the context starts the thread and replaces the handlers, and leaving it undoes both."""
        self.dropped = 0
        self.is_written = True  # whether everything was written at the end
        self._queue: collections.deque[Item] = collections.deque()
        self._wake, self._room = threading.Event(), threading.Event()
        self._waited = 0.0  # seconds that threads have waited for room since the queue was last half empty
        self._ends = self._direct = False
        self._thread = threading.Thread(target=self._work, name="jobqueue-log", daemon=True)
        self._replaced: list[tuple[logging.Logger, logging.Handler, Queued]] = []
        self._last_resort = logging.lastResort

    def __enter__(self) -> Self:
        self._thread.start()
        drop_at_fork(self)
        queued: dict[logging.Handler, Queued] = {}
        for place in _loggers():
            for handler in place.handlers:
                if not isinstance(handler, logging.NullHandler):
                    self._replaced.append((place, handler, queued.setdefault(handler, Queued(self, handler))))
            place.handlers[:] = [queued.get(handler, handler) for handler in place.handlers]
        if self._last_resort is not None:
            logging.lastResort = Queued(self, self._last_resort)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ends = True
        self._wake.set()
        self._thread.join(END_SECONDS)
        self.is_written = not self._thread.is_alive()
        if self.is_written:  # else a handler blocks, and would block the next thread that logs
            for place, handler, queued in self._replaced:
                place.handlers[:] = [handler if installed is queued else installed for installed in place.handlers]
            logging.lastResort = self._last_resort

    def put(self, write: Callable[[Any], Any], value: Any) -> None:
        """Queue a call to `write(value)`, which the thread makes in the context of the caller; drop it if the queue stays full."""
        if self._direct:
            write(value)
        elif len(self._queue) < MAX_RECORDS or self._wait_for_room():
            self._queue.append((contextvars.copy_context(), write, value))
            if not self._wake.is_set():  # `set` takes a lock
                self._wake.set()
        else:
            self.dropped += 1

    def _wait_for_room(self) -> bool:
        began = time.monotonic()
        while threading.current_thread() is not self._thread and not self._ends and self._waited < PATIENCE_SECONDS:
            self._room.clear()
            self._room.wait(POLL_SECONDS)
            self._waited += time.monotonic() - began  # the sum over all threads, so no thread waits longer than the limit
            began = time.monotonic()
            if len(self._queue) < MAX_RECORDS:
                return True
        return False

    def _work(self) -> None:
        while not self._ends or self._queue:
            self._wake.wait()
            self._wake.clear()
            while self._queue:
                context, write, value = self._queue.popleft()
                # `logging` reports what a handler raises, except for SystemExit and the like, which must not end this thread.
                with contextlib.suppress(BaseException):
                    context.run(guarded(write), value)
                _tidy()
                if len(self._queue) < MAX_RECORDS / 2:
                    self._waited = 0.0
                    self._room.set()
                    self._report_dropped()
        if hygiene.have_connections():
            hygiene.close_all()

    def _report_dropped(self) -> None:
        if self.dropped:
            dropped, self.dropped = self.dropped, 0
            logger.warning("%d log records were dropped, because the log output is blocked or too slow.", dropped)

    def drop_in_child(self) -> None:
        """Write records directly from now on: the thread does not exist in a forked child."""
        self._direct = True


class Queued(logging.Handler):
    """A handler that puts records into the queue for another handler.

    The filters of that handler run in the thread that logs, since they may read its thread-local state.
    """

    def __init__(self, thread: LogThread, target: logging.Handler) -> None:
        """Queue records for `target`, with its level."""
        self._thread, self.target = thread, target
        # A handler class that overrides `handle` applies its filters there.
        self._is_plain = type(target).handle is logging.Handler.handle
        self._write: Callable[[logging.LogRecord], Any] = self._emit if self._is_plain else target.handle
        super().__init__(target.level)

    def createLock(self) -> None:  # noqa: N802 - the name is logging's
        """Use no lock: the queue needs none, and a thread that waits for room would hold a lock that the log thread needs."""
        self.lock = _NoLock()  # type: ignore[assignment]

    def setLevel(self, level: int | str) -> None:  # noqa: N802 - the name is logging's
        """Set the level of this handler and of the target."""
        super().setLevel(level)
        self.target.setLevel(level)

    def filter(self, record: logging.LogRecord) -> Any:
        """Apply the filters of the target."""
        return self.target.filter(record) if self._is_plain else True

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the record, with its arguments replaced by their current texts."""
        if record.args:
            record.args = _fixed_arguments(
                record.args, with_repr=isinstance(record.msg, str) and ("%r" in record.msg or "%a" in record.msg)
            )
        self._thread.put(self._write, record)

    def _emit(self, record: logging.LogRecord) -> None:
        self.target.acquire()
        try:
            self.target.emit(record)
        finally:
            self.target.release()

    def flush(self) -> None:
        """Do nothing: the target flushes when it writes."""


class _NoLock:
    """An object with the interface of a lock that locks nothing."""

    def acquire(self) -> None:
        """Do nothing."""

    def release(self) -> None:
        """Do nothing."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, *_: object) -> None:
        """Do nothing."""


class _Text:
    """The texts that an argument had when it was logged."""

    def __init__(self, text: str, shown: str) -> None:
        self._text, self._shown = text, shown

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._shown


def _tidy() -> None:
    """End a transaction that a handler left open. Otherwise it keeps its locks until the next record, and on SQLite blocks all writers."""
    with contextlib.suppress(BaseException):
        if left_open := hygiene.after_task():
            repeats.log(
                logging.WARNING, "A log handler left a transaction open on %s; what it wrote there is rolled back.", ", ".join(left_open)
            )


def _fixed_arguments(arguments: Any, *, with_repr: bool) -> Any:
    if isinstance(arguments, Mapping):
        return {name: _fixed(value, with_repr) for name, value in arguments.items()}
    return tuple([_fixed(value, with_repr) for value in arguments])


def _fixed(value: Any, with_repr: bool) -> Any:
    if isinstance(value, FIXED) or type(value).__module__ in ("decimal", "fractions") or isinstance(value, _Text):
        return value
    try:
        return _Text(str(value), repr(value) if with_repr else "")
    except Exception:  # noqa: BLE001 - the handler raises it again, and reports it as logging does
        return value


def _loggers() -> Iterator[logging.Logger]:
    """Yield the loggers that may have handlers, the root first."""
    yield logging.getLogger()
    yield from [entry for entry in list(logging.Logger.manager.loggerDict.values()) if isinstance(entry, logging.Logger)]
