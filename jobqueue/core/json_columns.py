"""The values in the JSON columns of a job. An operator can have changed them to any other value."""

from __future__ import annotations

from typing import Any

# Keys in the options of a job that jobqueue itself writes.
UNKNOWN_SINCE = "unknown_since"  # when a worker first found its task unknown
SLEEPS_UNTIL = "sleeps_until"


def as_list(value: Any) -> list[Any]:
    """Return the list of a JSON column, or an empty list if its value was edited to another type."""
    return value if isinstance(value, list) else []


def as_dict(value: Any) -> dict[str, Any]:
    """Return the object of a JSON column, or an empty object if its value was edited to another type."""
    return value if isinstance(value, dict) else {}
