"""A proxy that silently drops idle connections, as proxies and firewalls do."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from types import TracebackType
from typing import Self


class Proxy:
    """Pass bytes between clients and a server, and cut every line that the server leaves silent for `idle_seconds`."""

    def __init__(self, server_port: int, idle_seconds: float) -> None:
        """Start without a server."""
        self.idle_seconds, self.cuts, self.lines, self.port = idle_seconds, 0, 0, 0
        self._server_port = server_port
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Listen on a free port."""
        self._listener = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close all lines."""
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _pass_on(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.lines += 1
        server, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                to_server.write(await client.readuntil(b"\r\n\r\n"))
                while data := await asyncio.wait_for(server.read(65536), self.idle_seconds):
                    to_client.write(data)
        except TimeoutError:
            self.cuts += 1
            for writer in (to_client, to_server):
                line = writer.get_extra_info("socket")
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                writer.transport.abort()
        finally:
            to_client.close()
            to_server.close()
