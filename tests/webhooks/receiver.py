"""A receiver of webhooks on a loopback address, which behaves as it is told to."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

CRLF = b"\r\n"


@dataclass
class Received:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float = field(default_factory=time.monotonic)


Behave = Callable[["Receiver", socket.socket, Received], None]


class Receiver:
    """Listen on a port, keep each request, and answer it by `behave`."""

    def __init__(self, behave: Behave, *, host: str = "127.0.0.1", port: int = 0, certificate: Path | None = None) -> None:
        """Begin to listen."""
        self.behave = behave
        self.received: list[Received] = []
        self.connections = 0
        self.over = threading.Event()
        self._tls: ssl.SSLContext | None = None
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(certificate)
        self._listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=128)
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The URL of its hook."""
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self.port}/hook"

    def close(self) -> None:
        """Listen no more."""
        self.over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)

    def _listen(self) -> None:
        while not self.over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        # Whoever calls may hang up at any moment.
        with contextlib.suppress(OSError), connection:
            connection.settimeout(30)
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with connection:
                request = _read(connection)
                if request is not None:
                    self.received.append(request)
                    self.behave(self, connection, request)


def _read(connection: socket.socket) -> Received | None:
    with connection.makefile("rb") as stream:
        first = stream.readline().split()
        if len(first) < 2:
            return None
        headers = {}
        while (line := stream.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            headers[name.decode().lower()] = value.strip().decode()
        return Received(first[1].decode(), headers, stream.read(int(headers.get("content-length", 0))))


@contextlib.contextmanager
def receiving(behave: Behave, **options: object) -> Iterator[Receiver]:
    """Run a receiver."""
    receiver = Receiver(behave, **options)  # type: ignore[arg-type]
    try:
        yield receiver
    finally:
        receiver.close()


# How to behave


def answer(status: int = 200, *lines: str, body: bytes = b"ok") -> Behave:
    """Answer at once."""

    def behave(receiver: Receiver, connection: socket.socket, request: Received) -> None:
        head = [f"HTTP/1.1 {status} Answer", f"Content-Length: {len(body)}", *lines, "Connection: close", "", ""]
        connection.sendall("\r\n".join(head).encode() + body)

    return behave


def one_after_another(*each: Behave) -> Behave:
    """Answer the first request by the first, and so on, all others by the last."""

    def behave(receiver: Receiver, connection: socket.socket, request: Received) -> None:
        each[min(len(receiver.received), len(each)) - 1](receiver, connection, request)

    return behave


def stay_silent(receiver: Receiver, connection: socket.socket, request: Received) -> None:
    """Never answer."""
    receiver.over.wait(60)


def drip(receiver: Receiver, connection: socket.socket, request: Received) -> None:
    """Answer one byte a second."""
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok":
        connection.sendall(bytes([byte]))
        if receiver.over.wait(1):
            return


def drip_the_body(receiver: Receiver, connection: socket.socket, request: Received) -> None:
    """Answer at once, but for the body, which comes one byte a second."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n")
    for _ in range(30):
        connection.sendall(b".")
        if receiver.over.wait(1):
            return


def flood(status: int, megabytes: int = 50) -> Behave:
    """Answer with a body that nobody wants."""

    def behave(receiver: Receiver, connection: socket.socket, request: Received) -> None:
        connection.sendall(f"HTTP/1.1 {status} Flood\r\nContent-Length: {megabytes * 2**20}\r\n\r\n".encode())
        for _ in range(megabytes):
            connection.sendall(b"." * 2**20)

    return behave


def close_at_once(receiver: Receiver, connection: socket.socket, request: Received) -> None:
    """Answer nothing and hang up."""


def certificate_for(name: str, directory: Path) -> Path:
    """Return a file with a key and a certificate that no authority has signed."""
    path = directory / f"{name}.pem"
    key, signed = directory / f"{name}.key", directory / f"{name}.crt"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext",
         f"subjectAltName=DNS:{name}", "-keyout", str(key), "-out", str(signed)],
        check=True, capture_output=True,
    )  # fmt: skip
    path.write_bytes(key.read_bytes() + signed.read_bytes())
    return path
