"""The few threads in which all streams of a process ask the database, so that none of them keeps a connection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from jobqueue.db import let_go
from jobqueue.exceptions import is_for_the_process
from jobqueue.texts import exception_summary

THREADS = 2
Answer = TypeVar("Answer")

_starting = threading.Lock()
_threads: ThreadPoolExecutor | None = None


def at_once(ask: Callable[[], Answer]) -> Answer:
    """Ask in this thread, and keep no connection."""
    try:
        return ask()
    except BaseException as error:
        if isinstance(error, Exception) or is_for_the_process(error):
            raise
        # SystemExit and the like of a project's authenticator, which would end the event loop, and the server with it.
        raise RuntimeError(f"What a stream asked raised {exception_summary(error)}.") from error
    finally:
        let_go()


async def elsewhere(ask: Callable[[], Answer]) -> Answer:
    """Ask in one of the threads while the event loop goes on."""
    global _threads  # noqa: PLW0603 - begun with the first stream, after a server has forked
    with _starting:
        if _threads is None:
            _threads = ThreadPoolExecutor(THREADS, "jobqueue-stream")
    return await asyncio.wrap_future(_threads.submit(at_once, ask))
