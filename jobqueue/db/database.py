"""One database and its table of jobs: connection, transactions, and the SQL in which PostgreSQL and SQLite differ.

The statements are functions in the other modules of this package. Each takes a `Database` as its first argument.
The two subclasses of `Database` contain only what differs. Times are those of the database's clock at the start
of a statement.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.module_loading import import_string

from jobqueue.core.targets import Target
from jobqueue.db import fence
from jobqueue.db.times import nearest

RELATIVE_TIME_COLUMNS = {"run_in": "run_at", "expires_in": "expires_at"}
"""The columns that are given as a number of seconds from now, by the names of the parameters."""


class Database:
    """A connection alias and a table of jobs. The class attributes are pieces of SQL; the defaults are those of SQLite."""

    vendor: ClassVar[str] = ""
    is_sqlite: ClassVar[bool] = False
    one_writer: ClassVar[bool] = False  # an open transaction that has written blocks all other writers
    can_notify: ClassVar[bool] = False
    no_idling = ""  # SQL to put before a statement; the server then ends the transaction if its process hangs

    # Expressions
    now: ClassVar[str] = ""
    seconds_from_now: ClassVar[str] = ""  # a time in the future; its parameter is the number of seconds from now
    exact_time: ClassVar[str] = "{}"  # a time in a form that does not lose precision when Python reads it and sends it back
    epoch: ClassVar[str] = "round((julianday({0}) - 2440587.5) * 86400.0, 3)"  # a time as seconds since 1970
    at_epoch: ClassVar[str] = ""  # the time whose parameter is its seconds since 1970
    seconds_between: ClassVar[str] = "((julianday({1}) - julianday({0})) * 86400.0)"
    as_text: ClassVar[str] = "{}"
    last_entry: ClassVar[str] = "CASE WHEN json_valid(history) THEN json_extract(history, '$[#-1].{}') END"
    next_fence: ClassVar[str] = "lease_token + 1"
    usable_fence: ClassVar[str] = ""  # the token of a row, or a new random token if this one is the highest possible number

    # Conditions and clauses
    id_condition: ClassVar[str] = "IN ({})"
    not_among: ClassVar[str] = "NOT IN (SELECT value FROM json_each(%s))"  # its one parameter is a list as JSON
    by_status: ClassVar[tuple[str, str]] = ("status = '{0}'", "id")
    # The first few rows of each target, with a condition and a limit. The limit keeps the planner from reading the
    # rows of all targets.
    first_of: ClassVar[str] = "JOIN {0} AS j ON j.id IN (SELECT j.id FROM {0} AS j WHERE {1} LIMIT {2})"
    same_rank: ClassVar[str] = ""  # see `updating`
    skip_locked: ClassVar[str] = ""
    key_share: ClassVar[str] = ""  # blocks transactions that lock the row to take it over, but not those that only renew it
    for_deletion: ClassVar[str] = ""

    def __init__(self, alias: str, table: str) -> None:
        """Store the alias and the name of the table."""
        self.alias = alias
        self.table = table

    # The connection

    @property
    def connection(self) -> BaseDatabaseWrapper:
        """This thread's connection."""
        return connections[self.alias]

    @property
    def scope(self) -> tuple[str, str]:
        """The alias, and the schema that django-tenants has set on this thread's connection, for keys of results that are kept."""
        return self.alias, str(getattr(self.connection, "schema_name", ""))

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
        """Give this thread a separate connection, outside any pool. The connection is broken if the network is silent for too long.

        The connection keeps the plans of statements if `keep_plans` is set.
        """
        return self.connection

    def break_connection(self, connection: Any) -> None:
        """Cut the network of a connection whose thread hangs in a statement, so that the statement fails. Another thread calls this."""

    def estimated_rows(self) -> int | None:
        """Return the approximate number of jobs from the database's statistics, or None if it keeps none."""
        return None

    # Transactions and statements

    @contextlib.contextmanager
    def atomic(self) -> Iterator[None]:
        """Open a short transaction, or a savepoint inside the caller's, that begins with the thread's check (``db/fence.py``)."""
        with transaction.atomic(using=self.alias), fence.passed():
            yield

    def savepoint_if_in_transaction(self) -> contextlib.AbstractContextManager[None]:
        """Open a savepoint if the caller has a transaction open, as a test has, so that an error inside leaves it usable."""
        return self.atomic() if self.connection.in_atomic_block else contextlib.nullcontext()

    @contextlib.contextmanager
    def read_committed_statement(self) -> Iterator[None]:
        """Surround one hot statement; do nothing if the database's own default suits it."""
        yield

    def rows(self, sql: str, params: Sequence[Any] | dict[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql, params)
            return list(cursor.fetchall()) if cursor.description else []

    def rows_under_lock(self, sql: str, params: Sequence[Any] | dict[str, Any]) -> list[tuple[Any, ...]]:
        """Run a statement that is sent often, for one job after another, under the lock of a target."""
        return self.rows(f"{self.hint()}{sql}", params)

    def hint(self) -> str:
        """Return the planner's hint, sent before a statement in the same message; it lasts for this transaction."""
        return ""

    @contextlib.contextmanager
    def prefer_index(self) -> Iterator[None]:
        """Make the statements inside use an index if there is one.

        Without this, the planner may ignore the index of a table that was never analyzed.
        """
        yield

    def lock_row_if(self, *columns: tuple[str, Any]) -> bool:
        """Return whether a row has these values. If it has, other transactions cannot take it over until this one ends."""
        where = " AND ".join(f"{name} = %s" for name, _ in columns)
        sql = f"{self.no_idling}SELECT 1 FROM {self.table} WHERE {where}{self.key_share}"
        return bool(self.rows(sql, [self.adapt(value) for _, value in columns]))

    # Locks. A database with one writer at a time needs no locks.

    def try_locks(self, keys: Sequence[int]) -> set[int]:
        """Take the locks that are free until the end of the transaction, in this order, without waiting; return their keys."""
        return set(keys)

    def wait_for_locks(self, keys: Sequence[int]) -> None:
        """Take locks until the end of the transaction, in this order, and wait for each."""

    def limit_lock_wait(self, seconds: float) -> None:
        """Make statements fail that wait for a lock for longer, until the end of the transaction."""

    def commit_without_waiting(self) -> None:
        """Make the commit of this transaction not wait for the disk. A crash of the server may lose it."""

    # Notifications

    def listen(self, channel: str) -> None:
        """Make this thread's connection receive the notifications of a channel."""
        raise NotImplementedError

    def wait_for_notifications(self, seconds: float) -> list[str]:
        """Wait for notifications for up to `seconds`; return their payloads."""
        raise NotImplementedError

    def notify(self, channel: str, payload: str) -> None:
        """Notify the listeners of a channel; do nothing if the database cannot."""

    # Pieces of statements

    def updating(self, alias: str = "") -> str:
        """Return the beginning of an update of many jobs, to which assignments are appended.

        If an update names none of the columns from which a stored generated column is made, PostgreSQL parses the
        expression of that column again for each row: a tenth of the server's cost of a job. If one is named, it
        parses the expression once.
        """
        return f"UPDATE {self.table}{f' AS {alias}' if alias else ''} SET {self.same_rank}"

    def readable(self, column: str) -> str:
        """Return the SQL of a time that Python can read: that of the column, or the nearest one."""
        return nearest(column, self.vendor)

    def placeholder(self, name: str) -> str:
        """Return the placeholder of a column. For the columns of `RELATIVE_TIME_COLUMNS`, the parameter is a time relative to now."""
        return self.seconds_from_now if name in RELATIVE_TIME_COLUMNS else "%s"

    def among(self, ids: Sequence[int]) -> tuple[str, list[Any]]:
        """Return the condition that the primary key is one of these, and its parameters."""
        return f"IN ({', '.join('%s' for _ in ids)})", [*ids]

    def range(self, tenant: str, queue: str | None, after: tuple[int, int] | None) -> tuple[str, str, list[Any]]:
        """Return the conditions of a range in a claim index, its order, and the parameters."""
        where, params = " AND tenant = %s", [tenant, *(after or ())]
        if after is not None:
            # A row comparison is one range of the index; two conditions joined by OR are not.
            where += " AND (claim_rank, id) > (%s, %s)"
        if queue is not None:
            where, params = f"{where} AND queue = %s", [*params, queue]
        return where, "claim_rank, id", params

    def columns_equal(self, columns: Sequence[str], values: Sequence[str], beyond: tuple[str, str] | None = None) -> str:
        """Return the condition that columns have these values, and, with `beyond`, that the next column of their index has a higher one."""
        same = " AND ".join(f"{column} = {value}" for column, value in zip(columns, values, strict=True))
        return same if beyond is None else f"{same} AND {beyond[0]} > {beyond[1]}"

    def pairs(self, targets: Iterable[Target]) -> tuple[str, list[Any]]:
        """Return targets as rows (tenant, name), and the parameters."""
        found = list(targets)
        return f"VALUES {', '.join('(%s, %s)' for _ in found)}", [text for target in found for text in target]

    def skip_locked_of(self, alias: str) -> str:
        """Return the clause that locks the rows of one table of a join and skips locked ones."""
        return ""

    def bucket(self, expression: str, bounds: Sequence[float]) -> str:
        """Return the SQL of how many of the rising `bounds` a number has reached."""
        if not bounds:
            return "0"
        middle = len(bounds) // 2
        high = self.bucket(expression, bounds[middle + 1 :])
        return f"CASE WHEN {expression} < {bounds[middle]!r} THEN {self.bucket(expression, bounds[:middle])} ELSE {middle + 1} + {high} END"

    # Values

    def moment(self, value: Any) -> Any:
        """Return a time from a statement as an aware datetime."""
        return value

    def moment_text(self, at: Any) -> str | None:
        """Return a time in the form that the database reads."""
        return at.isoformat() if at else None

    def adapt(self, value: Any) -> Any:
        """Return a parameter in the form that the driver needs."""
        return value


KINDS = {"postgresql": "jobqueue.db.postgresql.PostgreSQL", "sqlite": "jobqueue.db.sqlite.SQLite"}
_databases: dict[tuple[str, str], Database] = {}


def for_alias(alias: str, table: str) -> Database:
    """Return the database of a connection alias, by its vendor."""
    database = _databases.get((alias, table))
    if database is None:
        vendor = connections[alias].vendor
        if vendor not in KINDS:
            raise NotImplementedError(f"jobqueue supports PostgreSQL and SQLite; the database {alias!r} is {vendor}.")
        # Import late, because each class builds on this module.
        database = _databases[alias, table] = import_string(KINDS[vendor])(alias, table)
    return database
