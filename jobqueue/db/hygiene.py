"""Keep the connections of worker threads clean, as Django does around a request, for every alias.

A task may leave a transaction open, autocommit off, or a connection broken; none of it may reach the next task of the thread.
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
    """Remember whether this thread ever opened a connection: most jobs of no length never do, and cost nothing here."""

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
    """Prepare this thread's connections for a task; after a longer rest, replace those that the server has closed meanwhile."""
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
    """Let a connection pool drop what the server has closed meanwhile, at most once a second for all threads.

    It lends connections unchecked, or (`CONN_HEALTH_CHECKS`) rests longer and longer with each dead one that it meets.
    """
    now = time.monotonic()
    if not connection.settings_dict["OPTIONS"].get("pool") or now - _pools_checked.get(connection.alias, 0.0) <= RESTED_SECONDS:
        return
    _pools_checked[connection.alias] = now
    with contextlib.suppress(Exception):  # the task will tell, if it wants the database at all
        connection.pool.check()


def after_task() -> list[str]:
    """Leave this thread's connections outside of transactions and in autocommit, or closed where they are broken or too old.

    Returns the aliases of those that were left inside of a transaction.
    """
    if not _thread.connected:
        return []
    left = end_later_transactions(frozenset())
    fresh = conf.current().fresh_connections
    for connection in connections.all(initialized_only=True):
        if connection.connection is None:
            continue
        if fresh:
            _end_session(connection)
        elif not _tidied(connection):
            _discard(connection)
    return left


def _end_session(connection: Any) -> None:
    """Close a connection and its session: what a task has set in it must not reach the next one, nor another user of a pool."""
    if connection.settings_dict["OPTIONS"].get("pool") and connection.connection is not None:
        with contextlib.suppress(Exception):  # it is dropped, in whatever state it is
            connection.connection.close()  # the driver's own: the pool replaces it
    _discard(connection)


def atomic_blocks() -> dict[str, int]:
    """Return in how many nested `transaction.atomic()` this thread is, by alias, without those that Django's test cases enter."""
    if not _thread.connected:
        return {}
    found = {
        one.alias: sum(not getattr(block, "_from_testcase", False) for block in one.atomic_blocks)
        for one in connections.all(initialized_only=True)
    }
    return {alias: number for alias, number in found.items() if number}


def end_transactions() -> list[str]:
    """Close this thread's connections that are inside of a transaction; return their aliases."""
    left = []
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None and not _tidied(connection):
            left.append(connection.alias)
            _discard(connection)
    return left


def in_transactions() -> frozenset[str]:
    """Return the aliases of this thread's connections that are inside of a transaction."""
    found = (one for one in connections.all(initialized_only=True) if one.connection is not None)
    return frozenset(one.alias for one in found if _seems_open(one))


def _seems_open(connection: Any) -> bool:
    try:
        return is_in_transaction(connection)
    except Exception:  # noqa: BLE001 - a driver may refuse even to answer: closed under Django's feet, it has no transaction
        return False


def end_later_transactions(before: frozenset[str]) -> list[str]:
    """Close this thread's connections that are inside of a transaction and were not before; return the aliases of those.

    Closed, too, are those that were cut off in the middle of a statement, or are broken: nobody left a transaction open on them.
    """
    found = sorted(in_transactions() - before)
    left = [alias for alias in found if not _is_cut_off(connections[alias])]
    for alias in found:
        _discard(connections[alias])
    return left


def _is_cut_off(connection: Any) -> bool:
    status = getattr(getattr(connection.connection, "info", None), "transaction_status", None)
    return not connection.in_atomic_block and status in (ACTIVE_STATUS, UNKNOWN_STATUS)


@contextlib.contextmanager
def leaving_no_transaction(who: str) -> Iterator[None]:
    """Call code of the project: a transaction that it leaves open is rolled back, since what we write next must not be part of it."""
    before = in_transactions()
    try:
        yield
    finally:
        if left := end_later_transactions(before):
            logger.warning("%s left a transaction open on %s; what it wrote there is rolled back.", who, ", ".join(left))


def _tidied(connection: Any) -> bool:
    """Close a connection that is too old; return False for one that is no good.

    That is one in a transaction, one closed under Django's feet, or one to a server that takes no writes (any more).
    """
    try:
        if is_in_transaction(connection):
            return False
        if connection.errors_occurred and _takes_no_writes(connection):
            connection.connection.close()  # the driver's own: a pool would lend it again
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
    """Drop this thread's connection to one alias after an error of the connection; the next statement makes a new one."""
    _discard(connections[alias])


def _usable(connection: Any) -> bool:
    try:
        return bool(connection.is_usable())
    except DatabaseError:
        return False


def _takes_no_writes(connection: Any) -> bool:
    """Return whether a statement that failed did so on a standby, perhaps: a proxy that has found the primary since leads there anew."""
    if connection.vendor != "postgresql":
        return False
    with connection.cursor() as cursor:
        cursor.execute("SHOW transaction_read_only")
        return bool(cursor.fetchone() == ("on",))


def is_in_transaction(connection: Any) -> bool:
    """Return whether an open connection is inside of a transaction, whoever opened it."""
    if connection.in_atomic_block or not connection.autocommit:
        return True
    raw = connection.connection
    if connection.vendor == "sqlite":
        return bool(raw.in_transaction)
    info = getattr(raw, "info", None)
    return info is not None and info.transaction_status != IDLE_STATUS


def _discard(connection: Any) -> None:
    """Close a connection in whatever state it is, and forget that state."""
    with contextlib.suppress(Exception):  # what is broken may fail to close, and it is dropped all the same
        connection.close()
    connection.connection = None
    connection.in_atomic_block = connection.closed_in_transaction = connection.needs_rollback = False
    connection.savepoint_ids, connection.atomic_blocks, connection.run_on_commit = [], [], []
