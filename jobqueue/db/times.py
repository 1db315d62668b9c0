"""Times in the database: stored as UTC and read as aware times, with any ``USE_TZ``, ``TIME_ZONE`` and ``TIME_ZONE`` of the alias.

Django stores naive local times on SQLite if ``USE_TZ`` is False, while ``Now()`` writes UTC there. A local time is
ambiguous for one hour each autumn, so it cannot decide a lease or a schedule.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.db import models
from django.db.models import functions
from django.utils import timezone
from django.utils.deconstruct import deconstructible

from jobqueue import clock, conf
from jobqueue.core import moments

COLUMN = re.compile(r'(?:(?:"[^"]+"|\w+)\.)?"[^"]+"')  # in a subquery, the alias of the table has no quotes
FIRST, LAST = (f"{moment:%Y-%m-%d %H:%M:%S}" for moment in (moments.FIRST, moments.LAST))


class MomentField(models.DateTimeField):  # type: ignore[type-arg]  # has no parameters at runtime
    """A point in time that reads as an aware time. Migrations see a DateTimeField, because the column is the same.

    A time that Python cannot read, such as infinity, would fail each query that reads its row. It is read as the
    nearest readable time.
    """

    def deconstruct(self) -> tuple[str, str, Any, Any]:
        """Return the field for migrations."""
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.DateTimeField", args, kwargs

    def get_prep_value(self, value: Any) -> Any:
        """Return an aware time; a naive one is in the project's ``TIME_ZONE`` (with Django's warning if ``USE_TZ`` is True)."""
        value = super().get_prep_value(value)
        return clock.aware(value) if isinstance(value, datetime) else value

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        """Return the value for the driver: on SQLite, text in UTC."""
        value = value if prepared else self.get_prep_value(value)
        if connection.vendor != "sqlite" or not isinstance(value, datetime):
            return super().get_db_prep_value(value, connection, prepared=True)
        return str(clock.aware(value).astimezone(UTC).replace(tzinfo=None))

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:
        """Return the expression that reads the column. Values computed from times, such as a minimum, are read unchanged."""
        return (nearest(sql, compiler.connection.vendor), params) if COLUMN.fullmatch(sql) else (sql, params)

    def get_db_converters(self, connection: Any) -> list[Any]:
        """Return the converter to aware times; none if Django's own conversion returns aware times already."""
        if conf.uses_time_zones() and (connection.vendor != "sqlite" or connection.timezone_name == "UTC"):
            return []
        return [_converted]


def nearest(column: str, vendor: str) -> str:
    """Return the SQL of a time that Python can read: that of the column, or the nearest one."""
    if vendor == "sqlite":
        good = can_be_read(column)
        return f"CASE WHEN {column} IS NULL OR ({good}) THEN {column} WHEN {column} < '{FIRST}' THEN '{FIRST}' ELSE '{LAST}' END"
    low, high = (f"'{moment}+00'::timestamptz" for moment in (FIRST, LAST))
    return f"CASE WHEN {column} < {low} THEN {low} WHEN {column} > {high} THEN {high} ELSE {column} END"


def can_be_read(column: str) -> str:
    """Return the SQL of whether Python can read a time of SQLite, which stores any text; it is NULL for NULL."""
    day, hour = f"substr({column}, 1, 10)", f"substr({column}, 12, 2)"
    # SQLite accepts the 30th of February, the hour 24, and spaces at the end. The first condition holds for all times
    # that jobqueue writes, so the other conditions, which allow other forms, cost its writes nothing.
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
    """Return a time from a statement as an aware time."""
    if connection.vendor == "sqlite":  # stored in UTC; Django has added the zone
        return value.replace(tzinfo=UTC)
    if timezone.is_aware(value):
        return value
    # PostgreSQL sends the time in the zone of the session, and Django removes the zone if USE_TZ is False.
    # Another thread may have read it, and this one may have no session.
    zone = ZoneInfo(connection.timezone_name) if connection.connection is None else connection.connection.info.timezone
    return value.replace(tzinfo=zone).astimezone(UTC)
