"""A statement, its commit and a notification behind it, in one message: else, workers hear of a job one way to the server and back later.

The notification is a transaction of its own, as ever: inside another, it would serialize the commits of the whole database. The driver's
answers are read here, since its cursor would throw away what the statement returned where the notification fails.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from psycopg import Error, OperationalError, generators
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, TransactionStatus

from jobqueue.db import hygiene

# Its commit waits for no disk.
NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)"
COMMIT = b"COMMIT"

logger = logging.getLogger("jobqueue")


def can_be_sent(connection: Any) -> bool:
    """Return whether a message of several statements may be sent that commits: nobody has a transaction open, by whatever means."""
    if connection.settings_dict["OPTIONS"].get("server_side_binding"):
        return False  # a prepared statement is one alone
    connection.ensure_connection()
    return not hygiene.is_in_transaction(connection) and connection.connection.pgconn.pipeline_status == 0


def rows(connection: Any, sql: str, params: Sequence[Any], note: tuple[str, str]) -> list[tuple[Any, ...]]:
    """Run a statement, commit, and notify a channel of a payload; return the rows of the statement, also where the notification fails.

    What a project has wrapped around its cursors is given the statement alone.
    """
    with connection.cursor() as cursor:
        cursor.cursor = sender = _Sender(cursor.cursor, note)
        cursor.execute(sql, params)
        return sender.rows


class _Sender:
    """Stand in for the driver's cursor, for one statement."""

    def __init__(self, cursor: Any, note: tuple[str, str]) -> None:
        self._cursor = cursor
        self._note = note
        self._query: Any = None  # where Django's log of queries looks
        self.rows: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def execute(self, sql: str, params: Sequence[Any]) -> None:
        # On a line of its own, since a project may have put a comment at the end.
        raw = self._cursor.connection
        text = self._cursor.mogrify(f"BEGIN; {sql}\n; COMMIT; {NOTIFY}", [*params, *self._note]).encode(raw.info.encoding)
        self._query = SimpleNamespace(query=text)
        with _left_idle(raw), raw.lock:
            raw.pgconn.send_query(text)
            self._read(raw, raw.wait(generators.execute(raw.pgconn)))

    def _read(self, raw: Any, results: Sequence[Any]) -> None:
        committed = next((place for place, result in enumerate(results) if result.command_status == COMMIT), None)
        failed = next((result for result in results if result.status == ExecStatus.FATAL_ERROR), None)
        error = error_from_result(failed, raw.info.encoding) if failed else None
        if committed is None:
            raise error or OperationalError("PostgreSQL has not told whether it committed.")
        if error:
            logger.warning("A job is made, and no worker was told: %s Workers find it when they look next.", error)
        answer = results[committed - 1]
        loader = Transformer.from_context(raw)
        loader.set_pgresult(answer)
        self.rows = loader.load_rows(0, answer.ntuples, tuple)


@contextlib.contextmanager
def _left_idle(raw: Any) -> Iterator[None]:
    """Let a statement that fails leave no transaction behind."""
    try:
        yield
    finally:
        if raw.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            with contextlib.suppress(Error):  # what the statement says is what counts; and a broken connection says it at its next use
                raw.rollback()
