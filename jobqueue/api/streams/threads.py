"""The few threads in which all streams of a process query the database, so that no stream keeps a connection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from jobqueue.core.texts import exception_summary
from jobqueue.db import close_idle
from jobqueue.exceptions import is_for_the_process

# Separate pools: queries for new streams must not delay the check that ends the stream of a user who has lost the
# permission.
THREADS = {"query": 2, "check": 1}
Answer = TypeVar("Answer")

_starting = threading.Lock()
_threads: dict[str, ThreadPoolExecutor] = {}


def run_here(query: Callable[[], Answer]) -> Answer:
    """Call a function in this thread, and release its connection."""
    try:
        return query()
    except BaseException as error:
        if isinstance(error, Exception) or is_for_the_process(error):
            raise
        # SystemExit and the like of a project's authenticator would end the event loop, and the server with it.
        raise RuntimeError(f"A query of a stream raised {exception_summary(error)}.") from error
    finally:
        close_idle()


async def run_in_pool(query: Callable[[], Answer], kind: str = "query") -> Answer:
    """Call a function in one of the threads of this kind, without blocking the event loop."""
    with _starting:
        if kind not in _threads:  # started with the first stream, after a server has forked
            _threads[kind] = ThreadPoolExecutor(THREADS[kind], f"jobqueue-stream-{kind}")
    return await asyncio.wrap_future(_threads[kind].submit(run_here, query))
