"""Make the listener of a worker hang forever and react to nothing, if the worker loads this module with its tasks."""

from __future__ import annotations

import threading

from jobqueue.worker.claiming.listener import Listener


def _hang(self: Listener) -> None:
    threading.Event().wait()


Listener.turn = _hang  # type: ignore[method-assign, assignment]
