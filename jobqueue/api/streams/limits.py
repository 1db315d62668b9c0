"""The limit of open streams per user, so that one user cannot occupy the room of all."""

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
# Attributes that identify the users of a project's own authenticator, which need not be rows of a model.
NAMES = ("pk", "id", "username", "name")


def identity(user: Any) -> Hashable:
    """Return a key that identifies a user among those of its type; users without any such attribute count as one."""
    kind = f"{type(user).__module__}.{type(user).__qualname__}"
    for name in NAMES:
        value = getattr(user, name, None)
        if isinstance(value, Hashable) and value not in (None, "") and not callable(value):
            return kind, name, value
    return (kind,)


class Turn:
    """A lock under which the streams of one user read their first data one after another, in threads and in coroutines.

    Otherwise one user's many requests for a large job would delay the streams of all users.
    """

    def __init__(self) -> None:
        """Create the lock, free."""
        self._thread = threading.Lock()
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    def __enter__(self) -> None:
        """Wait for the lock in a thread."""
        self._thread.acquire()

    def __exit__(self, *_: object) -> None:
        """Release the lock."""
        self._thread.release()

    @property
    def _lock(self) -> asyncio.Lock:
        return self._loops.setdefault(asyncio.get_running_loop(), asyncio.Lock())

    async def __aenter__(self) -> None:
        """Wait for the lock in a coroutine."""
        await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        """Release the lock."""
        self._lock.release()


class StreamSlot:
    """One of the streams that a user may have; `leave` releases it, or the garbage collector if the request ended before the stream."""

    _lock = threading.RLock()  # reentrant, because the garbage collector can run in the middle of `leave`
    _open: ClassVar[Counter[Hashable]] = Counter()
    _turns: ClassVar[WeakValueDictionary[Hashable, Turn]] = WeakValueDictionary()

    def __init__(self, user: Any, share: int = 0) -> None:
        """Take a slot; raise a `Problem` if the user has the maximum of streams, or this share of the process (0: no limit)."""
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
        """Release the slot; a second call does nothing."""
        with StreamSlot._lock:
            taken, self._taken = self._taken, False
            if taken and StreamSlot._open[self._key] > 1:
                StreamSlot._open[self._key] -= 1
            elif taken:
                del StreamSlot._open[self._key]

    def __del__(self) -> None:
        """Release the slot."""
        self.leave()


def _too_many(most: int, setting: int) -> Problem:
    why = (
        f"EVENT_STREAMS_PER_USER allows a user {setting} (0: no limit)"
        if most == setting
        else "a user may have half of the streams that a process of this server can serve (EVENT_STREAMS_MOST, and the server's threads)"
    )
    text = f"You have {most} streams open in this process, and {why}. Close one, or try again later."
    return Problem(429, text, limit=most, headers={"Retry-After": BUSY_SECONDS})
