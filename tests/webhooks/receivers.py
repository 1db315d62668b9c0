"""Receivers of webhooks on loopback, good ones and every kind of bad one."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

SECRET = "whsec_" + "c2VjcmV0" * 4


class Request(NamedTuple):
    """A request as received."""

    line: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[[socket.socket, int], None]


class Receiver:
    """A server on a free port that records each request and sends the given answers; each connection has a thread."""

    def __init__(self, answer: Answer, tls: ssl.SSLContext | None = None, place: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        """Begin to listen; `answer` gets the connection and the number of the request, from 1 on."""
        self.requests: list[Request] = []
        self.connections = 0
        self._answer, self._tls = answer, tls
        self.host = place[0]
        self._listener = socket.create_server(place, backlog=200)
        self.port = int(self._listener.getsockname()[1])
        self.ended = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self.host}:{self.port}/hook"

    def close(self) -> None:
        self.ended.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                self.connections += 1
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            connection = self._tls.wrap_socket(client, server_side=True) if self._tls else client
            with connection:
                request = _read(connection)
                if request is not None:
                    self.requests.append(request)
                    self._answer(connection, len(self.requests))


def _read(connection: socket.socket) -> Request | None:
    data = b""
    while b"\r\n\r\n" not in data:
        if not (part := connection.recv(65536)):
            return None
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    line, *rest = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in rest)}
    while len(body) < int(headers.get("content-length", "0")):
        body += connection.recv(65536)
    return Request(line, headers, body)


def says(*statuses: int, more: str = "", body: bytes = b"ok") -> Answer:
    """Answer with these, one after the other, and with the last from then on."""

    def answer(connection: socket.socket, number: int) -> None:
        status = statuses[min(number, len(statuses)) - 1]
        connection.sendall(f"HTTP/1.1 {status} Said\r\ncontent-length: {len(body)}\r\n{more}\r\n".encode() + body)

    return answer


def silent(connection: socket.socket, number: int) -> None:
    connection.recv(1)  # until the sender has had enough


def one_byte_a_second(connection: socket.socket, number: int) -> None:
    pause = threading.Event()
    for byte in b"HTTP/1.1 200 OK\r\nx-filler: " + b"a" * 10:
        connection.sendall(bytes([byte]))
        pause.wait(1)


def drips_its_body(connection: socket.socket, number: int) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 30\r\n\r\n")
    pause = threading.Event()
    for _ in range(30):
        connection.sendall(b".")
        pause.wait(1)


def endless_headers(connection: socket.socket, number: int) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"x-more: " + b"." * 1000 + b"\r\n")


def fifty_megabytes(connection: socket.socket, number: int) -> None:
    connection.sendall(b"HTTP/1.1 500 Oh\r\ncontent-length: 52428800\r\n\r\n")
    for _ in range(800):
        connection.sendall(b"x" * 65536)


def closes(connection: socket.socket, number: int) -> None:
    connection.shutdown(socket.SHUT_RDWR)


def self_signed(directory: Path, name: str = "x") -> ssl.SSLContext:
    """Return the side of a server whose certificate is not trusted; `certificate.pem` is that certificate."""
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    call = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name} -addext subjectAltName=DNS:{name}"
    subprocess.run([*call.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
