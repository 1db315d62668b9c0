"""Real servers on the test's database, and clients that send plain HTTP to them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.faults.harness import ROOT, database_entry, wait_until

SITE = "tests.events_stream.wsgi"
# How each server is started; {port} is filled in. A second element makes the site one of WSGI.
COMMANDS = {
    "uvicorn": "uvicorn django.core.asgi:get_asgi_application --factory --port {port} --lifespan off --log-level warning",
    "hypercorn": f"hypercorn {SITE}:asgi_application --bind 127.0.0.1:{{port}} --log-level warning",
    "hypercorn-wsgi": f"hypercorn wsgi:{SITE}:application --bind 127.0.0.1:{{port}} --log-level warning",
    "sync": f"gunicorn {SITE}:application --bind 127.0.0.1:{{port}} --workers 2 --log-level warning",
    "gthread": f"gunicorn {SITE}:application --bind 127.0.0.1:{{port}} --worker-class gthread --threads 16 --log-level warning",
    "gevent": f"gunicorn {SITE}:application --bind 127.0.0.1:{{port}} --worker-class gevent --log-level warning",
    "gasgi": f"gunicorn {SITE}:asgi_application --bind 127.0.0.1:{{port}} --worker-class asgi --log-level warning",
    "daphne": f"daphne {SITE}:asgi_application --bind 127.0.0.1 --port {{port}} --verbosity 0",
    "waitress": f"waitress --listen 127.0.0.1:{{port}} {SITE}:application",
}


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Server:
    """A server process, which ends with the test."""

    def __init__(self, log: Path, kind: str = "uvicorn", gzip: bool = False, **settings: Any) -> None:
        """Start it; `kind` is one of `COMMANDS`, `settings` are those of ``JOBQUEUE``."""
        self.port, self.log = free_port(), log
        values = {
            "DJANGO_SETTINGS_MODULE": "tests.events_stream.site",
            "STREAM_DATABASE": json.dumps(database_entry()),
            "STREAM_JOBQUEUE": json.dumps(settings),
            "STREAM_GZIP": "1" if gzip else "",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = ["-m", *COMMANDS[kind].format(port=self.port).split()]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                cwd=ROOT,
                env={**os.environ, **values},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def ready(self) -> Server:
        """Wait until it listens."""
        wait_until(self._listens, "the server listens", 30)
        return self

    def _listens(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def resident_megabytes(self) -> float:
        """How much memory it has."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def end(self, seconds: float = 10.0) -> int:
        """Ask it to end; return its exit code."""
        self.process.terminate()
        return self.process.wait(seconds)

    def clean_up(self) -> None:
        """End it whatever state it is in."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # its workers, too
        self.process.wait(10)
        sys.stdout.write(self.log.read_text(errors="replace"))


class Client:
    """Listen to one stream, and remember what came."""

    def __init__(self, port: int, path: str, cookie: str) -> None:
        """Connect to nothing yet."""
        self.port, self.path, self.cookie = port, path, cookie
        self.last_id = self.retry = ""
        self.told: list[dict[str, Any]] = []
        self.head = ""
        self.pings = 0
        self._writer: asyncio.StreamWriter | None = None

    @property
    def ids(self) -> list[int]:
        """The numbers of the events, as they came."""
        return [one["id"] for one in self.told if one["id"] is not None]

    async def listen(self) -> None:
        """Listen until the other side ends it."""
        reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**22)
        resume = f"Last-Event-ID: {self.last_id}\r\n" if self.last_id else ""
        # By HTTP/1.0 the body comes as it is, not in chunks.
        request = f"GET {self.path} HTTP/1.0\r\nHost: localhost\r\nAccept-Encoding: gzip\r\nCookie: sessionid={self.cookie}\r\n{resume}\r\n"
        self._writer.write(request.encode())
        try:
            self.head = (await reader.readuntil(b"\r\n\r\n")).decode()
            while True:
                self.hear((await reader.readuntil(b"\n\n")).decode())
        except asyncio.IncompleteReadError as error:
            self.retry = error.partial.decode().rpartition("retry: ")[2].strip() or self.retry
        except ConnectionError:
            return
        finally:
            self._writer.close()

    def hear(self, message: str) -> None:
        """Take one message in, as a browser does."""
        fields = dict(line.split(": ", 1) for line in message.strip().split("\n"))
        self.last_id = fields.get("id", self.last_id)
        self.retry = fields.get("retry", self.retry)
        self.pings += fields.get("") == "ping"
        if "data" in fields:
            self.told.append(json.loads(fields["data"]))

    def cut(self) -> None:
        """Cut the line without a goodbye (a reset in place of an orderly end)."""
        if self._writer is not None and not self._writer.is_closing():
            line = self._writer.get_extra_info("socket")
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self._writer.transport.abort()
