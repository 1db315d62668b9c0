"""The end of a process even if its threads, its output streams or functions of ``atexit`` hang."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

EXIT_SECONDS = 2.0

_runs_exit_functions = threading.Event()


def exit_process(status: int) -> NoReturn:
    """End the process without waiting for its threads; functions of ``atexit`` run for up to `EXIT_SECONDS`.

    The normal end of the interpreter first waits for threads, and hangs if it writes to an output that blocks.
    """
    exit_anyway(status)
    _end(status)


def exit_anyway(status: int) -> None:
    """End the process within seconds even if something delays the end of the interpreter, such as a thread of ``asyncio.to_thread``."""
    atexit.register(_runs_exit_functions.set)  # runs first, since it is registered last
    _after(EXIT_SECONDS, _end_late, status)


def flush() -> None:
    """Flush the standard streams, and ignore errors."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def _end_late(status: int) -> None:
    if _runs_exit_functions.is_set():
        os._exit(status)
    _after(EXIT_SECONDS, os._exit, status)
    _end(status)


def _end(status: int) -> NoReturn:
    with contextlib.suppress(BaseException):  # code of the project and of libraries; the process ends in any case
        atexit._run_exitfuncs()
    flush()
    os._exit(status)


def _after(seconds: float, function: Callable[[int], None], status: int) -> None:
    timer = threading.Timer(seconds, function, [status])
    timer.daemon = True
    timer.start()
