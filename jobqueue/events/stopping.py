"""Whether the server that runs this process was told to stop.

A server that stops waits for its open responses, and a stream has no end. No interface reports the stop to an application, so it is read
from the handler of SIGTERM: of uvicorn and gunicorn that is a method of the server itself, which remembers the signal. An event loop
keeps its handlers to itself, so there a handler of ours is put before that of the loop (hypercorn, and gunicorn's worker for ASGI).
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
    """Return whether the server that runs this process was told to stop."""
    found = server()
    return _signaled.is_set() or getattr(found, "should_exit", False) is True or getattr(found, "alive", True) is False


def listen() -> None:
    """Notice SIGTERM in a process whose event loop handles it; call it from the loop. Elsewhere, do nothing."""
    if threading.current_thread() is not threading.main_thread():
        return
    before = signal.getsignal(signal.SIGTERM)
    # A server's own method is readable as it is; without a handler in Python the signal ends the process, and it must go on to do so.
    if not callable(before) or hasattr(before, "__self__") or getattr(before, "jobqueue", False):
        return

    def notice(number: int, frame: FrameType | None) -> None:
        _signaled.set()
        before(number, frame)

    notice.jobqueue = True  # type: ignore[attr-defined]
    signal.signal(signal.SIGTERM, notice)
    signal.siginterrupt(signal.SIGTERM, False)  # as event loops set it: no system call is cut short
