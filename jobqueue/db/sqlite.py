"""The differences of SQLite: it has one writer at a time, so a single UPDATE, or BEGIN IMMEDIATE, excludes all other writers.

Times are text with milliseconds, as Django's ``Now()`` writes them; they compare in the order of time.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.db import transaction

from jobqueue import clock, conf, signals
from jobqueue.core import event_names as names
from jobqueue.core.targets import Candidate
from jobqueue.db import fence, run_ends_sqlite, times
from jobqueue.db.base import AHEAD, Database
from jobqueue.db.events import DEFAULT, OF_JOB
from jobqueue.db.records import Claimed, EndedRun, Event, Lease, LeaseHolder, Mark, Renewed, RunEnd, Scope

FORMAT = "'%%Y-%%m-%%d %%H:%%M:%%f'"
GUARD = "WHERE id = %s AND lease_token = %s AND lease_expires_at IS NOT NULL"
AGO = f"strftime({FORMAT}, 'now', -(%s) || ' seconds')"


class SQLite(Database):
    """The hot statements on SQLite."""

    vendor = "sqlite"
    one_writer = True
    now = f"strftime({FORMAT}, 'now')"
    ahead = f"strftime({FORMAT}, 'now', %s || ' seconds')"
    exact_time = "{0} || ''"  # the text, because the driver would convert it to a time
    seconds_since = "(julianday('now') - julianday({0})) * 86400.0"
    # NULL, which the column refuses, if the token cannot rise: SQLite would turn the sum with the largest integer
    # into a float, and the sum with a text into 1.
    next_fence = "CASE WHEN typeof(lease_token) = 'integer' AND lease_token < 9223372036854775807 THEN lease_token + 1 END"
    usable_fence = f"CASE WHEN ({next_fence}) IS NULL THEN random() & 1099511627775 ELSE lease_token END"
    message_id = "lower(hex(randomblob(16)))"
    facts = (
        "json_patch(json_object('job_id', h.job_id, 'task', h.task, 'queue', h.queue, 'tenant', h.tenant, 'target', h.target,"
        " 'status', h.status, 'attempt', h.attempt, 'at', replace(h.at, ' ', 'T') || '+00:00'),"
        f" CASE WHEN h.name = '{names.FAILED}' THEN json_object('message', json_extract(h.data, '$.message')) ELSE '{{}}' END)"
    )
    asked_for = (
        f"CASE WHEN coalesce(q.webhook_events, '[]') = '[]' OR NOT json_valid(q.webhook_events) THEN h.name IN ({DEFAULT})"
        " ELSE h.name IN (SELECT value FROM json_each(q.webhook_events)) END"
    )

    @property
    def file(self) -> Path | None:
        """The file of the database; None for one in memory."""
        name = str(self.connection.settings_dict["NAME"])
        return None if ":memory:" in name or "mode=memory" in name else Path(name)

    @contextlib.contextmanager
    def atomic(self) -> Iterator[None]:
        """Open a short transaction that takes the write lock immediately: a later upgrade fails in spite of the time-out."""
        connection: Any = self.connection
        connection.ensure_connection()  # Django reads the mode from the settings when it connects
        before = connection.transaction_mode
        connection.transaction_mode = "IMMEDIATE"
        try:
            with transaction.atomic(using=self.alias):
                connection.transaction_mode = before
                with fence.passed():
                    yield
        finally:
            connection.transaction_mode = before

    def break_connection(self, connection: Any) -> None:
        """Interrupt a connection and roll back its transaction, which blocks all other writers. Another thread calls this.

        Django then refuses further statements of the thread in that transaction, and the thread finds it rolled back
        at its end.
        """
        raw = connection.connection
        with contextlib.suppress(Exception):  # its thread may have closed it meanwhile
            raw.interrupt()
            if raw.in_transaction:
                connection.needs_rollback = connection.in_atomic_block
                raw.rollback()
                connection.needs_rollback = connection.in_atomic_block  # repeated, because its thread may just have left a savepoint

    def claim(
        self, lender: LeaseHolder, scope: Scope, limit: int, after: tuple[int, int] | None = None
    ) -> tuple[list[Claimed], list[Candidate]]:
        """Read the best `limit` QUEUED jobs; take those without a target, and return those with one unchanged."""
        sql, params = self.candidates("id, claim_rank, tenant, target", scope, limit, after)
        with self.atomic():
            found = [Candidate(*row) for row in self.rows(sql, params)]
            plain = [one.id for one in found if not one.target]
            taken = self.take(lender, plain) if plain else []
        return taken, [one for one in found if one.target]

    def renew(self, leases: Sequence[Lease], lease_seconds: float) -> list[Renewed]:
        """Renew the leases; return the requests to stop in these rows."""
        sql = (
            f"UPDATE {self.table} SET lease_expires_at = {self.ahead}, heartbeat_at = {self.now} {GUARD}"
            " RETURNING id, lease_token, cancel_requested, cancel_outcome"
        )
        with self.atomic():
            found = [row for lease in leases for row in self.rows(sql, [lease_seconds, *lease])]
        return [Renewed(job_id, token, bool(flag), outcome) for job_id, token, flag, outcome in found]

    def mark(self, marks: Sequence[Mark]) -> list[Lease]:
        """Write the starts and the progress of runs; return the rows written."""
        sql = (
            f"UPDATE {self.table} SET started_at = coalesce(started_at, {AGO}), first_started_at = coalesce(first_started_at, {AGO}),"
            " progress = coalesce(%s, progress), message = coalesce(%s, message), metadata = coalesce(%s, metadata)"
            f" {GUARD} RETURNING id, lease_token"
        )
        params = [(m.began_ago, m.began_ago, m.progress, m.message, m.metadata, m.job_id, m.token) for m in marks]
        with self.atomic():
            shown = [m for m in marks if conf.current().event_log == "all" and self._shows(m)]
            return self._begun(sql, params, {m.job_id for m in shown})

    def end_runs(self, ends: Sequence[RunEnd]) -> list[EndedRun]:
        """End runs, one statement each in one transaction; see `run_ends_sqlite`."""
        return run_ends_sqlite.end_runs(self, ends)

    def _shows(self, mark: Mark) -> bool:
        """Return whether a mark reports a progress that the row does not have yet."""
        sql = f"SELECT coalesce(%s, progress) <> progress OR coalesce(%s, message) <> message FROM {self.table} {GUARD}"
        rows = self.rows(sql, [mark.progress, mark.message, mark.job_id, mark.token])
        return bool(rows and rows[0][0])

    def _begun(self, sql: str, params: Sequence[Sequence[Any]], shown: Collection[int]) -> list[Lease]:
        """Run an update for each of the runs; write the events of those that began by it, and of those that are `shown`."""
        among = "SELECT value FROM json_each(%s)"
        fresh = f"SELECT id FROM {self.table} WHERE id IN ({among}) AND started_at IS NULL"
        new = [row[0] for row in self.rows(fresh, [json.dumps([one[-2] for one in params])])]
        written = [Lease(*row) for values in params for row in self.rows(sql, values)]
        moved = [lease.job_id for lease in written]
        data = "json_object('progress', j.progress, 'message', j.message)"
        self._write(
            f"SELECT j.id AS job_id, e.name, CASE e.n WHEN 1 THEN j.started_at ELSE {self.now} END AS at, j.attempt,"
            f" {OF_JOB.format('j', f'CASE e.n WHEN 2 THEN {data} END')}"
            f" FROM json_each(%s) AS o JOIN {self.table} AS j ON j.id = o.value"
            f" JOIN (SELECT 1 AS n, '{names.STARTED}' AS name UNION ALL SELECT 2, '{names.PROGRESS}') AS e"
            f" WHERE e.n = 1 AND j.id IN ({among}) OR e.n = 2 AND j.id IN ({among}) ORDER BY o.key, e.n",
            [json.dumps(moved), json.dumps(new), json.dumps([job_id for job_id in moved if job_id in shown])],
        )
        return written

    def _write(self, happened: str, params: Sequence[Any], *, sendable: bool = True) -> None:
        """Write events and, if `sendable`, their webhooks, and send them to the receivers of `job_event`."""
        part = f"WITH happened AS ({happened})"
        if conf.current().event_log != "none":
            self.rows(f"{part} {self.log_events()}", params)
        if sendable:
            self.rows(f"{part} {self.send_events()}", params)
        if signals.listened_to(signals.job_event):
            events = map(Event._make, self.rows(f"{part} SELECT {', '.join(Event._fields)} FROM happened", params))
            self.announce([event._replace(at=self.moment(event.at)) for event in events])

    def write_events(self, events: str) -> None:
        """Write events that are given as JSON."""
        columns = ", ".join(f"json_extract(value, '$.{name}') AS {name}" for name in Event._fields if name != "at")
        happened = f"SELECT {columns}, coalesce(json_extract(value, '$.at'), {self.now}) AS at FROM json_each(%s) ORDER BY key"
        part = f"WITH happened AS ({happened})"
        if conf.current().event_log != "none":
            self.rows(f"{part} {self.log_events()}", [events])
        self.rows(f"{part} {self.send_events()}", [events])

    def moment_text(self, at: Any) -> str | None:
        """Return a time as Django stores it."""
        return self.adapt(at) if at else None

    def insert(self, columns: dict[str, Any], *, ignore_conflicts: bool) -> tuple[Any, ...] | None:
        """Insert one job; return (id, created_at), or None if an unfinished job has its unique key."""
        # The caller's transaction is enough: a savepoint would be two more statements for each job.
        with contextlib.nullcontext() if self.connection.in_atomic_block else self.atomic():
            made = self._insert(columns, ignore_conflicts)
            self._tell_made(made)
        return made[0] if made else None

    def insert_many(self, columns: dict[str, Any], calls: Sequence[tuple[str, str, str, str]]) -> tuple[list[int], Any]:
        """Insert one job for each call in one transaction; return the ids, in order, and `created_at`."""
        with self.atomic():
            each = ({"args": args, "kwargs": kwargs, "target": target} for args, kwargs, _, target in calls)
            made = [row for own in each for row in self._insert({**columns, **own}, ignore_conflicts=False)]
            self._tell_made(made)
        return [row[0] for row in made], made[0][1]

    def _insert(self, columns: dict[str, Any], ignore_conflicts: bool) -> list[tuple[Any, ...]]:
        sql = f"{self.inserting(columns, ignore_conflicts)} RETURNING id, created_at"
        return [(row[0], self.moment(row[1])) for row in self.rows(sql, [*map(self.adapt, columns.values())])]

    def _tell_made(self, made: Sequence[tuple[Any, ...]]) -> None:
        if made:
            self._write(
                f"SELECT j.id AS job_id, '{names.ENQUEUED}' AS name, j.created_at AS at, 0 AS attempt, {OF_JOB.format('j', 'NULL')}"
                f" FROM json_each(%s) AS o JOIN {self.table} AS j ON j.id = o.value ORDER BY o.key",
                [json.dumps([row[0] for row in made])],
                sendable=False,
            )

    def placeholder(self, name: str) -> str:
        """Return the placeholder of a column."""
        return self.ahead if name in AHEAD else "%s"

    def adapt(self, value: Any) -> Any:
        """Return times as the text that Django stores, deltas as seconds."""
        if isinstance(value, timedelta):
            return value.total_seconds()
        if isinstance(value, datetime):
            return clock.aware(value).astimezone(UTC).replace(tzinfo=None).isoformat(" ")
        return value

    def moment(self, value: Any) -> Any:
        """Return a stored time as an aware datetime; a time that cannot be read becomes the latest one."""
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                value = datetime.fromisoformat(times.LAST)
        # The driver may have converted it already, without a time zone.
        return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
