"""The differences of PostgreSQL: READ COMMITTED, SKIP LOCKED, advisory locks, NOTIFY, kept plans."""

from __future__ import annotations

import contextlib
import functools
import selectors
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from jobqueue.core.targets import Target
from jobqueue.db import fence, pooler, times
from jobqueue.db.database import RELATIVE_TIME_COLUMNS, Database
from jobqueue.db.dedicated_connections import cut_network, read_committed, reserve
from jobqueue.db.fast_path import plans

STANDSTILL_SECONDS = 5


class PostgreSQL(Database):
    """PostgreSQL: what differs from the defaults of `Database`."""

    vendor = "postgresql"
    now = "statement_timestamp()"
    seconds_from_now = "statement_timestamp() + make_interval(secs => %s)"
    id_condition = "= ANY(ARRAY({}))"  # an init plan, which the server evaluates once with any LIMIT
    not_among = "NOT IN (SELECT json_array_elements_text(%s::json))"
    first_of = "CROSS JOIN LATERAL (SELECT * FROM {0} AS j WHERE {1} LIMIT {2}{3}) AS j"
    skip_locked = " FOR NO KEY UPDATE SKIP LOCKED"  # a plain FOR UPDATE would skip a job that an event's foreign key refers to
    key_share = " FOR KEY SHARE"
    for_deletion = " FOR UPDATE SKIP LOCKED"
    epoch = "extract(epoch FROM {0})::float8"
    at_epoch = "to_timestamp(%s)"
    seconds_between = "extract(epoch FROM {1} - {0})::float8"
    as_text = "{0}::text"
    # A range: with `status = 'PAUSED'`, the primary key has this order, too, and the planner might read the whole
    # table by it.
    by_status = ("status IN ('PAUSED', 'ERROR', 'CANCELED') AND status >= '{0}' AND status <= '{0}'", "status, id")
    last_entry = "history #>> '{{-1,{}}}'"
    same_rank = "priority = priority, "
    can_notify = True
    usable_fence = "CASE WHEN lease_token = 9223372036854775807 THEN trunc(random() * 1099511627776)::bigint ELSE lease_token END"

    def reserve_connection(self, purpose: str, *, keep_plans: bool = False) -> BaseDatabaseWrapper:
        """Give this thread a separate connection: no pool, READ COMMITTED, short time-outs for a silent network.

        It connects only to a server that accepts writes: with several hosts, or through a proxy, a connection could
        otherwise lead to a standby.
        """
        reserved = reserve(self.alias, purpose, keep_plans=keep_plans)
        reserved.settings_dict["OPTIONS"].setdefault("target_session_attrs", "read-write")
        return reserved

    @property
    def behind_pooler(self) -> bool:
        """Whether a pooler gives each transaction of this thread's connection another session."""
        return pooler.is_behind_pooler(self.connection)

    def missing_schema(self) -> str:
        """Return the schema that django-tenants has set on this thread's connection if it does not exist, else ""."""
        schema = getattr(self.connection, "schema_name", None)
        if not schema or self.rows("SELECT to_regnamespace(quote_ident(%s)) IS NOT NULL", [schema])[0][0]:
            return ""
        return str(schema)

    def break_connection(self, connection: Any) -> None:
        """Cut the network of a connection whose thread hangs in a statement: keep-alives do not detect a proxy that stays silent."""
        cut_network(connection.connection)

    @functools.cached_property
    def read_committed(self) -> bool:
        """Whether READ COMMITTED is the default isolation level."""
        return bool(self.rows("SHOW default_transaction_isolation")[0][0] == "read committed")

    @contextlib.contextmanager
    def read_committed_statement(self) -> Iterator[None]:
        """Surround one hot statement; open a transaction for it only if the default is another isolation level."""
        if self.read_committed:
            yield
        else:
            with self.atomic():
                yield

    @contextlib.contextmanager
    def atomic(self) -> Iterator[None]:
        """Open a short transaction at READ COMMITTED, even if the project has another default, or a savepoint inside the caller's."""
        connection: Any = self.connection
        outermost = not connection.in_atomic_block
        if outermost:
            connection.ensure_connection()  # the level is known when there is a connection
            setattr(connection, plans.HINTED, False)  # hints from outside a transaction, or from a failed one, are no longer in effect
        usual = self.read_committed and connection.isolation_level in (None, read_committed())
        with transaction.atomic(using=self.alias):
            if outermost and not usual:
                self.rows("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            with fence.passed():
                yield
            if not outermost and getattr(connection, plans.HINTED, False):
                self.rows(plans.UNHINT)  # the hints must not affect the rest of the caller's transaction
            setattr(connection, plans.HINTED, False)

    def rows(self, sql: str, params: Sequence[Any] | dict[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, or several in one message, and return the rows of the last."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql, params)
            while cursor.nextset():
                pass
            return list(cursor.fetchall()) if cursor.description else []

    def rows_under_lock(self, sql: str, params: Sequence[Any] | dict[str, Any]) -> list[tuple[Any, ...]]:
        """Run a statement under targets' locks for each of many jobs; use a kept plan if the connection keeps plans and has the hints."""
        connection = self.connection
        plan_is_kept = plans.are_kept(connection) and getattr(connection, plans.HINTED, False)
        return plans.rows(connection, sql, params) if plan_is_kept else super().rows_under_lock(sql, params)

    @property
    def no_idling(self) -> str:  # type: ignore[override]
        """The setting with which the server ends a transaction whose process hangs, because its locks would block other transactions."""
        alone = self.connection.settings_dict["OPTIONS"].get("server_side_binding")  # a prepared statement must be a single one
        return "" if alone else f"SET LOCAL idle_in_transaction_session_timeout = {STANDSTILL_SECONDS * 1000}; "

    def hint(self) -> str:
        """Return the setting that disables sorts: without statistics, the planner expects few queued jobs, and would read and sort all."""
        connection = self.connection
        if connection.settings_dict["OPTIONS"].get("server_side_binding"):
            return ""  # a prepared statement must be a single one
        setattr(connection, plans.HINTED, True)
        return plans.HINT

    @contextlib.contextmanager
    def prefer_index(self) -> Iterator[None]:
        """Make the statements inside find their rows using an index.

        Without statistics, the planner expects a few hundred keys to be half a table.
        """
        self.rows("SET LOCAL enable_seqscan = off")
        yield
        self.rows("RESET enable_seqscan")

    def range(self, tenant: str, queue: str | None, after: tuple[int, int] | None) -> tuple[str, str, list[Any]]:
        """Return the condition on tenant and queue as a range: with an equality, stale statistics may lead to another index."""
        columns, prefix = ("tenant", [tenant]) if queue is None else ("tenant, queue", [tenant, queue])
        marks = ", ".join(["%s"] * len(prefix))
        if after is None:
            first = f"({columns}) >= ({marks})"
        else:
            first = f"({columns}, claim_rank, id) > ({marks}, %s, %s)"
        return f" AND {first} AND ({columns}) <= ({marks})", f"{columns}, claim_rank, id", [*prefix, *(after or ()), *prefix]

    def columns_equal(self, columns: Sequence[str], values: Sequence[str], beyond: tuple[str, str] | None = None) -> str:
        """Return the condition as a range, because with an equality, stale statistics may lead to another index."""
        columns_sql, values_sql = ", ".join(columns), ", ".join(values)
        first = f"({columns_sql}) >= ({values_sql})" if beyond is None else f"({columns_sql}, {beyond[0]}) > ({values_sql}, {beyond[1]})"
        return f"{first} AND ({columns_sql}) <= ({values_sql})"

    def among(self, ids: Sequence[int]) -> tuple[str, list[Any]]:
        """Return the condition that the primary key is one of these, and its parameters."""
        return "= ANY(%s::bigint[])", [f"{{{','.join(map(str, ids))}}}"]

    def pairs(self, targets: Iterable[Target]) -> tuple[str, list[Any]]:
        """Return targets as rows (tenant, name), and the parameters."""
        distinct = list(targets)
        return "SELECT * FROM unnest(%s::text[], %s::text[])", [
            [target.tenant for target in distinct],
            [target.name for target in distinct],
        ]

    def bucket(self, expression: str, bounds: Sequence[float]) -> str:
        """Return the SQL of how many of the rising `bounds` a number has reached."""
        return f"width_bucket({expression}, '{{{','.join(map(repr, bounds))}}}'::float8[])"

    def skip_locked_of(self, alias: str) -> str:
        """Return the clause that locks the rows of one table of a join and skips locked ones."""
        return f" FOR NO KEY UPDATE OF {alias} SKIP LOCKED"

    def try_locks(self, keys: Sequence[int]) -> set[int]:
        """Take the advisory locks that are free until the end of the transaction, without waiting; return their keys."""
        # The hint is for the statements on one target under its lock. It is sent here, because that needs no
        # further message. A statement that ends many runs must not have it: without sorts, the planner would
        # compare each row with each other row.
        hint = f"{self.hint()}{plans.KEEP}" if len(keys) == 1 and plans.are_kept(self.connection) else ""
        sql = f"{hint}SELECT key FROM unnest(%s::bigint[]) AS key WHERE pg_try_advisory_xact_lock(key)"
        return {row[0] for row in self.rows(sql, [list(keys)])}

    def wait_for_locks(self, keys: Sequence[int]) -> None:
        """Take advisory locks until the end of the transaction, in this order, and wait for each."""
        self.rows("SELECT pg_advisory_xact_lock(key) FROM unnest(%s::bigint[]) AS key", [list(keys)])

    def limit_lock_wait(self, seconds: float) -> None:
        """Set the limit for this transaction."""
        self.rows("SELECT set_config('lock_timeout', %s, true)", [f"{int(seconds * 1000)}ms"])

    def commit_without_waiting(self) -> None:
        """Set it for this transaction."""
        self.rows("SET LOCAL synchronous_commit = off")

    def placeholder(self, name: str) -> str:
        """Return the placeholder of a column."""
        return "statement_timestamp() + %s" if name in RELATIVE_TIME_COLUMNS else "%s"

    def moment(self, value: Any) -> Any:
        """Return a time from a statement as an aware time."""
        return times.in_utc(value, self.connection) if isinstance(value, datetime) and value.tzinfo is None else value

    def estimated_rows(self) -> int | None:
        """Return the approximate number of jobs at the last vacuum or analyze, or None before the first."""
        rows = self.rows("SELECT reltuples::bigint FROM pg_class WHERE oid = %s::regclass", [self.table])
        return rows[0][0] if rows and rows[0][0] >= 0 else None

    def listen(self, channel: str) -> None:
        """Make this thread's connection receive the notifications of a channel."""
        self.rows(f"LISTEN {channel}")

    def wait_for_notifications(self, seconds: float) -> list[str]:
        """Wait for notifications for up to `seconds`; return their payloads."""
        connection: Any = self.connection.connection
        with self.connection.wrap_database_errors:  # the driver is called directly, so its errors must be turned into those of Django
            # Notifications that arrived together with a response are no longer in the socket, so check for them
            # first. The driver's own wait is not used, because it wakes up ten times a second.
            payloads = [note.payload for note in connection.notifies(timeout=0)]
            if not payloads and _is_readable(connection.fileno(), seconds):
                payloads = [note.payload for note in connection.notifies(timeout=0)]
        return payloads

    def notify(self, channel: str, payload: str) -> None:
        """Notify listeners in a separate transaction. It writes nothing, so its commit does not wait for the disk."""
        self.rows("SELECT pg_notify(%s, %s)", [channel, payload])


def _is_readable(descriptor: int, seconds: float) -> bool:
    """Wait until data arrives, or the other side closes the connection; return False after `seconds` without either."""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        return bool(selector.select(seconds))
