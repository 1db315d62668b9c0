"""Detect whether the server that runs this process was requested to stop.

A server that stops waits for its open responses, and a stream does not end by itself. No interface reports the stop
to an application, so this module reads it from the handler of SIGTERM. With uvicorn and gunicorn, the handler is a
method of the server itself, which stores the signal. An event loop hides its handlers, so a handler of jobqueue is
installed before that of the loop (hypercorn, and gunicorn's worker for ASGI).
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

_signaled = threading.Event()


def server() -> Any:
    """Return the server whose method handles SIGTERM; None if there is none."""
    return getattr(signal.getsignal(signal.SIGTERM), "__self__", None)


def server_ends() -> bool:
    """Return whether the server that runs this process was requested to stop."""
    current_server = server()
    return _signaled.is_set() or getattr(current_server, "should_exit", False) is True or getattr(current_server, "alive", True) is False


def listen() -> None:
    """Install a handler of SIGTERM if an event loop handles that signal; call it from the loop. Otherwise, do nothing."""
    if threading.current_thread() is not threading.main_thread():
        return
    before = signal.getsignal(signal.SIGTERM)
    # A server's method can be read without this. Without a Python handler, the signal must still end the process.
    if not callable(before) or hasattr(before, "__self__") or getattr(before, "jobqueue", False):
        return

    def notice(number: int, frame: FrameType | None) -> None:
        _signaled.set()
        before(number, frame)

    notice.jobqueue = True  # type: ignore[attr-defined]
    signal.signal(signal.SIGTERM, notice)
    signal.siginterrupt(signal.SIGTERM, False)  # as event loops set it: no system call is interrupted
