"""Cut the line of a client that does not read what it is sent, under uvicorn, once its stream is to end.

What was handed to the server for such a client waits in the server's buffer until the client goes. So does the task that sends to it, and
uvicorn, when it is told to stop, waits for both. A stream can take none of it back, but its server can: it lets go of a connection
that is aborted, and ends its task as for any client that has gone. The server is found where it hears of the end (`events/stream.py`), the
connection by the request that came over it. Elsewhere nothing is found, and nothing is done.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from typing import Any

from jobqueue.events.stream import Subscription, server_ends

CUT_SECONDS = 3.0  # without a byte taken; at the end of the server, in all


def transport_of(scope: Mapping[str, Any]) -> Any:
    """Return the transport of the connection over which a request came to uvicorn; None where it is gone, or the server is another."""
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    for one in list(getattr(getattr(server, "server_state", None), "connections", ())):
        if getattr(one, "scope", None) is scope:
            return getattr(one, "transport", None)
    return None


class Cutter:
    """Wake whoever sends to a client, and watch that its line does not outlast its stream; all but `wake` belongs to the event loop."""

    def __init__(self, scope: Mapping[str, Any]) -> None:
        """Watch nothing before a client is given."""
        self.client: Subscription | None = None
        self.woken = asyncio.Event()
        self.sent = 0  # how many parts the server has asked for
        self._scope = scope
        self._loop = asyncio.get_running_loop()
        self._over = False
        self._timer: asyncio.TimerHandle | None = None
        self._seen: tuple[int, int] | None = None

    def wake(self) -> None:
        """Wake whoever sends; from any thread."""
        self._loop.call_soon_threadsafe(self._wake)

    def end(self) -> None:
        """Take note that nothing more is sent: what the server still has may be more than its client ever reads."""
        self._over = True
        if self._left:
            self._watch()
        elif self._timer is not None:
            self._timer.cancel()

    def _wake(self) -> None:
        self.woken.set()
        if self.client is not None and self.client.ended and not self._over:
            self._watch()

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(CUT_SECONDS, self._look)

    @property
    def _left(self) -> int:
        transport = transport_of(self._scope)
        return 0 if transport is None else int(transport.get_write_buffer_size())

    def _look(self) -> None:
        self._timer = None
        left = self._left
        if self._over and not left:
            return
        seen, self._seen = self._seen, (left, self.sent)
        if left and (server_ends() or seen == self._seen):
            transport_of(self._scope).abort()
        else:
            self._watch()
