"""One statement that returns the first row of several queries, with the time of the database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from jobqueue.db.database import Database

Statement = tuple[str, tuple[Any, ...]]


def compile_questions(db: Database, queries: Sequence[QuerySet[Any]]) -> Statement:
    """Return the statement.

    The caller keeps it, because compiling it takes longer than sending it. Each query has one column and is in
    the order of an index, so that the database reads one entry, even if the planner expects another number of
    rows.
    """
    texts, values = [f"SELECT {db.now}"], list[Any]()
    for query in queries:
        sql, params = query[:1].query.get_compiler(using=db.alias).as_sql()
        texts.append(f"({sql})")
        values += params
    return ", ".join(texts), tuple(values)


def ask(db: Database, statement: Statement) -> tuple[datetime, list[Any]]:
    """Return the time of the database, and the value of the first row of each query, or None if there is no row."""
    now, *answers = db.rows(*statement)[0]
    return db.moment(now), answers
