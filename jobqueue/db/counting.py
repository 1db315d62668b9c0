"""Bounded counts of several queries in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db.models import QuerySet

from jobqueue.db.database import Database

EMPTY = "SELECT 1 WHERE 1 = 0"


def statement(db: Database, queries: Sequence[QuerySet[Any]], most: int) -> tuple[str, list[Any]]:
    """Return the statement that counts the rows of each query, up to `most`, and its parameters."""
    parts: list[str] = []
    params: list[Any] = []
    for query in queries:
        try:
            sql, given = query.order_by().values("pk")[:most].query.get_compiler(db.alias).as_sql()
        except EmptyResultSet:
            sql, given = EMPTY, ()
        parts.append(f"(SELECT count(*) FROM ({sql}) AS counted)")
        params += given
    return f"SELECT {', '.join(parts)}", params


def count(db: Database, sql: str, params: Sequence[Any]) -> list[int]:
    """Run a statement of `statement`, and return the numbers."""
    return [*db.rows(sql, params)[0]]
