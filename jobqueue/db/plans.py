"""Statements that the server plans once: for those that are sent once for each job of a line, planning takes most of their time.

Plans belong to a session. So they are kept on connections of our own only, and not where a pooler gives each transaction another session
(see ``db/pooler.py``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from jobqueue.db import pooler

# What the planner is told for one transaction, how that is taken back, and the mark on a connection that was told.
HINT = "SET LOCAL enable_sort = off; SET LOCAL enable_incremental_sort = off; "
HINTED = "_jobqueue_hinted"
UNHINT = "RESET enable_sort; RESET enable_incremental_sort"
# The statement is not known, is known already, or is of a table that has changed since: another session, or a migration.
GONE = ("26000", "42P05", "0A000")
OPTION = "prepare_threshold"
# The server would plan anew for each set of parameters, since it takes an unknown number of rows for a large one.
KEEP = "SET LOCAL plan_cache_mode = force_generic_plan; "


def keep(options: dict[str, Any]) -> None:
    """Let a connection with these options keep plans; not where Django itself would then have every statement prepared."""
    if not options.get("server_side_binding"):
        options.setdefault(OPTION, 0)


def are_kept(connection: Any) -> bool:
    """Return whether a connection keeps plans."""
    told = connection.connection is not None and connection.settings_dict["OPTIONS"].get(OPTION) == 0
    return told and not pooler.stands_between(connection)


def rows(connection: Any, sql: str, params: Sequence[Any] | dict[str, Any]) -> list[tuple[Any, ...]]:
    """Run one statement by its kept plan and return its rows; errors as `guarded` has them."""
    from psycopg import Cursor

    with guarded(connection):
        return Cursor(connection.connection).execute(sql, params).fetchall()


def together(connection: Any, statements: Sequence[tuple[str, Any]]) -> list[list[tuple[Any, ...]]]:
    """Send statements to be run by their kept plans in one message; return the rows of each; errors as `guarded` has them."""
    from psycopg import Cursor

    raw = connection.connection
    with guarded(connection):
        with raw.pipeline():
            cursors = [Cursor(raw).execute(sql, params) for sql, params in statements]
        return [cursor.fetchall() for cursor in cursors]


def can_be_sent_together(connection: Any) -> bool:
    """Return whether `together` works on a connection: libpq is old on some systems."""
    from psycopg import Pipeline

    return are_kept(connection) and Pipeline.is_supported()


@contextlib.contextmanager
def guarded(connection: Any) -> Iterator[None]:
    """Surround statements with kept plans; errors are Django's.

    Where the session has lost a plan, no more are kept, and the error is one that a new connection heals.
    """
    from psycopg import Error, OperationalError

    with connection.wrap_database_errors:
        try:
            yield
        except Error as error:
            if error.sqlstate not in GONE:
                raise
            del connection.settings_dict["OPTIONS"][OPTION]
            raise OperationalError(f"The session has lost a plan, so none are kept any more: {error}") from error
