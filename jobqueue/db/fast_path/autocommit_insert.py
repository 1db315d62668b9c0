"""A statement outside of any transaction, sent in one message with its commit and a notification after it.

A separate notification would reach workers one round trip later. The notification is a separate transaction:
inside another one, it would serialize the commits of the whole database. This module reads the driver's results
itself, because the driver's cursor would discard the rows of the statement if the notification failed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from psycopg import Error, OperationalError, generators
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, TransactionStatus

from jobqueue.db import hygiene
from jobqueue.db.fast_path import plans, prepared

COMMIT = b"COMMIT"

logger = logging.getLogger("jobqueue")


def can_be_sent(connection: Any) -> bool:
    """Return whether a message of several statements that commits may be sent.

    This is not so if a transaction is open, with or without Django.
    """
    if connection.settings_dict["OPTIONS"].get("server_side_binding"):
        return False  # a prepared statement must be a single one
    connection.ensure_connection()
    return not hygiene.is_in_transaction(connection) and connection.connection.pgconn.pipeline_status == 0


def rows(connection: Any, sql: str, params: Sequence[Any], note: tuple[str, str] | None) -> list[tuple[Any, ...]]:
    """Run a statement, commit, and notify a channel of a payload; return the rows of the statement, even if the notification fails.

    Cursor wrappers of the user's project get only the statement, without the commit and the notification.
    """
    with connection.cursor() as cursor:
        cursor.cursor = sender = _Sender(connection, cursor.cursor, note)
        cursor.execute(sql, params)
        return sender.rows


class _Sender:
    """A replacement of the driver's cursor, for one statement."""

    def __init__(self, connection: Any, cursor: Any, note: tuple[str, str] | None) -> None:
        self._connection = connection
        self._cursor = cursor
        self._note = note
        self._query: Any = None  # Django's log of queries reads it
        self.rows: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def execute(self, sql: str, params: Sequence[Any]) -> None:
        raw = self._cursor.connection
        if by_plan := prepared.execution(self._connection, sql, params):
            try:
                return self._send(raw, by_plan)
            except Error as error:
                if error.sqlstate not in plans.GONE:
                    raise
                prepared.give_up(raw)
        return self._send(raw, self._cursor.mogrify(sql, params).encode(raw.info.encoding))

    def _send(self, raw: Any, statement: bytes) -> None:
        if self._note is not None:
            channel, payload = self._note
            # On a separate line, because a cursor wrapper of the user's project may append a comment to the
            # statement. A transaction that only notifies does not wait for the disk.
            note = (channel.encode(), prepared.literal(raw, payload))
            statement = b"BEGIN; %b\n; COMMIT; NOTIFY %b, %b" % (statement, *note)
        self._query = SimpleNamespace(query=statement)
        try:
            with raw.lock:
                raw.pgconn.send_query(statement)
                self._read(raw, raw.wait(generators.execute(raw.pgconn)))
        finally:
            # A failed statement leaves its transaction open.
            if raw.pgconn.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
                with contextlib.suppress(Error):  # the error of the statement matters; a broken connection raises its own at the next use
                    raw.rollback()

    def _read(self, raw: Any, results: Sequence[Any]) -> None:
        failed = next((result for result in results if result.status == ExecStatus.FATAL_ERROR), None)
        error = error_from_result(failed, raw.info.encoding) if failed else None
        answer = _committed(results, alone=self._note is None)
        if answer is None:
            raise error or OperationalError("PostgreSQL has not reported whether it committed.")
        if error:
            logger.warning("A job was stored, but the workers were not notified: %s They find it at their next poll.", error)
        loader = Transformer.from_context(raw)
        loader.set_pgresult(answer)
        self.rows = loader.load_rows(0, answer.ntuples, tuple)


def _committed(results: Sequence[Any], *, alone: bool) -> Any | None:
    """Return the response to the statement if it is committed for certain, else None."""
    if alone:  # the server sends this response after the commit; before the commit, it can only report an error
        return results[0] if len(results) == 1 and results[0].status == ExecStatus.TUPLES_OK else None
    place = next((place for place, result in enumerate(results) if result.command_status == COMMIT), None)
    return None if place is None else results[place - 1]
