"""The parts of a stream, under ASGI and under WSGI: its source, its first messages, and its timers.

The order of the steps ensures that the client misses no event. First the shared reader admits the client and reports
its position. Then a snapshot of the job is read, or the events that the client missed are replayed up to that
position. Then the reader sends its events.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from jobqueue import clock, conf
from jobqueue.api.streams import recheck
from jobqueue.db.cursors import Position
from jobqueue.events import replay, wire
from jobqueue.events.subscription import Subscription
from jobqueue.events.wanted import EventSelection

RETRY_MILLISECONDS = 3000
RETRY_SOON_MILLISECONDS = 500  # after a stream that ended only because of its age
ADMIT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class StreamSource:
    """The source of a stream: which events, whether the user may see them, and the snapshot; the two functions use the database."""

    wanted: EventSelection
    allowed: Callable[[], bool]
    read_snapshot: Callable[[], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream: its source, the position from which the client resumes (None for a new one), and whether it wants a snapshot."""

    source: StreamSource
    last: Position | None
    wants_snapshot: bool

    def opening(self, client: Subscription) -> Iterator[bytes]:
        """Yield the messages before the live events; advancing the iterator can query the database."""
        begin = client.begin
        if begin is None:
            return
        last = self.last
        lost = last is not None and replay.is_lost(last, begin)
        if last is not None and replay.is_from_another_log(last, begin):
            last = None
        start = begin.position if last is None else last
        if lost:
            yield wire.message(start, _own(wire.RESET, {"reason": "Events after this id are no longer stored."}))
        if self.wants_snapshot or lost:
            yield wire.message(start, _own(wire.SNAPSHOT, self.source.read_snapshot()))
        if last is not None:
            yield from replay.pages(self.source.wanted, last, begin)
        elif not self.wants_snapshot and not lost:
            yield wire.ping(begin.position)


def _own(name: str, data: dict[str, Any]) -> bytes:
    return wire.body({"id": None, "event": name, "at": clock.now().isoformat(), "data": data})


class StreamClock:
    """The timers of one stream: for its next ping, its next check of permissions, and its end."""

    def __init__(self) -> None:
        """Start the timers."""
        settings = conf.current()
        self.ping_seconds = settings.event_ping_seconds
        now = time.monotonic()
        self._sent, self._checked = now, now
        # Streams that began together do not all end together.
        self._end = now + settings.event_stream_seconds * random.uniform(0.9, 1.0)  # noqa: S311
        self.last_was_ping = False  # whether the last message is a ping

    @property
    def seconds_to_next_action(self) -> float:
        """The seconds until the next action is due."""
        now = time.monotonic()
        return max(0.0, min(self._sent + self.ping_seconds, self._checked + recheck.CHECK_SECONDS, self._end) - now)

    @property
    def is_over(self) -> bool:
        """Whether the stream has reached its maximum age."""
        return time.monotonic() >= self._end

    def take_bytes(self, client: Subscription) -> bytes:
        """Return the bytes to send now: events, or a ping if one is due."""
        events, position = client.take()
        if not events and time.monotonic() - self._sent < self.ping_seconds:
            return b""
        self._sent, self.last_was_ping = time.monotonic(), not events
        return events or wire.ping(position)

    def start_check_if_due(self) -> bool:
        """Return whether a check of permissions is due. If it is, restart the interval."""
        if time.monotonic() - self._checked < recheck.CHECK_SECONDS:
            return False
        self._checked = time.monotonic()
        return True
