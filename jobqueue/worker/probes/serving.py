"""The probes of one process, from its start to its end."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator

from jobqueue.worker.probes import systemd
from jobqueue.worker.probes.server import ProbeServer, probe_pages
from jobqueue.worker.probes.state import Figures, ProbeState


@contextlib.contextmanager
def probed(listener: socket.socket | None, state: Callable[[], ProbeState], figures: Figures) -> Iterator[None]:
    """Serve the probes at `listener`, if there is one, and notify systemd if it started this process."""
    server = None if listener is None else ProbeServer(listener, probe_pages(state, figures))
    notifier = systemd.from_environment(state)
    for part in (server, notifier):
        if part is not None:
            part.start()
    try:
        yield
    finally:
        for part in (notifier, server):
            if part is not None:
                part.stop()
