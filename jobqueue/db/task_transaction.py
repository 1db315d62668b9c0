"""The check that a connection is still in the transaction of a task, which may itself have sent COMMIT or ROLLBACK.

Django does not see such a statement. On PostgreSQL the transaction carries a setting that ends with it. A statement
that sets one takes no snapshot, so the task can still choose its isolation level. SQLite's driver reports its
transaction without a statement.
"""

from __future__ import annotations

from typing import Any

SETTING = "jobqueue.work"
IN_ERROR_STATUS = 3  # libpq's PQTRANS_INERROR


def mark(connection: Any) -> None:
    """Mark the transaction that this connection is in."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL {SETTING} = 'on'")


def complaint(connection: Any) -> str:
    """Return what is wrong with the marked transaction, as the end of a sentence; "" if it can be committed."""
    raw = connection.connection
    if raw is None or connection.needs_rollback or (connection.vendor == "postgresql" and raw.info.transaction_status == IN_ERROR_STATUS):
        return "left its transaction marked for rollback, so its work cannot be committed."
    if not _is_open(connection, raw):
        return "ended its transaction with its own COMMIT or ROLLBACK, so its work and the end of its job cannot be committed together."
    return ""


def _is_open(connection: Any, raw: Any) -> bool:
    if connection.vendor == "sqlite":
        return bool(raw.in_transaction)
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting(%s, true)", [SETTING])
        return bool(cursor.fetchone() == ("on",))
