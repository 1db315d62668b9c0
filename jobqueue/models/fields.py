"""Defaults that the database knows, too, so that a row inserted by COPY, raw SQL or an older release is whole."""

from typing import Any

from django.db import models
from django.db.models import Func, Q, Value

from jobqueue.db import MomentField


def text(max_length: int, **options: Any) -> "models.CharField[str, str]":
    """Return a text column that is empty by default."""
    return models.CharField(max_length=max_length, default="", db_default="", blank=True, **options)


def number(
    default: int = 0, *, field: type["models.IntegerField[int, int]"] = models.IntegerField, **options: Any
) -> "models.IntegerField[int, int]":
    """Return a whole-number column with a default."""
    return field(default=default, db_default=default, **options)


def flag(**options: Any) -> "models.BooleanField[bool, bool]":
    """Return a column that is false by default."""
    return models.BooleanField(default=False, db_default=False, **options)


def json(empty: type[list[Any]] | type[dict[str, Any]], **options: Any) -> "models.JSONField[Any, Any]":
    """Return a JSON column that holds an empty list or object by default."""
    return models.JSONField(default=empty, db_default=Value(empty(), output_field=models.JSONField()), blank=True, **options)


def moment(**options: Any) -> MomentField:
    """Return an optional point in time, on the database's clock."""
    return MomentField(null=True, blank=True, **options)


def readable(*names: str) -> Q:
    """Return the condition that Python can read these times: one row with infinity, or a year BC, would fail every query that reads it.

    The bounds are text, which each database compares in its own way, and which is the same with and without `USE_TZ`.
    """
    condition = Q()
    for name in names:
        bounds = {f"{name}__gte": Value("1970-01-01"), f"{name}__lt": Value("9999-01-01")}
        condition &= Q(**{f"{name}__isnull": True}) | Q(**bounds)
    return condition


class CurrentTransaction(Func):
    """Stand for the id of the transaction that writes the row, where the database tells one; as a default, never in a query."""

    allowed_default = True
    arity = 0

    def as_sql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, tuple[Any, ...]]:  # type: ignore[override]
        """Return nothing, for databases with one writer: there the order of ids is that of commits."""
        return "NULL", ()

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, tuple[Any, ...]]:
        """Return the id of the outermost transaction, with its epoch: it never comes again."""
        return "(pg_current_xact_id()::text::bigint)", ()
