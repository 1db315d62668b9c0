"""Times in the database: stored as UTC and read as aware times, whatever ``USE_TZ``, ``TIME_ZONE`` and the alias's ``TIME_ZONE`` say.

Django stores naive local times on SQLite if ``USE_TZ`` is False, while ``Now()`` writes UTC there. A local time is ambiguous
for one hour each autumn, so a lease or a schedule could not be judged by it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from django.db import models
from django.db.models import functions
from django.utils import timezone
from django.utils.deconstruct import deconstructible

from jobqueue import clock, conf
from jobqueue.core import moments

_COLUMN = re.compile(r'(?:(?:"[^"]+"|\w+)\.)?"[^"]+"')  # in a subquery, the alias of the table has no quotes
FIRST, LAST = (f"{one:%Y-%m-%d %H:%M:%S}" for one in (moments.FIRST, moments.LAST))


class MomentField(models.DateTimeField):  # type: ignore[type-arg]  # has no parameters at runtime
    """A point in time that reads as an aware time. Migrations see a DateTimeField: the column is the same.

    A time that Python cannot read, such as infinity, would fail each query that reads its row. It is read as the nearest that it can.
    """

    def deconstruct(self) -> tuple[str, str, Any, Any]:
        """Return what migrations write."""
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.DateTimeField", args, kwargs

    def get_prep_value(self, value: Any) -> Any:
        """Return an aware time; a naive one is in the project's ``TIME_ZONE`` (with Django's warning if ``USE_TZ`` is True)."""
        value = super().get_prep_value(value)
        return clock.aware(value) if isinstance(value, datetime) else value

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        """Return the value that the driver takes: on SQLite, text in UTC."""
        value = value if prepared else self.get_prep_value(value)
        if connection.vendor != "sqlite" or not isinstance(value, datetime):
            return super().get_db_prep_value(value, connection, prepared=True)
        return str(clock.aware(value).astimezone(UTC).replace(tzinfo=None))

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:
        """Return the expression that reads the column; what is computed from times, such as a minimum, is read as it is."""
        return (nearest(sql, compiler.connection.vendor), params) if _COLUMN.fullmatch(sql) else (sql, params)

    def get_db_converters(self, connection: Any) -> list[Any]:
        """Return what makes an aware time of a value that was read; nothing if Django's own conversion does so already."""
        if conf.uses_time_zones() and (connection.vendor != "sqlite" or connection.timezone_name == "UTC"):
            return []
        return [_converted]


def nearest(column: str, vendor: str) -> str:
    """Return the SQL of a time that Python can read: the column's, or the nearest."""
    if vendor == "sqlite":
        good = can_be_read(column)
        return f"CASE WHEN {column} IS NULL OR ({good}) THEN {column} WHEN {column} < '{FIRST}' THEN '{FIRST}' ELSE '{LAST}' END"
    low, high = (f"'{one}+00'::timestamptz" for one in (FIRST, LAST))
    return f"CASE WHEN {column} < {low} THEN {low} WHEN {column} > {high} THEN {high} ELSE {column} END"


def can_be_read(column: str) -> str:
    """Return the SQL of whether Python can read a time of SQLite, which keeps any text; it is NULL for NULL."""
    day, hour = f"substr({column}, 1, 10)", f"substr({column}, 12, 2)"
    # SQLite itself reads the 30th of February, the hour 24, and spaces at the end. The first condition holds for all times that are written
    # here, so that the others, which allow for other forms, cost a write nothing.
    usual = f"coalesce(datetime({column}, '+0 days'), '') = substr({column}, 1, 19)"
    other = f"coalesce(date({day}, '+0 days'), '') = {day} AND ({hour} BETWEEN '00' AND '23' OR {column} = {day})"
    return (
        f"{column} BETWEEN '{FIRST}' AND '{LAST}' AND substr({column}, -1) > ' '"
        f" AND ({usual} OR ({other} AND julianday({column}) IS NOT NULL))"
    )


@deconstructible(path="django.db.models.functions.datetime.Now")
class Now(functions.Now):
    """The start of the statement on the database's clock, read as an aware time. Migrations see Django's own `Now`."""

    output_field = MomentField()


def _converted(value: datetime | None, expression: object, connection: Any) -> datetime | None:
    return None if value is None else in_utc(value, connection)


def in_utc(value: datetime, connection: Any) -> datetime:
    """Return a time that a statement has returned as an aware one."""
    if connection.vendor == "sqlite":  # stored in UTC; a zone is what Django has added
        return value.replace(tzinfo=UTC)
    if timezone.is_aware(value):
        return value
    # PostgreSQL sends the time in the zone of the session, and Django cuts the zone off if USE_TZ is False.
    zone = connection.connection.info.timezone
    return value.replace(tzinfo=zone).astimezone(UTC)
