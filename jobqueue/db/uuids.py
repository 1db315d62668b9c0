"""UUIDs in the database. SQLite stores any value in their columns, and one such value must not fail each query that reads its row."""

from __future__ import annotations

from typing import Any

from django.db import models

from jobqueue.db.times import COLUMN


class UUIDField(models.UUIDField):  # type: ignore[type-arg]  # has no parameters at runtime
    """A UUID. Migrations see Django's field, because the column is the same.

    On SQLite, a value that is no UUID is read as one that is computed from it: the same at each reading, and another for each value.
    """

    def deconstruct(self) -> tuple[str, str, Any, Any]:
        """Return the field for migrations."""
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.UUIDField", args, kwargs

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:
        """Return the expression that reads the column."""
        if compiler.connection.vendor != "sqlite" or not COLUMN.fullmatch(sql):
            return sql, params
        digits = f"replace({sql}, '-', '')"
        good = f"length(hex({digits})) = 64 AND {digits} NOT GLOB '*[^0-9a-fA-F]*' AND instr(CAST({sql} AS BLOB), x'00') = 0"
        return f"CASE WHEN {sql} IS NULL OR (typeof({sql}) = 'text' AND {good}) THEN {sql} ELSE MD5(hex({sql})) END", params
