"""A proxy that delays every reply, as if the database were far away."""

from __future__ import annotations

import contextlib
import socket
import threading


class SlowProxy:
    """Pass bytes between clients and a port; what the port answers waits for `seconds` first."""

    def __init__(self, port: int, seconds: float) -> None:
        """Listen on a port of its own."""
        self._to, self._seconds = port, seconds
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []
        self._ended = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Close everything; the threads end with their sockets."""
        self._ended.set()
        for one in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                client = self._listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", self._to))
                self._sockets += [client, server]
                for origin, destination, seconds in ((client, server, 0.0), (server, client, self._seconds)):
                    threading.Thread(target=self._pass_on, args=(origin, destination, seconds), daemon=True).start()

    def _pass_on(self, origin: socket.socket, destination: socket.socket, seconds: float) -> None:
        with contextlib.suppress(OSError):
            while data := origin.recv(65536):
                self._ended.wait(seconds)
                destination.sendall(data)
        with contextlib.suppress(OSError):
            destination.shutdown(socket.SHUT_WR)
