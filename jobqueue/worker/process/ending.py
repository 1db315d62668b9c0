"""The end of a process whatever its threads, its outputs and the functions of ``atexit`` do."""

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


def leave(status: int) -> NoReturn:
    """End the process without waiting for its threads; what is registered with ``atexit`` runs, for at most `EXIT_SECONDS`.

    The interpreter's own end would wait for threads before that, and cannot be left once it writes to an output that blocks.
    """
    exit_anyway(status)
    _end(status)


def exit_anyway(status: int) -> None:
    """End the process soon though something holds up the interpreter's own end, such as a thread of ``asyncio.to_thread``."""
    atexit.register(_runs_exit_functions.set)  # the last one runs first
    _after(EXIT_SECONDS, _end_late, status)


def flush() -> None:
    """Write what the standard streams still hold."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def _end_late(status: int) -> None:
    if _runs_exit_functions.is_set():
        os._exit(status)
    _after(EXIT_SECONDS, os._exit, status)
    _end(status)


def _end(status: int) -> NoReturn:
    with contextlib.suppress(BaseException):  # functions of others; the process ends in any case
        atexit._run_exitfuncs()
    flush()
    os._exit(status)


def _after(seconds: float, function: Callable[[int], None], status: int) -> None:
    timer = threading.Timer(seconds, function, [status])
    timer.daemon = True
    timer.start()
