"""What every database must do for us, in portable SQL; the others state only their differences.

Times are the database's clock at the start of a statement. Ownership is judged by id and `lease_token` alone.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import DatabaseError, InterfaceError, OperationalError

CONNECTION_ERRORS = (OperationalError, InterfaceError)


class Lease(NamedTuple):
    """Name one run of one job: the fence of every owner's write."""

    job_id: int
    token: int


class Claimed(NamedTuple):
    """Carry what a worker needs to run a job; JSON columns stay text."""

    id: int
    claim_rank: int
    lease_token: int
    attempt: int
    failures: int
    max_attempts: int
    task: str
    queue: str
    target: str
    recovery: str
    args: str
    kwargs: str
    options: str
    metadata: str


class Success(NamedTuple):
    """Carry one successful end; times are seconds before the statement."""

    job_id: int
    token: int
    result: str
    began_ago: float
    ended_ago: float
    message: str | None
    metadata: str | None


class Mark(NamedTuple):
    """Carry what a running job shows: that it began, how far it is, what it says, what it keeps."""

    job_id: int
    token: int
    began_ago: float
    progress: int | None
    message: str | None
    metadata: str | None


class Renewed(NamedTuple):
    """Tell what a renewal found on one row."""

    job_id: int
    token: int
    cancel_requested: bool
    cancel_outcome: str


class Database:
    """Run the statements that the ORM has no word for, against one connection alias and one table of jobs."""

    vendor: ClassVar[str] = ""
    now: ClassVar[str] = ""
    ahead: ClassVar[str] = ""  # a time so many seconds (a parameter) ahead of now
    can_notify: ClassVar[bool] = False

    def __init__(self, alias: str, table: str) -> None:
        """Bind the alias and the name of the table."""
        self.alias = alias
        self.table = table

    # Connections and transactions

    @property
    def file(self) -> Path | None:
        """The database's file, where it is one."""
        return None

    @property
    def connection(self) -> BaseDatabaseWrapper:
        """This thread's connection."""
        return connections[self.alias]

    @property
    def description(self) -> str:
        """What a person calls this database; no password in it."""
        settings = self.connection.settings_dict
        place = f" on {settings['HOST']}" if settings.get("HOST") else ""
        return f"{self.vendor} {settings['NAME']}{place}"

    @contextlib.contextmanager
    def atomic(self) -> Iterator[None]:
        """Open a short transaction, or a savepoint inside the caller's."""
        with transaction.atomic(using=self.alias):
            yield

    @contextlib.contextmanager
    def hot(self) -> Iterator[None]:
        """Surround one hot statement: nothing, where the database's own default suits it."""
        yield

    def rows(self, sql: str, params: Sequence[Any] | dict[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql, params)
            return list(cursor.fetchall()) if cursor.description else []

    def reserve_connection(self, purpose: str) -> BaseDatabaseWrapper:
        """Give this thread a connection of its own, outside any pool, with limits on how long the network may be silent."""
        return self.connection

    def break_connection(self, connection: Any) -> None:
        """Cut the network of a connection whose thread hangs in a statement, from another thread, so that the statement fails."""

    # Claim

    picked: ClassVar[str] = "IN ({})"
    skip_locked: ClassVar[str] = ""
    as_text: ClassVar[str] = "{}"
    json_columns: ClassVar[frozenset[str]] = frozenset({"args", "kwargs", "options", "metadata"})

    def claim(self, owner: str, queues: Sequence[str], limit: int, lease_seconds: float, after: tuple[int, int] | None) -> list[Claimed]:
        """Move up to `limit` QUEUED jobs to RUNNING in one statement, in claim order, behind the cursor `after` where there is one."""
        candidates, params = self.candidates(queues, limit, after)
        returned = ", ".join(self.as_text.format(name) if name in self.json_columns else name for name in Claimed._fields)
        sql = (
            f"UPDATE {self.table} SET status = 'RUNNING', lease_owner = %s, lease_token = lease_token + 1,"
            f" lease_expires_at = {self.ahead}, heartbeat_at = {self.now}, attempt = attempt + 1, holds_target = (target <> ''),"
            " cancel_requested = FALSE, cancel_outcome = '', started_at = NULL, message = ''"
            f" WHERE id {self.picked.format(candidates)} RETURNING {returned}"
        )
        with self.hot():
            rows = self.rows(f"{self.hint()}{sql}", [owner, lease_seconds, *params])
        return sorted(map(Claimed._make, rows), key=_claim_order)

    def hint(self) -> str:
        """Return what the planner is told in front of a claim, in the same message and for this transaction alone."""
        return ""

    def candidates(self, queues: Sequence[str], limit: int, after: tuple[int, int] | None) -> tuple[str, list[Any]]:
        """Return a select of the ids to claim, and its parameters."""
        if len(queues) < 2:
            return self.best("id", queues[0] if queues else None, limit, after)
        # The best few of each queue by its own index, locked there since a union cannot lock; then the best of all.
        selects, values = zip(*[self.best("id, claim_rank", queue, limit, after) for queue in queues], strict=True)
        union = " UNION ALL ".join(f"SELECT id, claim_rank FROM ({select}) AS q" for select in selects)
        return f"SELECT id FROM ({union}) AS best ORDER BY claim_rank, id LIMIT %s", [*itertools.chain(*values), limit]

    def best(self, columns: str, queue: str | None, limit: int, after: tuple[int, int] | None) -> tuple[str, list[Any]]:
        """Return a select of the best jobs of one queue (None: of all), and its parameters."""
        where, order, params = self.range(queue, after)
        sql = f"SELECT {columns} FROM {self.table} WHERE status = 'QUEUED'{where} ORDER BY {order} LIMIT %s{self.skip_locked}"
        return sql, [*params, limit]

    def range(self, queue: str | None, after: tuple[int, int] | None) -> tuple[str, str, list[Any]]:
        """Return which part of a claim index to walk, in which order, and the parameters."""
        where, params = "", list[Any]()
        if after is not None:
            # A row comparison is one range of the index; two conditions joined by OR are not.
            where, params = " AND (claim_rank, id) > (%s, %s)", [*after]
        if queue is not None:
            where, params = f"{where} AND queue = %s", [*params, queue]
        return where, "claim_rank, id", params

    # Renew, mark, finish: each guarded by id and token

    def renew(self, leases: Sequence[Lease], lease_seconds: float) -> list[Renewed]:
        """Renew the leases that nobody has locked; return what those rows say."""
        raise NotImplementedError

    def mark(self, marks: Sequence[Mark]) -> list[Lease]:
        """Write when runs began and how far they are; return the rows written."""
        raise NotImplementedError

    def succeed(self, ends: Sequence[Success], note: str) -> list[Lease]:
        """Move runs to SUCCESS; `note` is the message where a request to stop came too late. Return the rows written."""
        raise NotImplementedError

    # Insert

    def insert(self, columns: dict[str, Any], *, ignore_conflicts: bool) -> tuple[Any, ...] | None:
        """Insert one job; return (id, created_at), or None where a live job has its unique key."""
        names = ", ".join("run_at" if name == "run_in" else name for name in columns)
        values = ", ".join([self.placeholder(name) for name in columns])
        conflict = " ON CONFLICT DO NOTHING" if ignore_conflicts else ""
        rows = self.rows(
            f"INSERT INTO {self.table} ({names}) VALUES ({values}){conflict} RETURNING id, created_at", [*map(self.adapt, columns.values())]
        )
        return (rows[0][0], self.moment(rows[0][1])) if rows else None

    def insert_many(self, columns: dict[str, Any], calls: Sequence[tuple[str, str, str]]) -> tuple[list[int], Any]:
        """Insert one job for each call (args and kwargs as JSON text), all with the same other columns and without a unique key.

        Return their ids, in order, and `created_at`.
        """
        raise NotImplementedError

    def placeholder(self, name: str) -> str:
        """Return the placeholder of a column; `run_in` gives seconds from now."""
        return "%s"

    def adapt(self, value: Any) -> Any:
        """Return a parameter as the driver wants it."""
        return value

    def moment(self, value: Any) -> Any:
        """Return a time that a statement returned as an aware datetime."""
        return value

    # For people

    def estimated_rows(self) -> int | None:
        """Return about how many jobs there are, from the database's statistics; None where it keeps none."""
        return None

    def queued_queues(self, limit: int) -> list[str]:
        """Return the queues that have QUEUED jobs, hopping from one to the next in the index: the cost grows with `limit` only."""
        first = f"SELECT queue FROM {self.table} WHERE status = 'QUEUED'"
        sql = (
            f"WITH RECURSIVE hop(queue) AS (SELECT * FROM ({first} ORDER BY queue LIMIT 1) AS first UNION ALL"
            f" SELECT ({first} AND queue > hop.queue ORDER BY queue LIMIT 1) FROM hop WHERE hop.queue IS NOT NULL)"
            " SELECT queue FROM hop WHERE queue IS NOT NULL LIMIT %s"
        )
        return [row[0] for row in self.rows(sql, [limit])]

    # Notifications

    def listen(self, channel: str) -> None:
        """Let this thread's connection hear a channel."""
        raise NotImplementedError

    def heard(self, seconds: float) -> list[str]:
        """Wait for notifications, at most so long; return their payloads."""
        raise NotImplementedError

    def notify(self, channel: str, payload: str) -> None:
        """Tell listeners; nothing where the database cannot."""


def _claim_order(job: Claimed) -> tuple[int, int]:
    return (job.claim_rank, job.id)


def is_connection_error(error: BaseException) -> bool:
    """Return whether the connection or the server failed, not the statement."""
    return isinstance(error, CONNECTION_ERRORS)


def is_missing_table(error: BaseException) -> bool:
    """Return whether a table or a column is not there, as before the first migrate."""
    text = str(error)
    return isinstance(error, DatabaseError) and ("does not exist" in text or "no such table" in text or "no such column" in text)


def is_refusal(error: BaseException) -> bool:
    """Return whether the database refuses these values for good: trying again cannot help."""
    return isinstance(error, DatabaseError | ValueError | TypeError) and not isinstance(error, CONNECTION_ERRORS)


_databases: dict[tuple[str, str], Database] = {}


def for_alias(alias: str, table: str) -> Database:
    """Return the statements for a connection alias; the vendor decides which."""
    found = _databases.get((alias, table))
    if found is None:
        # Late, because each of them builds on this module.
        from jobqueue.db.postgresql import PostgreSQL
        from jobqueue.db.sqlite import SQLite

        kinds: dict[str, type[Database]] = {"postgresql": PostgreSQL, "sqlite": SQLite}
        vendor = connections[alias].vendor
        if vendor not in kinds:
            raise NotImplementedError(f"jobqueue supports PostgreSQL and SQLite; the database {alias!r} is {vendor}.")
        found = _databases[alias, table] = kinds[vendor](alias, table)
    return found
