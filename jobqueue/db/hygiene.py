"""Clean up the connections of worker threads before and after a task, for every alias, as Django does around a request.

A task may leave a transaction open, autocommit off, or a connection broken. None of this may affect the next task
of the thread.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

from django.db import DatabaseError, connections, reset_queries
from django.db.backends.signals import connection_created

from jobqueue import conf

IDLE_STATUS, ACTIVE_STATUS, UNKNOWN_STATUS = 0, 1, 4  # libpq's PQTRANS_IDLE, _ACTIVE and _UNKNOWN
RESTED_SECONDS = 1.0

logger = logging.getLogger("jobqueue")


class _Thread(threading.local):
    """The state of a thread: whether it has ever opened a connection. If it has not, as with most short jobs, nothing must be checked."""

    connected = False


_thread = _Thread()
_pools_checked: dict[str, float] = {}


def _note(**_: Any) -> None:
    _thread.connected = True


connection_created.connect(_note, dispatch_uid="jobqueue.hygiene")


def have_connections() -> bool:
    """Return whether this thread has an open connection."""
    return _thread.connected and any(connection.connection is not None for connection in connections.all(initialized_only=True))


def before_task(idle_seconds: float) -> None:
    """Prepare this thread's connections for a task.

    If the thread was idle for long, replace the connections that the server has closed meanwhile.
    """
    if not _thread.connected:
        return
    for connection in connections.all(initialized_only=True):
        connection.queries_log.clear()
        if connection.connection is None:
            _check_pool(connection)
            continue
        good = _tidied(connection)
        if not good or (idle_seconds > RESTED_SECONDS and connection.connection is not None and not _usable(connection)):
            _discard(connection)


def _check_pool(connection: Any) -> None:
    """Make a connection pool drop the connections that the server has closed, at most once a second for all threads.

    The pool lends connections unchecked. With `CONN_HEALTH_CHECKS` it waits longer after each dead connection that it
    finds.
    """
    now = time.monotonic()
    if not connection.settings_dict["OPTIONS"].get("pool") or now - _pools_checked.get(connection.alias, 0.0) <= RESTED_SECONDS:
        return
    _pools_checked[connection.alias] = now
    with contextlib.suppress(Exception):  # if the task uses the database, its own statement reports the error
        connection.pool.check()


def after_task() -> list[str]:
    """End the transactions of this thread's connections and turn autocommit on.

    Close connections that are broken or too old. Return the aliases of the connections on which the task has left
    a transaction open.
    """
    if not _thread.connected:
        return []
    left_open = end_later_transactions(frozenset())
    fresh = conf.current().fresh_connections
    for connection in connections.all(initialized_only=True):
        if connection.connection is None:
            continue
        if fresh:
            _end_session(connection)
        elif not _tidied(connection):
            _discard(connection)
    return left_open


def _end_session(connection: Any) -> None:
    """Close a connection and its session, because settings of a task must not reach the next task or another user of a pool."""
    if connection.settings_dict["OPTIONS"].get("pool") and connection.connection is not None:
        with contextlib.suppress(Exception):  # the connection is dropped in any case
            connection.connection.close()  # the driver's own method: the pool replaces the connection
    _discard(connection)


def atomic_blocks() -> dict[str, int]:
    """Return the number of nested `transaction.atomic()` blocks of this thread by alias, without those of Django's test cases."""
    if not _thread.connected:
        return {}
    numbers = {
        connection.alias: sum(not getattr(block, "_from_testcase", False) for block in connection.atomic_blocks)
        for connection in connections.all(initialized_only=True)
    }
    return {alias: number for alias, number in numbers.items() if number}


def end_transactions() -> list[str]:
    """Close this thread's connections that are inside of a transaction; return their aliases."""
    left_open = []
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None and not _tidied(connection):
            left_open.append(connection.alias)
            _discard(connection)
    return left_open


def in_transactions() -> frozenset[str]:
    """Return the aliases of this thread's connections that are inside of a transaction."""
    opened = (connection for connection in connections.all(initialized_only=True) if connection.connection is not None)
    return frozenset(connection.alias for connection in opened if _seems_open(connection))


def _seems_open(connection: Any) -> bool:
    try:
        return is_in_transaction(connection)
    except Exception:  # noqa: BLE001 - the driver may raise for a connection that was closed without Django; it then has no transaction
        return False


def end_later_transactions(before: frozenset[str]) -> list[str]:
    """Close this thread's connections that are inside of a transaction and were not before; return their aliases.

    Connections that were cut off in the middle of a statement, or are broken, are closed, too, but not returned: no
    code left a transaction open on them.
    """
    aliases = sorted(in_transactions() - before)
    left_open = [alias for alias in aliases if not _is_cut_off(connections[alias])]
    for alias in aliases:
        _discard(connections[alias])
    return left_open


def _is_cut_off(connection: Any) -> bool:
    status = getattr(getattr(connection.connection, "info", None), "transaction_status", None)
    return not connection.in_atomic_block and status in (ACTIVE_STATUS, UNKNOWN_STATUS)


@contextlib.contextmanager
def leaving_no_transaction(who: str) -> Iterator[None]:
    """Call code of the user's project. If it leaves a transaction open, roll it back, so that later writes are not part of it."""
    before = in_transactions()
    try:
        yield
    finally:
        if left_open := end_later_transactions(before):
            logger.warning("%s left a transaction open on %s; what it wrote there is rolled back.", who, ", ".join(left_open))


def _tidied(connection: Any) -> bool:
    """Close a connection that is too old; return False for one that must not be used.

    That is one inside of a transaction, one that was closed without Django, or one to a server that no longer accepts
    writes.
    """
    try:
        if is_in_transaction(connection):
            return False
        if connection.errors_occurred and _takes_no_writes(connection):
            connection.connection.close()  # the driver's own method: a pool would lend it again
            return False
        connection.close_if_unusable_or_obsolete()
    except Exception:  # noqa: BLE001 - a driver may refuse even to answer
        return False
    return True


def close_all() -> None:
    """Close this thread's connections."""
    for connection in connections.all(initialized_only=True):
        _discard(connection)
    reset_queries()


def close_broken(alias: str) -> None:
    """Drop this thread's connection to one alias after an error of the connection. The next statement makes a new connection."""
    _discard(connections[alias])


def _usable(connection: Any) -> bool:
    try:
        return bool(connection.is_usable())
    except DatabaseError:
        return False


def _takes_no_writes(connection: Any) -> bool:
    """Return whether the server of a connection is a standby now. A new connection through a proxy may lead to the primary."""
    if connection.vendor != "postgresql":
        return False
    with connection.cursor() as cursor:
        cursor.execute("SHOW transaction_read_only")
        return bool(cursor.fetchone() == ("on",))


def is_in_transaction(connection: Any) -> bool:
    """Return whether an open connection is inside of a transaction, also one that was opened without Django."""
    if connection.in_atomic_block or not connection.autocommit:
        return True
    raw = connection.connection
    if connection.vendor == "sqlite":
        return bool(raw.in_transaction)
    info = getattr(raw, "info", None)
    return info is not None and info.transaction_status != IDLE_STATUS


def _discard(connection: Any) -> None:
    """Close a connection in any state, and reset that state."""
    with contextlib.suppress(Exception):  # a broken connection may fail to close, and is dropped in any case
        connection.close()
    connection.connection = None
    connection.in_atomic_block = connection.closed_in_transaction = connection.needs_rollback = False
    connection.savepoint_ids, connection.atomic_blocks, connection.run_on_commit = [], [], []
