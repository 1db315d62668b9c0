"""Columns with defaults in the database, so that a row inserted by COPY, raw SQL or an older release is complete.

A row may hold values that Python cannot read: a time outside of its calendar, a number of 5,000 digits. Such a
value must not prevent that its row, or other rows of the same query, are read. Therefore a time is read as the
nearest one that can be read, and JSON as its text.
"""

import json as json_module
import re
from collections.abc import Collection
from functools import partial
from typing import Any, Self

from django.db import models
from django.db.models import Func, Value
from django.db.models.fields.json import KeyTransform

from jobqueue.core.texts import clean
from jobqueue.db import MomentField
from jobqueue.db.times import FIRST, LAST, can_be_read

# The maximum depth of JSON. The arguments of a job may have 100 levels.
MAX_DEPTH = 110
TOKEN_BITS = 40

_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


class Row(models.Model):
    """A row whose numbers are numbers: SQLite stores any value in any column."""

    class Meta:
        abstract = True

    @classmethod
    def from_db(cls, db: str | None, field_names: Collection[str], values: Collection[Any], **options: Any) -> Self:
        """Return the object of a row, with 0 for a text or bytes in a number column."""
        row = [*values]
        for index, (name, value) in enumerate(zip(field_names, values, strict=True)):
            if isinstance(value, str | bytes) and isinstance(cls._meta.get_field(name), models.IntegerField):
                row[index] = 0
        return super().from_db(db, field_names, row, **options)


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
    return any_json(default=empty, db_default=Value(empty(), output_field=models.JSONField()), blank=True, **options)


def any_json(**options: Any) -> "models.JSONField[Any, Any]":
    """Return a JSON column. A value that cannot be read, or is nested too deep, is read as `Unreadable`."""
    field: models.JSONField[Any, Any] = models.JSONField(**options)
    # Set on the instance: Django's expressions, such as Case, do not mix fields of different classes.
    field.__dict__.update(from_db_value=_value_of, get_db_prep_value=partial(_as_stored, field))
    return field


def moment(**options: Any) -> MomentField:
    """Return an optional point in time, on the database's clock."""
    return MomentField(null=True, blank=True, **options)


class Unreadable(str):
    """The text of a JSON value that Python cannot read."""

    __slots__ = ()


def _value_of(value: Any, expression: Any, connection: Any) -> Any:
    """Return the value of a JSON text from the database."""
    return value if value is None or (isinstance(expression, KeyTransform) and not isinstance(value, str)) else read_json(value)


def _as_stored(field: Any, value: Any, connection: Any, prepared: bool = False) -> Any:
    """Return a JSON value for the database. If it is a text that could not be read, return it unchanged."""
    return str(value) if isinstance(value, Unreadable) else type(field).get_db_prep_value(field, value, connection, prepared)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"JSON has no {name}.")


_decode = json_module.JSONDecoder(parse_constant=_refuse_constant).decode


def read_json(value: Any) -> Any:
    """Return the value of a JSON text, or the text itself if it cannot be read."""
    try:
        decoded = _decode(value)
        if "\\u" in value and _HALF_PAIR.search(value):  # SQLite stores half a surrogate pair, which no page and no other database accepts
            decoded = _decode(clean(json_module.dumps(decoded, ensure_ascii=False)))
    except (ValueError, TypeError, RecursionError):
        return Unreadable(clean(str(value)))
    deep = isinstance(decoded, dict | list) and value.count("[") + value.count("{") > MAX_DEPTH and _is_deeper(decoded, MAX_DEPTH)
    return Unreadable(clean(value)) if deep else decoded


def _is_deeper(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        level = [item for part in level for item in (part.values() if isinstance(part, dict) else part) if isinstance(item, dict | list)]
        if not level:
            return False
    return True


def time_constraint(name: str, *columns: str) -> models.CheckConstraint:
    """Return the constraint that Python can read these times of a row."""
    return models.CheckConstraint(condition=Readable(*columns), name=name)


class Readable(Func):
    """The condition that Python can read all of these times; NULL counts as readable."""

    output_field = models.BooleanField()

    def as_sql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, Any]:  # type: ignore[override]
        """Return a condition for each column, because SQLite stores any text as a time."""
        conditions, params = [], list[Any]()
        for expression in self.get_source_expressions():
            part, values = compiler.compile(expression)  # a column, or in Django's check of an instance a value
            conditions.append(f"({part} IS NULL OR {can_be_read(part)})")
            params += [*values] * (conditions[-1].count(part) if values else 0)
        return f"({' AND '.join(conditions)})", params

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, Any]:
        """Return a condition that names each column once: see `OneOf`."""
        parts = [compiler.compile(expression) for expression in self.get_source_expressions()]
        names, params = [part for part, _ in parts], [param for _, values in parts for param in values]
        times = f"{names[0]}::timestamptz" if len(names) == 1 else f"ALL (ARRAY[{', '.join(names)}]::timestamptz[])"
        return f"('[{FIRST}+00,{LAST}+00]'::tstzrange @> {times})", params


class OneOf(Func):
    """The condition that a text column has one of these names.

    PostgreSQL parses the stored form of each check again for each statement. With an array, it is half as long as with IN.
    """

    output_field = models.BooleanField()

    def __init__(self, column: Any, *names: str) -> None:
        """Store the column and the names, which need no quotes."""
        super().__init__(column)
        self.names = names

    def as_sql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, Any]:  # type: ignore[override]
        """Return a condition with IN."""
        column, params = compiler.compile(*self.get_source_expressions())
        return f"""({column} IN ('{"', '".join(self.names)}'))""", params

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, Any]:
        """Return a condition with an array."""
        column, params = compiler.compile(*self.get_source_expressions())
        return f"({column} = ANY ('{{{','.join(self.names)}}}'))", params


class AllOrNone(Func):
    """The condition that all of these conditions are true, or none is. It names each of them once, to be short."""

    output_field = models.BooleanField()

    def as_sql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, Any]:  # type: ignore[override]
        """Return a condition that counts, because conditions are numbers on SQLite."""
        parts, params = self._compiled(compiler)
        return f"({' + '.join(parts)} IN (0, {len(parts)}))", params

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, Any]:
        """Return a condition that compares the first condition with each of the rest."""
        (first, *others), params = self._compiled(compiler)
        return f"({first} = ALL (ARRAY[{', '.join(others)}]))", params

    def _compiled(self, compiler: Any) -> tuple[list[str], list[Any]]:
        compiled = [compiler.compile(expression) for expression in self.get_source_expressions()]
        return [f"({part})" for part, _ in compiled], [param for _, values in compiled for param in values]


class Token(Func):
    """A random number at which the lease tokens of a row begin; a default of the database.

    If a table is emptied and its ids are restarted, a new job gets an old id. A run of the old job must not have the
    token of the new one.
    """

    allowed_default = True
    arity = 0

    def as_sql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, list[Any]]:  # type: ignore[override]
        """Return SQLite's expression."""
        return f"(random() & {2**TOKEN_BITS - 1})", []

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, list[Any]]:
        """Return PostgreSQL's expression."""
        return f"trunc(random() * {2**TOKEN_BITS})::bigint", []


class CurrentTransaction(Func):
    """The id of the transaction that writes the row, if the database has one; for defaults, not for queries."""

    allowed_default = True
    arity = 0

    def as_sql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, tuple[Any, ...]]:  # type: ignore[override]
        """Return NULL for databases with one writer, because there the order of ids is that of commits."""
        return "NULL", ()

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, tuple[Any, ...]]:
        """Return the id of the outermost transaction with its epoch, so that it is never used again."""
        return "(pg_current_xact_id()::text::bigint)", ()
