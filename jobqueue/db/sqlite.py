"""SQLite's differences: one writer at a time, so a single UPDATE, or BEGIN IMMEDIATE, excludes everybody else.

Times are text with milliseconds, as Django's ``Now()`` writes them; they compare in the order of time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.db import transaction

from jobqueue.db import fence
from jobqueue.db.base import Database
from jobqueue.db.records import Claimed, Lease, Lender, Mark, Renewed, Scope, Success
from jobqueue.line import Candidate

FORMAT = "'%%Y-%%m-%%d %%H:%%M:%%f'"
GUARD = "WHERE id = %s AND lease_token = %s AND lease_expires_at IS NOT NULL"
AGO = f"strftime({FORMAT}, 'now', -(%s) || ' seconds')"


class SQLite(Database):
    """Run the hot statements on SQLite."""

    vendor = "sqlite"
    one_writer = True
    now = f"strftime({FORMAT}, 'now')"
    ahead = f"strftime({FORMAT}, 'now', %s || ' seconds')"
    exact_time = "{0} || ''"  # the text, for the driver would make a time of it
    seconds_since = "(julianday('now') - julianday({0})) * 86400.0"

    @property
    def file(self) -> Path | None:
        """The database's file; None for one in memory."""
        name = str(self.connection.settings_dict["NAME"])
        return None if ":memory:" in name or "mode=memory" in name else Path(name)

    @contextlib.contextmanager
    def atomic(self) -> Iterator[None]:
        """Open a short transaction that takes the write lock at once: one that upgrades later fails in spite of the time-out."""
        connection: Any = self.connection
        connection.ensure_connection()  # connecting is what reads the mode from the settings
        before = connection.transaction_mode
        connection.transaction_mode = "IMMEDIATE"
        try:
            with transaction.atomic(using=self.alias):
                connection.transaction_mode = before
                with fence.passed():
                    yield
        finally:
            connection.transaction_mode = before

    def claim(
        self, lender: Lender, scope: Scope, limit: int, after: tuple[int, int] | None = None
    ) -> tuple[list[Claimed], list[Candidate]]:
        """Look at the best `limit` QUEUED jobs; take those without a target, and return those with one as they are."""
        sql, params = self.candidates("id, claim_rank, tenant, target", scope, limit, after)
        with self.atomic():
            found = [Candidate(*row) for row in self.rows(sql, params)]
            plain = [one.id for one in found if not one.target]
            taken = self.take(lender, plain) if plain else []
        return taken, [one for one in found if one.target]

    def renew(self, leases: Sequence[Lease], lease_seconds: float) -> list[Renewed]:
        """Renew the leases; return what those rows say."""
        sql = (
            f"UPDATE {self.table} SET lease_expires_at = {self.ahead}, heartbeat_at = {self.now} {GUARD}"
            " RETURNING id, lease_token, cancel_requested, cancel_outcome"
        )
        with self.atomic():
            found = [row for lease in leases for row in self.rows(sql, [lease_seconds, *lease])]
        return [Renewed(job_id, token, bool(flag), outcome) for job_id, token, flag, outcome in found]

    def mark(self, marks: Sequence[Mark]) -> list[Lease]:
        """Write when runs began and how far they are; return the rows written."""
        sql = (
            f"UPDATE {self.table} SET started_at = coalesce(started_at, {AGO}), first_started_at = coalesce(first_started_at, {AGO}),"
            " progress = coalesce(%s, progress), message = coalesce(%s, message), metadata = coalesce(%s, metadata)"
            f" {GUARD} RETURNING id, lease_token"
        )
        return self._each(sql, [(m.began_ago, m.began_ago, m.progress, m.message, m.metadata, m.job_id, m.token) for m in marks])

    def succeed(self, ends: Sequence[Success], note: str) -> list[Lease]:
        """Move runs to SUCCESS; `note` is the message where a request to stop came too late. Return the rows written."""
        sql = (
            f"UPDATE {self.table} SET status = 'SUCCESS', started_at = coalesce(started_at, {AGO}),"
            f" first_started_at = coalesce(first_started_at, {AGO}), finished_at = {AGO}, result = %s, progress = 100,"
            " message = CASE WHEN cancel_requested THEN %s ELSE coalesce(%s, message) END, metadata = coalesce(%s, metadata),"
            " worker_ids = json_insert(worker_ids, '$[#]', lease_owner), holds_target = FALSE, lease_owner = '',"
            " lease_expires_at = NULL, heartbeat_at = NULL, cancel_requested = FALSE, cancel_outcome = ''"
            f" {GUARD} RETURNING id, lease_token"
        )
        return self._each(
            sql,
            [(e.began_ago, e.began_ago, e.ended_ago, e.result, note, e.message, e.metadata, e.job_id, e.token) for e in ends],
        )

    def _each(self, sql: str, params: Iterable[Sequence[Any]]) -> list[Lease]:
        with self.atomic():
            return [Lease(*row) for values in params for row in self.rows(sql, values)]

    def insert_many(self, columns: dict[str, Any], calls: Sequence[tuple[str, str, str, str]]) -> tuple[list[int], Any]:
        """Insert one job for each call in one transaction; return the ids, in order, and `created_at`."""
        with self.atomic():
            each = ({"args": args, "kwargs": kwargs, "target": target} for args, kwargs, _, target in calls)
            made = [self.insert({**columns, **own}, ignore_conflicts=False) for own in each]
        rows = [row for row in made if row is not None]
        return [row[0] for row in rows], rows[0][1]

    def placeholder(self, name: str) -> str:
        """Return the placeholder of a column."""
        return self.ahead if name == "run_in" else "%s"

    def adapt(self, value: Any) -> Any:
        """Return times as the text that Django stores, deltas as seconds."""
        if isinstance(value, timedelta):
            return value.total_seconds()
        if isinstance(value, datetime):
            return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ") if value.tzinfo else value.isoformat(" ")
        return value

    def moment(self, value: Any) -> Any:
        """Return a stored time as an aware datetime."""
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        # The driver may have converted it already, and knows no zones.
        return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
