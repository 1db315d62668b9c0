"""What all statements build on: the alias, the table, and how one statement is run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from jobqueue.db import fence
from jobqueue.db.times import nearest


class Statements:
    """Run statements against one connection alias and one table of jobs; the attributes are what databases differ in."""

    vendor: ClassVar[str] = ""
    one_writer: ClassVar[bool] = False  # an open transaction that has written keeps all others from writing
    now: ClassVar[str] = ""
    ahead: ClassVar[str] = ""  # a time so many seconds (a parameter) ahead of now
    skip_locked: ClassVar[str] = ""
    key_share: ClassVar[str] = ""  # keeps out whoever locks a row to take it over, and nobody who only renews it
    same_rank: ClassVar[str] = ""  # see `updating`
    no_idling = ""  # in front of a statement: ends a transaction whose process stands still in the middle of it
    as_text: ClassVar[str] = "{}"
    json_columns: ClassVar[frozenset[str]] = frozenset({"args", "kwargs", "options", "metadata"})

    def __init__(self, alias: str, table: str) -> None:
        """Bind the alias and the name of the table."""
        self.alias = alias
        self.table = table

    @property
    def connection(self) -> BaseDatabaseWrapper:
        """This thread's connection."""
        return connections[self.alias]

    @contextlib.contextmanager
    def atomic(self) -> Iterator[None]:
        """Open a short transaction, or a savepoint inside the caller's; one that the thread's fence lets pass (``db/fence.py``)."""
        with transaction.atomic(using=self.alias), fence.passed():
            yield

    def readable(self, column: str) -> str:
        """Return the SQL of a time for a statement whose answer is read: the column's, or the nearest that Python can read."""
        return nearest(column, self.vendor)

    def inside(self) -> contextlib.AbstractContextManager[None]:
        """Open a savepoint if the caller has a transaction open, as a test has: what fails in there leaves that usable."""
        return self.atomic() if self.connection.in_atomic_block else contextlib.nullcontext()

    @contextlib.contextmanager
    def hot(self) -> Iterator[None]:
        """Surround one hot statement: nothing, where the database's own default suits it."""
        yield

    def rows(self, sql: str, params: Sequence[Any] | dict[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql, params)
            return list(cursor.fetchall()) if cursor.description else []

    def stands(self, *columns: tuple[str, Any]) -> bool:
        """Return whether there is a row with these values, which nobody can take over before the end of this transaction."""
        where = " AND ".join(f"{name} = %s" for name, _ in columns)
        sql = f"{self.no_idling}SELECT 1 FROM {self.table} WHERE {where}{self.key_share}"
        return bool(self.rows(sql, [self.adapt(value) for _, value in columns]))

    def updating(self, alias: str = "") -> str:
        """Return the beginning of an update of many jobs; columns are to follow.

        PostgreSQL reads the expression of a stored generated column from its text again for each row of an update that names none of the
        columns it is made of: a tenth of what a job costs the server. Where one is named, it reads it once.
        """
        return f"UPDATE {self.table}{f' AS {alias}' if alias else ''} SET {self.same_rank}"

    def moment(self, value: Any) -> Any:
        """Return a time that a statement returned as an aware datetime."""
        return value

    def adapt(self, value: Any) -> Any:
        """Return a parameter as the driver wants it."""
        return value

    def often(self, sql: str, params: Sequence[Any] | dict[str, Any]) -> list[tuple[Any, ...]]:
        """Run a statement under targets' locks for each of many jobs."""
        return self.rows(f"{self.hint()}{sql}", params)

    def hint(self) -> str:
        """Return what the planner is told in front of a statement, in the same message and for this transaction alone."""
        return ""

    def among(self, ids: Sequence[int]) -> tuple[str, list[Any]]:
        """Return a condition that the primary key is one of these, and its parameters."""
        return f"IN ({', '.join('%s' for _ in ids)})", [*ids]
