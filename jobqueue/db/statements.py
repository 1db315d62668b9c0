"""What all statements build on: the alias, the table, and how one statement is run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper


class Statements:
    """Run statements against one connection alias and one table of jobs; the attributes are what databases differ in."""

    one_writer: ClassVar[bool] = False  # an open transaction that has written keeps all others from writing
    now: ClassVar[str] = ""
    ahead: ClassVar[str] = ""  # a time so many seconds (a parameter) ahead of now
    skip_locked: ClassVar[str] = ""
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
        """Open a short transaction, or a savepoint inside the caller's."""
        with transaction.atomic(using=self.alias):
            yield

    @contextlib.contextmanager
    def hot(self) -> Iterator[None]:
        """Surround one hot statement: nothing, where the database's own default suits it."""
        yield

    def rows(self, sql: str, params: Sequence[Any] | dict[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql, params)
            return list(cursor.fetchall()) if cursor.description else []

    def moment(self, value: Any) -> Any:
        """Return a time that a statement returned as an aware datetime."""
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
