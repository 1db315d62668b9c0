"""Count the open streams of each user, so that one who opens ever more of them leaves room for all others."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Hashable
from typing import Any, ClassVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from jobqueue import conf
from jobqueue.api.responses import Problem

BUSY_SECONDS = "10"
# What tells apart the users of a project's own authenticator, which need not be rows of a model.
NAMES = ("pk", "id", "username", "name")


def identity(user: Any) -> Hashable:
    """Return what tells a user from others of its kind; those that have nothing of the sort count as one."""
    kind = f"{type(user).__module__}.{type(user).__qualname__}"
    for name in NAMES:
        value = getattr(user, name, None)
        if isinstance(value, Hashable) and value not in (None, "") and not callable(value):
            return kind, name, value
    return (kind,)


class Turn:
    """The lock under which the streams of one user read what they begin with, one after another, in threads and in coroutines.

    One user's many pages of a large job would delay the streams of all others.
    """

    def __init__(self) -> None:
        """Begin free."""
        self._thread = threading.Lock()
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    def __enter__(self) -> None:
        """Wait for the turn of a thread."""
        self._thread.acquire()

    def __exit__(self, *_: object) -> None:
        """Let the next one."""
        self._thread.release()

    @property
    def _lock(self) -> asyncio.Lock:
        return self._loops.setdefault(asyncio.get_running_loop(), asyncio.Lock())

    async def __aenter__(self) -> None:
        """Wait for the turn of a coroutine."""
        await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        """Let the next one."""
        self._lock.release()


class StreamSlot:
    """Be one of a user's streams; `leave` gives it back, and so does its end, where the request was dropped before the stream began."""

    _lock = threading.RLock()  # of the collector of garbage, too, which may run in the middle of `leave`
    _open: ClassVar[Counter[Hashable]] = Counter()
    _turns: ClassVar[WeakValueDictionary[Hashable, Turn]] = WeakValueDictionary()

    def __init__(self, user: Any, share: int = 0) -> None:
        """Take a place; refuse, by a `Problem`, a user who has as many streams as one may, or this share of the process (0: no limit)."""
        self._taken = False
        self._key = identity(user)
        setting = conf.current().event_streams_per_user
        most = min(setting, share) if setting and share else setting or share
        with StreamSlot._lock:
            if most and StreamSlot._open[self._key] >= most:
                raise _too_many(most, setting)
            StreamSlot._open[self._key] += 1
            self._taken = True
            self.turn = StreamSlot._turns.setdefault(self._key, Turn())

    def leave(self) -> None:
        """Give the place back; a second call does nothing."""
        with StreamSlot._lock:
            taken, self._taken = self._taken, False
            if taken and StreamSlot._open[self._key] > 1:
                StreamSlot._open[self._key] -= 1
            elif taken:
                del StreamSlot._open[self._key]

    def __del__(self) -> None:
        """Give the place back."""
        self.leave()


def _too_many(most: int, setting: int) -> Problem:
    why = (
        f"EVENT_STREAMS_PER_USER allows a user {setting} (0: no limit)"
        if most == setting
        else "one user may have half of the streams that a process of this server can serve (EVENT_STREAMS_MOST, and the server's threads)"
    )
    text = f"You have {most} streams open in this process, and {why}. Close one, or try again later."
    return Problem(429, text, limit=most, headers={"Retry-After": BUSY_SECONDS})
