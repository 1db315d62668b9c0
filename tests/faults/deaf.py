"""Let the listener of a worker that loads this module with its tasks hang for ever, past every way to reach it."""

from __future__ import annotations

import threading

from jobqueue.worker.claiming.listener import Listener


def _hang(self: Listener) -> None:
    threading.Event().wait()


Listener.turn = _hang  # type: ignore[method-assign, assignment]
