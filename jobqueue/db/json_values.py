"""The condition that a value inside a JSON column is one of several."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django.db.models import BooleanField, F, Func


class JsonValueIn(Func):
    """Whether the value at a path of a JSON column is one of `values`. On SQLite, true equals 1 and false equals 0.

    A text in the path is a key, a number is the index of an item, from the end if it is negative. A value that
    cannot be read as JSON, which SQLite can hold, has no such value.
    """

    output_field = BooleanField()
    conditional = True

    def __init__(self, column: str, path: Sequence[str | int], values: Sequence[Any]) -> None:
        """Store the path and the values."""
        super().__init__(F(column))
        self.path, self.values = tuple(path), tuple(values)

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, list[Any]]:
        """Return the comparison of jsonb values."""
        column, params = compiler.compile(self.source_expressions[0])
        places = ", ".join("%s::jsonb" for _ in self.values)
        return f"({column} #> %s::text[]) IN ({places})", [*params, [str(part) for part in self.path], *map(json.dumps, self.values)]

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, list[Any]]:  # type: ignore[override]
        """Return the comparison of the values that `json_extract` returns."""
        column, params = compiler.compile(self.source_expressions[0])
        steps = (f'."{part}"' if isinstance(part, str) else f"[{part}]" if part >= 0 else f"[#{part}]" for part in self.path)
        place = f"json_extract({column}, %s)"
        inside = " OR ".join([f"{place} = %s" if value is not None else f"json_type({column}, %s) = 'null'" for value in self.values])
        path = f"${''.join(steps)}"
        given = [one for value in self.values for one in ([*params, path] if value is None else [*params, path, value])]
        return f"CASE WHEN json_valid({column}) THEN {inside} ELSE 0 END", [*params, *given]
