"""The forms in which a set of rows is sent to PostgreSQL: one array for each column, or the text of COPY."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class Columns:
    """A set of rows as parameters of a statement: one array for each column, or one plain value if all rows have the same value.

    The attributes named like the columns are SQL expressions; `source` goes into FROM, where it is called ``o``.
    """

    types: ClassVar[dict[str, str]] = {
        "job_id": "bigint",
        "token": "bigint",
        "result": "text",
        "began_ago": "float8",
        "ended_ago": "float8",
        "run_in": "float8",
        "run_at": "timestamptz",
        "progress": "int",
        "given_back": "int",
        "failed": "int",
        "alone": "boolean",
        "forgets_start": "boolean",
        "message": "text",
        "metadata": "text",
        "flag": "text",
        "status": "text",
        "waiting_for": "text",
        "event": "text",
        "data": "text",
        "shown": "text",
        "phase": "text",
        "options": "text",
        "entry": "text",
        "error_key": "text",
    }

    def __init__(self, rows: Sequence[Sequence[Any]], kind: Any) -> None:
        """Turn rows of a named tuple into parameters."""
        self.params: dict[str, Any] = {}
        self._same: dict[str, Any] = {}
        arrays = []
        for name, values in zip(kind._fields, zip(*rows, strict=True), strict=True):
            sql_type = self.types[name]
            same = name != "job_id" and values[0] == values[-1] and values.count(values[0]) == len(values)
            if same:
                self.params[name] = self._same[name] = values[0]
            else:
                self.params[name] = _literal(values, sql_type) if sql_type in ("bigint", "float8") else list(values)
                arrays.append(name)
            setattr(self, name, f"%({name})s::{sql_type}" if same else f"o.{name}")
        if "token" not in arrays:  # the statements compare it with a column
            self.params["token"] = _literal(tuple(row[1] for row in rows), "bigint")
            arrays.insert(1, "token")
        self.ids = "%(job_id)s::bigint[]"
        self.source = f"unnest({', '.join(f'%({name})s::{self.types[name]}[]' for name in arrays)}) AS o({', '.join(arrays)})"

    def all_are(self, **values: Any) -> bool:
        """Return whether all rows have these values in these columns."""
        return all(name in self._same and self._same[name] == value for name, value in values.items())

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> str: ...


def _literal(numbers: tuple[Any, ...], sql_type: str) -> str:
    """Return numbers as the literal of an array, seconds with six decimals. The driver's own adaptation is far slower for thousands."""
    form = "%d," if sql_type == "bigint" else "%.6f,"
    try:
        text = form * len(numbers) % numbers  # one operation for all numbers
    except TypeError:  # one of them is None
        text = "".join("NULL," if number is None else form % number for number in numbers)
    return f"{{{text[:-1]}}}"


def cell(value: Any) -> str:
    """Return a value in COPY's text format: tabs and line ends end a cell, and a backslash begins an escape."""
    text = str(value)
    return text.translate(ESCAPES) if "\\" in text or not text.isprintable() else text
