"""Statements that the server plans once. If a statement runs once for each job of a line, planning takes most of its time.

Plans belong to a session. They are kept on reserved connections only, and not if a pooler gives each transaction
another session (see ``db/pooler.py``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from jobqueue.db import pooler, statement_counts
from jobqueue.db.fast_path import switch

# The planner's hints for one transaction, the statement that takes them back, and the mark on a connection that has
# them.
HINT = "SET LOCAL enable_sort = off; SET LOCAL enable_incremental_sort = off; "
HINTED = "_jobqueue_hinted"
UNHINT = "RESET enable_sort; RESET enable_incremental_sort"
# The plan is unknown, exists already, or is of a table that has changed: another session, or a migration.
GONE = ("26000", "42P05", "0A000")
OPTION = "prepare_threshold"
# Without this, the server would plan again for each set of parameters, because it expects many rows for an unknown
# number.
KEEP = "SET LOCAL plan_cache_mode = force_generic_plan; "


def keep(options: dict[str, Any]) -> None:
    """Set the options of a connection to keep plans, unless Django would then have every statement prepared."""
    if switch.is_on() and not options.get("server_side_binding"):
        options.setdefault(OPTION, 0)


def are_kept(connection: Any) -> bool:
    """Return whether a connection keeps plans."""
    wants_plans = connection.connection is not None and connection.settings_dict["OPTIONS"].get(OPTION) == 0
    return wants_plans and not pooler.is_behind_pooler(connection)


def rows(connection: Any, sql: str, params: Sequence[Any] | dict[str, Any]) -> list[tuple[Any, ...]]:
    """Run one statement by its kept plan and return its rows. Errors are those of `guarded`."""
    from psycopg import Cursor

    statement_counts.add(connection, 1)
    with guarded(connection):
        return Cursor(connection.connection).execute(sql, params).fetchall()


def together(connection: Any, statements: Sequence[tuple[str, Any]]) -> list[list[tuple[Any, ...]]]:
    """Run statements by their kept plans in one message; return the rows of each. Errors are those of `guarded`."""
    from psycopg import Cursor

    raw = connection.connection
    statement_counts.add(connection, len(statements))
    with guarded(connection):
        with raw.pipeline():
            cursors = [Cursor(raw).execute(sql, params) for sql, params in statements]
        return [cursor.fetchall() for cursor in cursors]


def can_be_sent_together(connection: Any) -> bool:
    """Return whether `together` works on a connection; some systems have an old libpq."""
    from psycopg import Pipeline

    return are_kept(connection) and Pipeline.is_supported()


@contextlib.contextmanager
def guarded(connection: Any) -> Iterator[None]:
    """Surround statements with kept plans; errors are Django's.

    If the session has lost a plan, the connection keeps no more plans, and the error is an OperationalError, so that
    the caller reconnects.
    """
    from psycopg import Error, OperationalError

    with connection.wrap_database_errors:
        try:
            yield
        except Error as error:
            if error.sqlstate not in GONE:
                raise
            del connection.settings_dict["OPTIONS"][OPTION]
            raise OperationalError(f"The session has lost a prepared plan, so plans are no longer kept: {error}") from error
