"""The statement that sets one job aside. The row may have values that Python cannot read, or that violate a constraint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobqueue.core.error_kinds import error_key
from jobqueue.db.records import CLEARED, Lease
from jobqueue.db.times import nearest

if TYPE_CHECKING:
    from jobqueue.db.database import Database

TIMES = (
    "run_at",
    "expires_at",
    "created_at",
    "enqueued_at",
    "first_started_at",
    "started_at",
    "stale_at",
)  # columns whose values stay when a job is set aside
PREFIX = "Set aside: "  # begins the message of a job that was set aside
KEPT = ("attempt", "tenant", "target", "queue", "task", "webhook_url")


def set_aside(database: Database, lease: Lease, status: str, message: str) -> tuple[Any, ...] | None:
    """Set a job to ERROR if it still has this lease token and status; return its columns `KEPT`, or None if no row was changed.

    A locked row is not changed. The statement neither reads a value of the row nor computes with one.
    """
    changes = f"status = 'ERROR', waiting_for = '', message = %s, error_key = %s, finished_at = {database.now}, {CLEARED}"
    rows = _update(database, f"{changes}, {_fitting(database)}", [message, error_key("", "", message), *lease, status])
    return rows[0] if rows else None


def mend(database: Database, lease: Lease, status: str) -> bool:
    """Change the values of a row that violate constraints; return whether the row still had its lease token and status."""
    return bool(_update(database, _fitting(database), [*lease, status]))


def _fitting(database: Database) -> str:
    times = ", ".join(f"{name} = {nearest(name, database.vendor)}" for name in TIMES)
    progress = "progress = CASE WHEN progress BETWEEN 0 AND 100 THEN progress ELSE 0 END"
    return f"{times}, {progress}, lease_token = {database.usable_fence}, holds_target = (holds_target AND target <> '')"


def _update(database: Database, changes: str, params: list[Any]) -> list[tuple[Any, ...]]:
    sql = (
        f"{database.updating()}{changes}"
        f" WHERE id = (SELECT id FROM {database.table} WHERE id = %s AND lease_token = %s AND status = %s{database.skip_locked})"
        f" RETURNING {', '.join(KEPT)}"
    )
    return database.rows(sql, params)
