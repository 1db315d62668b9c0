"""PostgreSQL's differences: SKIP LOCKED, sets of rows by unnest, COPY, NOTIFY.

The hot updates name their rows by primary key (``= ANY``) and token only. A condition on `status` would invite the planner into a
partial index full of dead entries. No statement here depends on the planner's statistics.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from django.db import DEFAULT_DB_ALIAS, connections, transaction

from jobqueue.db.base import Database, Lease, Mark, Renewed, Success

# The network may be silent for so long before a reserved connection counts as dead.
SILENCE_SECONDS = 15
RESERVED = {"connect_timeout": 10, "keepalives": 1, "keepalives_idle": 5, "keepalives_interval": 3, "keepalives_count": 3}
ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class PostgreSQL(Database):
    """Run the hot statements on PostgreSQL."""

    vendor = "postgresql"
    now = "statement_timestamp()"
    ahead = "statement_timestamp() + make_interval(secs => %s)"
    picked = "= ANY(ARRAY({}))"  # an init plan: evaluated once, whatever the planner thinks of LIMIT
    skip_locked = " FOR NO KEY UPDATE SKIP LOCKED"  # a plain FOR UPDATE would skip a job that an event's foreign key refers to
    as_text = "{0}::text"
    can_notify: ClassVar[bool] = True

    def reserve_connection(self, purpose: str) -> None:
        """Give this thread a connection of its own: no pool, READ COMMITTED, short patience with a silent network."""
        shared = connections[self.alias]
        settings = copy.deepcopy(shared.settings_dict)
        options = settings["OPTIONS"]
        options.pop("pool", None)
        options.update({key: value for key, value in RESERVED.items() if key not in options})
        options.setdefault("tcp_user_timeout", SILENCE_SECONDS * 1000)
        options["application_name"] = f"jobqueue {purpose}"
        options["isolation_level"] = _read_committed()
        settings["CONN_MAX_AGE"], settings["CONN_HEALTH_CHECKS"] = None, False
        connections[self.alias] = type(shared)(settings, alias=self.alias or DEFAULT_DB_ALIAS)

    @functools.cached_property
    def read_committed(self) -> bool:
        """Whether a transaction is READ COMMITTED without being told so."""
        return self.rows("SHOW default_transaction_isolation")[0][0] == "read committed"

    @contextlib.contextmanager
    def hot(self) -> Iterator[None]:
        """Surround one hot statement; only where the default is another isolation level is a transaction opened for it."""
        if self.read_committed:
            yield
        else:
            with self.atomic():
                yield

    @contextlib.contextmanager
    def atomic(self) -> Iterator[None]:
        """Open a short transaction at READ COMMITTED, whatever the project's default is, or a savepoint inside the caller's."""
        connection: Any = self.connection
        outermost = not connection.in_atomic_block
        usual = self.read_committed and connection.isolation_level in (None, _read_committed())
        with transaction.atomic(using=self.alias):
            if outermost and not usual:
                self.rows("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            yield

    def renew(self, leases: Sequence[Lease], lease_seconds: float) -> list[Renewed]:
        """Renew the leases that nobody has locked; return what those rows say."""
        ids, tokens = _columns(leases, 2)
        sql = (
            f"UPDATE {self.table} SET lease_expires_at = {self.ahead}, heartbeat_at = {self.now}"
            f" WHERE id = ANY(ARRAY({self._ours()})) RETURNING id, lease_token, cancel_requested, cancel_outcome"
        )
        with self.hot():
            return [Renewed(*row) for row in self.rows(sql, [lease_seconds, ids, ids, tokens])]

    def _ours(self) -> str:
        """Return a select that locks the rows of (ids, ids, tokens) which are still ours and free."""
        return (
            f"SELECT id FROM {self.table} WHERE id = ANY(%s::bigint[]) AND (id, lease_token) IN"
            " (SELECT * FROM unnest(%s::bigint[], %s::bigint[])) AND lease_expires_at IS NOT NULL"
            f" ORDER BY id{self.skip_locked}"
        )

    def mark(self, marks: Sequence[Mark]) -> list[Lease]:
        """Write when runs began and how far they are; return the rows written."""
        ids, tokens, began, progress, messages, metadata = _columns(marks, 6)
        sql = (
            f"UPDATE {self.table} AS j SET {self._began('o.began')},"
            " progress = coalesce(o.progress, j.progress), message = coalesce(o.message, j.message),"
            " metadata = coalesce(o.metadata::jsonb, j.metadata)"
            " FROM unnest(%s::bigint[], %s::float8[], %s::int[], %s::text[], %s::text[]) AS o(id, began, progress, message, metadata)"
            f" WHERE j.id = o.id AND j.id = ANY(ARRAY({self._ours()})) RETURNING j.id, j.lease_token"
        )
        with self.hot():
            return [Lease(*row) for row in self.rows(sql, [ids, began, progress, messages, metadata, ids, ids, tokens])]

    def _began(self, ago: str) -> str:
        at = f"{self.now} - make_interval(secs => {ago})"
        return f"started_at = coalesce(j.started_at, {at}), first_started_at = coalesce(j.first_started_at, {at})"

    def succeed(self, ends: Sequence[Success], note: str) -> list[Lease]:
        """Move runs to SUCCESS; `note` is the message where a request to stop came too late. Return the rows written."""
        ids, tokens, results, began, ended, messages, metadata = _columns(ends, 7)
        sql = (
            f"UPDATE {self.table} AS j SET status = 'SUCCESS', {self._began('o.began')},"
            f" finished_at = {self.now} - make_interval(secs => o.ended), result = o.result::jsonb, progress = 100,"
            " message = CASE WHEN j.cancel_requested THEN %s ELSE coalesce(o.message, j.message) END,"
            " metadata = coalesce(o.metadata::jsonb, j.metadata), worker_ids = j.worker_ids || to_jsonb(j.lease_owner),"
            " holds_target = FALSE, lease_owner = '', lease_expires_at = NULL, heartbeat_at = NULL,"
            " cancel_requested = FALSE, cancel_outcome = ''"
            " FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::float8[], %s::float8[], %s::text[], %s::text[])"
            " AS o(id, token, result, began, ended, message, metadata)"
            " WHERE j.id = o.id AND j.id = ANY(%s::bigint[]) AND j.lease_token = o.token AND j.lease_expires_at IS NOT NULL"
            " RETURNING j.id, j.lease_token"
        )
        with self.hot():
            return [Lease(*row) for row in self.rows(sql, [note, ids, tokens, results, began, ended, messages, metadata, ids])]

    def insert_many(self, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[tuple[int, Any]]:
        """Insert many jobs by COPY under ids taken from the sequence first; return (id, created_at) of each, in order."""
        lines = list(rows)
        if not lines:
            return []
        sequence = f"pg_get_serial_sequence('{self.table}', 'id')"
        taken = self.rows(f"SELECT nextval({sequence}), {self.now} FROM generate_series(1, %s)", [len(lines)])
        with self.connection.cursor() as cursor:
            with cursor.copy(f"COPY {self.table} (id, created_at, {', '.join(names)}) FROM STDIN") as copy_in:
                for block in _blocks(taken, lines):
                    copy_in.write(block)
        return taken

    def placeholder(self, name: str) -> str:
        """Return the placeholder of a column."""
        return "statement_timestamp() + %s" if name == "run_in" else "%s"

    def listen(self, channel: str) -> None:
        """Let this thread's connection hear a channel."""
        self.rows(f"LISTEN {channel}")

    def heard(self, seconds: float) -> list[str]:
        """Wait for notifications, at most so long; return their payloads."""
        connection: Any = self.connection.connection
        return [note.payload for note in connection.notifies(timeout=seconds, stop_after=1)]

    def notify(self, channel: str, payload: str) -> None:
        """Tell listeners, in a transaction of its own whose commit waits for no disk."""
        self.rows("SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)", [channel, payload])


def _read_committed() -> Any:
    from psycopg import IsolationLevel

    return IsolationLevel.READ_COMMITTED


def _columns(rows: Sequence[Sequence[Any]], count: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(count)]


def _cell(value: Any) -> str:
    if value is None:
        return "\\N"
    if isinstance(value, str):
        # Tabs and line ends end a cell, and a backslash begins an escape; most text has none of them.
        return value.translate(ESCAPES) if "\\" in value or not value.isprintable() else value
    return str(value)


def _blocks(taken: list[tuple[Any, ...]], lines: list[Sequence[Any]], size: int = 1000) -> Iterator[str]:
    for first in range(0, len(lines), size):
        pairs = zip(taken[first : first + size], lines[first : first + size], strict=True)
        yield "".join(f"{job_id}\t{created_at}\t" + "\t".join(map(_cell, line)) + "\n" for (job_id, created_at), line in pairs)
