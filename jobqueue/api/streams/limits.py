"""The limits of streams: how many a process serves, how many a user may have, and how many requests authenticate at a time.

Under WSGI, a stream occupies a thread of the server, so a process serves few of them. One user can have half of these at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Any, ClassVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest

from jobqueue import conf
from jobqueue.api.responses import ApiError
from jobqueue.db import close_idle
from jobqueue.events import stopping

BUSY_SECONDS = "10"
MAX_ASYNC = 2000  # streams of a process under ASGI
TEST_CLIENT = "django.test.client"  # it reports one thread, and blocks no server
WAITRESS = "waitress-"  # the prefix of the names of its threads
AUTH_LIMIT = threading.BoundedSemaphore(4)
# Attributes that identify the users of a project's own authenticator, which need not be rows of a model.
NAMES = ("pk", "id", "username", "name")

logger = logging.getLogger("jobqueue")
_reported = threading.Event()


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
    """One of the streams of this process and of a user; `leave` releases it.

    If the request ends before the stream, the garbage collector releases it.
    """

    _lock = threading.RLock()  # reentrant, because the garbage collector can run in the middle of `leave`
    _open: ClassVar[Counter[Hashable]] = Counter()
    _turns: ClassVar[WeakValueDictionary[Hashable, Turn]] = WeakValueDictionary()

    def __init__(self, request: HttpRequest, user: Any) -> None:
        """Take a slot; raise `ApiError` if the process or the user has the maximum number of streams."""
        self._taken = False
        self._key = identity(user)
        most = most_streams(request)
        with StreamSlot._lock:
            if StreamSlot.number() >= most:
                raise busy(most)
            setting = conf.current().event_streams_per_user
            share = 0 if isinstance(request, ASGIRequest) else max(1, most // 2)
            limit = min(setting, share) if setting and share else setting or share
            if limit and StreamSlot._open[self._key] >= limit:
                raise _too_many(limit, setting)
            StreamSlot._open[self._key] += 1
            self._taken = True
            self.turn = StreamSlot._turns.setdefault(self._key, Turn())

    @classmethod
    def number(cls) -> int:
        """Return the number of streams of this process."""
        return cls._open.total()

    def release(self) -> None:
        """Release the slot; a second call does nothing."""
        with StreamSlot._lock:
            was_taken, self._taken = self._taken, False
            if was_taken and StreamSlot._open[self._key] > 1:
                StreamSlot._open[self._key] -= 1
            elif was_taken:
                del StreamSlot._open[self._key]

    def __del__(self) -> None:
        """Release the slot."""
        self.release()


def _too_many(most: int, setting: int) -> ApiError:
    why = (
        f"EVENT_STREAMS_PER_USER allows a user {setting} (0: no limit)"
        if most == setting
        else "a user may have half of the streams that a process of this server can serve (EVENT_STREAMS_MOST, and the server's threads)"
    )
    text = f"You have {most} streams open in this process, and {why}. Close one, or try again later."
    return ApiError(429, text, limit=most, headers={"Retry-After": BUSY_SECONDS})


def most_streams(request: HttpRequest) -> int:
    """Return how many streams this process serves at a time: under WSGI at most half of the server's threads, if their number is known."""
    if isinstance(request, ASGIRequest):
        return MAX_ASYNC
    most = conf.current().event_streams_most
    threads = _threads(request)
    if threads is None or threads // 2 >= most:
        return most
    if threads < 2 and not _reported.is_set():
        _reported.set()
        logger.warning(
            "Streams of events are refused: this server has one thread per process, which a stream would occupy. Give it "
            "threads (gunicorn --threads 8) or serve the site by ASGI (docs/streaming.md)."
        )
    return threads // 2


def _threads(request: HttpRequest) -> int | None:
    """Return how many requests a process of the server handles at a time; None if that is not known."""
    if request.META.get("wsgi.multithread") is False and type(request.META.get("wsgi.input")).__module__ != TEST_CLIENT:
        return 1
    server = stopping.server()
    if type(server).__module__ == "gunicorn.workers.gthread":
        return int(server.cfg.threads)
    return sum(thread.name.startswith(WAITRESS) for thread in threading.enumerate()) or None


def busy(most: int) -> ApiError:
    """Return the error of a process that can serve no further stream; `most` is its maximum."""
    if most == 0:
        text = (
            "No streams of events are served here: the server handles too few requests at a time, and a stream would occupy one of"
            " its threads. Give it threads (gunicorn --threads 8), or serve the site by ASGI."
        )
        return ApiError(503, text, code="no_streams")
    text = f"This process already serves its maximum of {most} streams."
    return ApiError(503, f"{text} Try again later.", code="too_many_streams", headers={"Retry-After": BUSY_SECONDS})


@contextlib.contextmanager
def authenticating() -> Iterator[None]:
    """Limit the number of concurrent authentications: under ASGI each request has a separate thread, and so a separate connection."""
    with AUTH_LIMIT:
        try:
            yield
        finally:
            close_idle()  # otherwise the thread of this request would keep its connection until the end of the stream
