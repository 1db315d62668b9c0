"""The few threads in which all streams of a process ask the database, so that none of them keeps a connection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from jobqueue.core.texts import exception_summary
from jobqueue.db import let_go
from jobqueue.exceptions import is_for_the_process

THREADS = {"ask": 2, "check": 1}  # of each kind: what a stream begins with never delays the end of one whose user has lost the permission
Answer = TypeVar("Answer")

_starting = threading.Lock()
_threads: dict[str, ThreadPoolExecutor] = {}


def run_here(ask: Callable[[], Answer]) -> Answer:
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


async def run_in_pool(ask: Callable[[], Answer], kind: str = "ask") -> Answer:
    """Ask in one of the threads of this kind while the event loop goes on."""
    with _starting:
        if kind not in _threads:  # begun with the first stream, after a server has forked
            _threads[kind] = ThreadPoolExecutor(THREADS[kind], f"jobqueue-stream-{kind}")
    return await asyncio.wrap_future(_threads[kind].submit(run_here, ask))
