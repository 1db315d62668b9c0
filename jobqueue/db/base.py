"""The interface of both databases, in portable SQL; the subclasses hold only the differences.

Times are the database's clock at the start of a statement. Ownership is decided by id and `lease_token` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import DatabaseError, InterfaceError, OperationalError, ProgrammingError
from django.utils.module_loading import import_string

from jobqueue.db.ended_jobs import EndedJobs
from jobqueue.db.eventlog import EventLog
from jobqueue.db.events import Events
from jobqueue.db.records import EndedRun, Lease, Mark, Renewed, RunEnd

CONNECTION_ERRORS = (OperationalError, InterfaceError)
# Codes that Django raises as InternalError: the server accepts no writes at present, because it is a standby or set
# to read-only; or it has ended the session, because its transaction was idle or lasted for too long.
UNABLE = ("25006", "25P03", "25P04")
# Errors of the database about values, or of Python about values that it reads from a row or computes with.
REFUSALS = (DatabaseError, ValueError, TypeError, ArithmeticError, RecursionError, LookupError, AttributeError)
SQLITE_ERROR = 1  # an error of the statement; all other codes are about the file or its locks
IN_FAILED_TRANSACTION = "25P02"
LOCK_REFUSED = "55P03"
GIVEN_UP = ("57014", LOCK_REFUSED, "40P01")

AHEAD = {"run_in": "run_at", "expires_in": "expires_at"}
"""The columns that are given as a number of seconds from now, by the names of the parameters."""


class Database(EndedJobs, Events, EventLog):
    """The statements that the ORM cannot express, for one connection alias and one table of jobs."""

    can_notify: ClassVar[bool] = False
    usable_fence: ClassVar[str] = ""  # the token of a row, or another one if it cannot rise

    @property
    def file(self) -> Path | None:
        """The file of the database, or None if it is not a file."""
        return None

    @property
    def description(self) -> str:
        """The name of this database for operators, without a password."""
        settings = self.connection.settings_dict
        place = f" on {settings['HOST']}" if settings.get("HOST") else ""
        return f"{self.vendor} {settings['NAME']}{place}"

    @property
    def behind_pooler(self) -> bool:
        """Whether a pooler gives each transaction of this thread's connection another session.

        Such a connection receives no notifications and keeps no plans.
        """
        return False

    def missing_schema(self) -> str:
        """Return the schema that django-tenants has set on this thread's connection if it does not exist, else ""."""
        return ""

    def reserve_connection(self, purpose: str, *, keep_plans: bool = False) -> BaseDatabaseWrapper:
        """Give this thread a connection of its own, outside any pool, with limits on how long the network may be silent.

        The connection keeps the plans of statements if `keep_plans` is set.
        """
        return self.connection

    def break_connection(self, connection: Any) -> None:
        """Cut the network of a connection whose thread hangs in a statement, so that the statement fails. Another thread calls this."""

    # Renew, mark, finish: each guarded by id and token

    def renew(self, leases: Sequence[Lease], lease_seconds: float) -> list[Renewed]:
        """Renew the leases whose rows are not locked; return the requests to stop in these rows."""
        raise NotImplementedError

    def mark(self, marks: Sequence[Mark]) -> list[Lease]:
        """Write the starts and the progress of runs; return the rows written."""
        raise NotImplementedError

    def end_runs(self, ends: Sequence[RunEnd]) -> list[EndedRun]:
        """End the runs whose leases are still valid and whose rows are not locked, and write their events; return those written."""
        raise NotImplementedError

    # Insert

    def insert(self, columns: dict[str, Any], *, ignore_conflicts: bool) -> tuple[Any, ...] | None:
        """Insert one job; return (id, created_at), or None if an unfinished job has its unique key."""
        raise NotImplementedError

    def inserting(self, columns: dict[str, Any], ignore_conflicts: bool) -> str:
        """Return the statement that inserts one job, without RETURNING."""
        names = ", ".join(AHEAD.get(name, name) for name in columns)
        values = ", ".join([self.placeholder(name) for name in columns])
        return f"INSERT INTO {self.table} ({names}) VALUES ({values}){' ON CONFLICT DO NOTHING' if ignore_conflicts else ''}"

    def take_ids(self, number: int) -> list[int]:
        """Return ids for jobs that are inserted in another order. Return none if the database has one writer, so that any order is safe."""
        return []

    def insert_many(self, columns: dict[str, Any], calls: Sequence[tuple[str, str, str, str]]) -> tuple[list[int], Any]:
        """Insert one job for each call (args and kwargs as JSON text, unique key, target), all with the same other columns.

        None of the jobs has a unique key. Return their ids, in order, and `created_at`.
        """
        raise NotImplementedError

    def placeholder(self, name: str) -> str:
        """Return the placeholder of a column. For the columns of `AHEAD` the parameter is a time from now on."""
        return "%s"

    # For operators

    def estimated_rows(self) -> int | None:
        """Return the approximate number of jobs from the database's statistics, or None if it keeps none."""
        return None

    # Notifications

    def listen(self, channel: str) -> None:
        """Make this thread's connection receive the notifications of a channel."""
        raise NotImplementedError

    def heard(self, seconds: float) -> list[str]:
        """Wait for notifications for up to `seconds`; return their payloads."""
        raise NotImplementedError

    def notify(self, channel: str, payload: str) -> None:
        """Notify the listeners of a channel; do nothing if the database cannot."""

    @property
    def can_insert_alone(self) -> bool:
        """Whether `insert_alone` works now, that is, if no transaction is open on this thread's connection."""
        return False

    def insert_alone(self, columns: dict[str, Any], note: tuple[str, str] | None) -> tuple[Any, ...] | None:
        """Insert one job as `insert` does and commit it; notify the listeners of a channel in the same message.

        The job is made even if the notification fails.
        """
        raise NotImplementedError


def _sqlstate(error: BaseException) -> str | None:
    """Return the code of PostgreSQL's error behind a Django error, or None."""
    found: str | None = getattr(error.__cause__, "sqlstate", None)
    return found


def _is_statements_fault(error: BaseException) -> bool:
    """Return whether an OperationalError is about a value of the statement, and not about an unreachable database.

    SQLite raises it for JSON that it cannot read, PostgreSQL (class 54) for values that are nested too deep or too
    large for an index.
    """
    if (_sqlstate(error) or "").startswith("54"):
        return True
    return getattr(error.__cause__, "sqlite_errorcode", None) == SQLITE_ERROR and not is_missing_table(error)


def is_connection_error(error: BaseException) -> bool:
    """Return whether the connection or the server failed, not the statement. The statement may succeed on another connection.

    A server that accepts no writes counts as failed: after a failover, the old server or a standby reports this.
    """
    failed = isinstance(error, CONNECTION_ERRORS) and not _is_statements_fault(error)
    return failed or (isinstance(error, DatabaseError) and _sqlstate(error) in UNABLE)


def was_given_up(error: BaseException) -> bool:
    """Return whether the server canceled one statement: it took too long, waited too long for a lock, or was part of a deadlock.

    The connection can still be used.
    """
    return isinstance(error, DatabaseError) and _sqlstate(error) in GIVEN_UP


def is_outage(error: BaseException) -> bool:
    """Return whether the database cannot be reached at present."""
    return is_connection_error(error) and not was_given_up(error)


def is_lock_refusal(error: BaseException) -> bool:
    """Return whether a statement failed because another transaction held a lock for too long."""
    return _sqlstate(error) == LOCK_REFUSED


def is_missing_table(error: BaseException) -> bool:
    """Return whether a table or a column does not exist, as before the first migrate."""
    text = str(error)
    # PostgreSQL's errors about tables and columns have classes. An error of the connection ("database … does not
    # exist") has none of them.
    if isinstance(error, ProgrammingError):
        return "does not exist" in text
    return isinstance(error, OperationalError) and ("no such table" in text or "no such column" in text)


def missing_tables(alias: str) -> str:
    """Return the advice for a missing table."""
    where = "" if alias == DEFAULT_DB_ALIAS else f" --database {alias}"
    return f"The tables of jobqueue are missing or out of date: run 'manage.py migrate{where}' first."


def is_refusal(error: BaseException) -> bool:
    """Return whether the database refuses these values for good, so that trying again cannot help.

    An error that follows an earlier error of the same transaction is not about the values.
    """
    if is_connection_error(error) or _sqlstate(error) == IN_FAILED_TRANSACTION:
        return False
    return isinstance(error, REFUSALS)


KINDS = {"postgresql": "jobqueue.db.postgresql.PostgreSQL", "sqlite": "jobqueue.db.sqlite.SQLite"}
_databases: dict[tuple[str, str], Database] = {}


def for_alias(alias: str, table: str) -> Database:
    """Return the statements for a connection alias, by its vendor."""
    found = _databases.get((alias, table))
    if found is None:
        vendor = connections[alias].vendor
        if vendor not in KINDS:
            raise NotImplementedError(f"jobqueue supports PostgreSQL and SQLite; the database {alias!r} is {vendor}.")
        # Import late, because each class builds on this module; and import only that one, because a project on SQLite
        # may have no psycopg.
        found = _databases[alias, table] = import_string(KINDS[vendor])(alias, table)
    return found
