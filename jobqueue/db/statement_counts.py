"""The number of statements that a connection of a service has sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

COUNT = "_jobqueue_statements"


def count(connection: Any) -> None:
    """Count the statements of a connection from now on."""
    if _counted not in connection.execute_wrappers:
        connection.execute_wrappers.append(_counted)


def add(connection: Any, number: int) -> None:
    """Add statements that do not go through Django's cursor."""
    setattr(connection, COUNT, counted(connection) + number)


def counted(connection: Any) -> int:
    """Return the number of statements so far; only the thread of the connection changes it."""
    return int(getattr(connection, COUNT, 0))


def _counted(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
    add(context["connection"], 1)
    return execute(sql, params, many, context)
