"""A JSON column that is read only if it is small."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import Func

MAX_BYTES: Final = 2000  # as stored, so PostgreSQL decides without reading a value that is kept outside of the row


class SmallJson(Func):
    """The value of a JSON column, or null if it is larger than `MAX_BYTES`."""

    arity = 1

    template = f"CASE WHEN pg_column_size(%(expressions)s) <= {MAX_BYTES} THEN %(expressions)s END"

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, Any]:
        """Return the value by its number of characters."""
        return self.as_sql(compiler, connection, template=self.template.replace("pg_column_size", "length"))
