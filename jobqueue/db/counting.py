"""Bounded counts of several queries in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db.models import QuerySet

from jobqueue.db.database import Database
from jobqueue.db.ended_jobs import ENDED
from jobqueue.db.overview import reading

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


def count_in_order(db: Database, query: QuerySet[Any], most: int, column: str = "pk") -> int:
    """Count up to `most` rows in the order of the query, by an index that has this order and not by sorting all rows.

    The rows themselves are not read if the index has the `column`.
    """
    try:
        sql, params = query.values(column)[:most].query.get_compiler(db.alias).as_sql()
    except EmptyResultSet:
        return 0
    with reading(db):
        [(number,)] = db.rows(f"{db.hint()}SELECT count(*) FROM ({sql}) AS counted", params)
    return int(number)


def newest_ended(db: Database, most: int) -> tuple[int, int]:
    """Return how many of the `most` jobs that ended last there are, and how many of them are in SUCCESS."""
    ended = f"SELECT status FROM {db.table} WHERE {ENDED} ORDER BY finished_at DESC, id DESC LIMIT %s"
    sql = f"{db.hint()}SELECT count(*), count(*) FILTER (WHERE status = 'SUCCESS') FROM ({ended}) AS newest"
    with reading(db):
        [(number, succeeded)] = db.rows(sql, [most])
    return number, succeeded
