"""The base of all statements: the alias, the table, and the execution of one statement."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from jobqueue.db import fence
from jobqueue.db.times import nearest


class Statements:
    """Statements for one connection alias and one table of jobs; the attributes are the differences between databases."""

    vendor: ClassVar[str] = ""
    one_writer: ClassVar[bool] = False  # an open transaction that has written blocks all other writers
    now: ClassVar[str] = ""
    ahead: ClassVar[str] = ""  # a time, with the seconds from now on as its parameter
    skip_locked: ClassVar[str] = ""
    key_share: ClassVar[str] = ""  # blocks a transaction that locks the row to take it over, but not one that only renews it
    same_rank: ClassVar[str] = ""  # see `updating`
    no_idling = ""  # put before a statement, it ends a transaction whose process hangs
    as_text: ClassVar[str] = "{}"
    json_columns: ClassVar[frozenset[str]] = frozenset({"args", "kwargs", "options", "metadata"})

    def __init__(self, alias: str, table: str) -> None:
        """Store the alias and the name of the table."""
        self.alias = alias
        self.table = table

    @property
    def connection(self) -> BaseDatabaseWrapper:
        """This thread's connection."""
        return connections[self.alias]

    @contextlib.contextmanager
    def atomic(self) -> Iterator[None]:
        """Open a short transaction, or a savepoint inside the caller's, that begins with the thread's check (``db/fence.py``)."""
        with transaction.atomic(using=self.alias), fence.passed():
            yield

    def readable(self, column: str) -> str:
        """Return the SQL of a time that Python can read: that of the column, or the nearest one."""
        return nearest(column, self.vendor)

    def inside(self) -> contextlib.AbstractContextManager[None]:
        """Open a savepoint if the caller has a transaction open, as a test has, so that an error inside leaves it usable."""
        return self.atomic() if self.connection.in_atomic_block else contextlib.nullcontext()

    @contextlib.contextmanager
    def hot(self) -> Iterator[None]:
        """Surround one hot statement; do nothing if the database's own default suits it."""
        yield

    def rows(self, sql: str, params: Sequence[Any] | dict[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql, params)
            return list(cursor.fetchall()) if cursor.description else []

    def stands(self, *columns: tuple[str, Any]) -> bool:
        """Return whether a row has these values, and prevent other transactions from taking it over before the end of this one."""
        where = " AND ".join(f"{name} = %s" for name, _ in columns)
        sql = f"{self.no_idling}SELECT 1 FROM {self.table} WHERE {where}{self.key_share}"
        return bool(self.rows(sql, [self.adapt(value) for _, value in columns]))

    def updating(self, alias: str = "") -> str:
        """Return the beginning of an update of many jobs, to which assignments are appended.

        If an update names none of the columns from which a stored generated column is made, PostgreSQL parses the
        expression of that column again for each row: a tenth of the server's cost of a job. If one is named, it
        parses the expression once.
        """
        return f"UPDATE {self.table}{f' AS {alias}' if alias else ''} SET {self.same_rank}"

    def moment(self, value: Any) -> Any:
        """Return a time from a statement as an aware datetime."""
        return value

    def adapt(self, value: Any) -> Any:
        """Return a parameter in the form that the driver needs."""
        return value

    def often(self, sql: str, params: Sequence[Any] | dict[str, Any]) -> list[tuple[Any, ...]]:
        """Run a statement under targets' locks for each of many jobs."""
        return self.rows(f"{self.hint()}{sql}", params)

    def hint(self) -> str:
        """Return the planner's hint, sent before a statement in the same message; it lasts for this transaction."""
        return ""

    def among(self, ids: Sequence[int]) -> tuple[str, list[Any]]:
        """Return the condition that the primary key is one of these, and its parameters."""
        return f"IN ({', '.join('%s' for _ in ids)})", [*ids]
