"""What every database must do for us, in portable SQL; the others state only their differences.

Times are the database's clock at the start of a statement. Ownership is judged by id and `lease_token` alone.
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
# What Django calls an InternalError all the same: this server takes no writes just now, since it is a standby or was told so; or it has
# ended the session, whose transaction stood still or lasted for too long.
UNABLE = ("25006", "25P03", "25P04")
# What the database says of values, or Python of those that it reads from a row or computes with.
REFUSALS = (DatabaseError, ValueError, TypeError, ArithmeticError, RecursionError, LookupError, AttributeError)
SQLITE_ERROR = 1  # an error of the statement; each other code is one of the file or of its locks
IN_FAILED_TRANSACTION = "25P02"
LOCK_REFUSED = "55P03"
GIVEN_UP = ("57014", LOCK_REFUSED, "40P01")

AHEAD = {"run_in": "run_at", "expires_in": "expires_at"}
"""Columns that are given as a time from now on, by the names of what is given."""


class Database(EndedJobs, Events, EventLog):
    """Run the statements that the ORM has no word for, against one connection alias and one table of jobs."""

    can_notify: ClassVar[bool] = False
    usable_fence: ClassVar[str] = ""  # the token of a row, or another one if it cannot rise

    @property
    def file(self) -> Path | None:
        """The database's file, where it is one."""
        return None

    @property
    def description(self) -> str:
        """What a person calls this database; no password in it."""
        settings = self.connection.settings_dict
        place = f" on {settings['HOST']}" if settings.get("HOST") else ""
        return f"{self.vendor} {settings['NAME']}{place}"

    @property
    def behind_pooler(self) -> bool:
        """Whether a pooler gives each transaction of this thread's connection another session: nothing is heard then, no plan kept."""
        return False

    def missing_schema(self) -> str:
        """Return the schema that django-tenants has set on this thread's connection where it does not exist; "" where all is well."""
        return ""

    def reserve_connection(self, purpose: str, *, keep_plans: bool = False) -> BaseDatabaseWrapper:
        """Give this thread a connection of its own, outside any pool, with limits on how long the network may be silent.

        It keeps the plans of statements where it is told to.
        """
        return self.connection

    def break_connection(self, connection: Any) -> None:
        """Cut the network of a connection whose thread hangs in a statement, from another thread, so that the statement fails."""

    # Renew, mark, finish: each guarded by id and token

    def renew(self, leases: Sequence[Lease], lease_seconds: float) -> list[Renewed]:
        """Renew the leases that nobody has locked; return what those rows say."""
        raise NotImplementedError

    def mark(self, marks: Sequence[Mark]) -> list[Lease]:
        """Write when runs began and how far they are; return the rows written."""
        raise NotImplementedError

    def end_runs(self, ends: Sequence[RunEnd]) -> list[EndedRun]:
        """End runs that are still ours and whose rows are free, each as it says, and write what happened; return those written."""
        raise NotImplementedError

    # Insert

    def insert(self, columns: dict[str, Any], *, ignore_conflicts: bool) -> tuple[Any, ...] | None:
        """Insert one job; return (id, created_at), or None where a live job has its unique key."""
        raise NotImplementedError

    def inserting(self, columns: dict[str, Any], ignore_conflicts: bool) -> str:
        """Return the insert of one job, which lacks a RETURNING."""
        names = ", ".join(AHEAD.get(name, name) for name in columns)
        values = ", ".join([self.placeholder(name) for name in columns])
        return f"INSERT INTO {self.table} ({names}) VALUES ({values}){' ON CONFLICT DO NOTHING' if ignore_conflicts else ''}"

    def take_ids(self, number: int) -> list[int]:
        """Return ids for jobs that are inserted in another order; none if one writer at a time makes any order safe."""
        return []

    def insert_many(self, columns: dict[str, Any], calls: Sequence[tuple[str, str, str, str]]) -> tuple[list[int], Any]:
        """Insert one job for each call (args and kwargs as JSON text, unique key, target), all with the same other columns.

        None of them has a unique key.

        Return their ids, in order, and `created_at`.
        """
        raise NotImplementedError

    def placeholder(self, name: str) -> str:
        """Return the placeholder of a column; those of `AHEAD` give seconds from now."""
        return "%s"

    # For people

    def estimated_rows(self) -> int | None:
        """Return about how many jobs there are, from the database's statistics; None where it keeps none."""
        return None

    # Notifications

    def listen(self, channel: str) -> None:
        """Let this thread's connection hear a channel."""
        raise NotImplementedError

    def heard(self, seconds: float) -> list[str]:
        """Wait for notifications, at most so long; return their payloads."""
        raise NotImplementedError

    def notify(self, channel: str, payload: str) -> None:
        """Tell listeners; nothing where the database cannot."""

    @property
    def can_insert_alone(self) -> bool:
        """Whether `insert_alone` works just now: nobody has a transaction open on this thread's connection."""
        return False

    def insert_alone(self, columns: dict[str, Any], note: tuple[str, str] | None) -> tuple[Any, ...] | None:
        """Insert one job as `insert` does and commit it; tell the listeners of a channel in the same message.

        It is made though nobody can be told.
        """
        raise NotImplementedError


def _sqlstate(error: BaseException) -> str | None:
    """Return the code of PostgreSQL's error behind one of Django's; None where there is none."""
    found: str | None = getattr(error.__cause__, "sqlstate", None)
    return found


def _is_statements_fault(error: BaseException) -> bool:
    """Return whether an OperationalError says that a value is wrong for a statement, not that the database is not there.

    SQLite says so of JSON that it cannot read, PostgreSQL (class 54) of values that are nested too deep or too large for an index.
    """
    if (_sqlstate(error) or "").startswith("54"):
        return True
    return getattr(error.__cause__, "sqlite_errorcode", None) == SQLITE_ERROR and not is_missing_table(error)


def is_connection_error(error: BaseException) -> bool:
    """Return whether the connection or the server failed, not the statement: another connection, perhaps to another server, may do it.

    A server that takes no writes is one that failed: after a failover, that is what the old one, or a standby, says.
    """
    failed = isinstance(error, CONNECTION_ERRORS) and not _is_statements_fault(error)
    return failed or (isinstance(error, DatabaseError) and _sqlstate(error) in UNABLE)


def was_given_up(error: BaseException) -> bool:
    """Return whether the server gave up one statement: it took too long, waited too long for a lock, or for others in a circle.

    The connection is as good as before.
    """
    return isinstance(error, DatabaseError) and _sqlstate(error) in GIVEN_UP


def is_outage(error: BaseException) -> bool:
    """Return whether the database cannot be reached just now."""
    return is_connection_error(error) and not was_given_up(error)


def is_lock_refusal(error: BaseException) -> bool:
    """Return whether a statement failed since somebody else has a lock that it would not wait for any longer."""
    return _sqlstate(error) == LOCK_REFUSED


def is_missing_table(error: BaseException) -> bool:
    """Return whether a table or a column is not there, as before the first migrate."""
    text = str(error)
    # PostgreSQL's own errors have classes; one of the connection ("database … does not exist") is none of these.
    if isinstance(error, ProgrammingError):
        return "does not exist" in text
    return isinstance(error, OperationalError) and ("no such table" in text or "no such column" in text)


def missing_tables(alias: str) -> str:
    """Say what is to be done where a table is not there."""
    where = "" if alias == DEFAULT_DB_ALIAS else f" --database {alias}"
    return f"The tables of jobqueue are not there or out of date: run 'manage.py migrate{where}' first."


def is_refusal(error: BaseException) -> bool:
    """Return whether the database refuses these values for good: trying again cannot help.

    What is said behind an earlier error of the same transaction says nothing of the values.
    """
    if is_connection_error(error) or _sqlstate(error) == IN_FAILED_TRANSACTION:
        return False
    return isinstance(error, REFUSALS)


KINDS = {"postgresql": "jobqueue.db.postgresql.PostgreSQL", "sqlite": "jobqueue.db.sqlite.SQLite"}
_databases: dict[tuple[str, str], Database] = {}


def for_alias(alias: str, table: str) -> Database:
    """Return the statements for a connection alias; the vendor decides which."""
    found = _databases.get((alias, table))
    if found is None:
        vendor = connections[alias].vendor
        if vendor not in KINDS:
            raise NotImplementedError(f"jobqueue supports PostgreSQL and SQLite; the database {alias!r} is {vendor}.")
        # Late, because each of them builds on this module; and that one alone, because a project on SQLite may have no psycopg.
        found = _databases[alias, table] = import_string(KINDS[vendor])(alias, table)
    return found
