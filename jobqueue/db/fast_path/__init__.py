"""The entry to the code that only makes PostgreSQL faster: fewer messages, and plans that the server keeps.

Each function returns None, or False, if the fast path cannot be used now. The caller then uses the
ordinary statements. The setting `FAST_PATH` turns all of it off.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from jobqueue.core.queue_rules import ServedQueues
from jobqueue.core.targets import Target
from jobqueue.db.database import Database
from jobqueue.db.fast_path import plans, switch
from jobqueue.db.records import LeaseHolder, Relayed, RunEnd


def can_commit(db: Database) -> bool:
    """Return whether `run_and_commit` works now, that is, if no transaction is open on this thread's connection."""
    if db.is_sqlite or not switch.is_on():
        return False
    return bool(_autocommit_insert().can_be_sent(db.connection))


def run_and_commit(db: Database, sql: str, params: Sequence[Any], note: tuple[str, str] | None) -> list[tuple[Any, ...]]:
    """Run a statement, commit, and notify a channel, all in one message; return the rows, even if the notification fails."""
    rows: list[tuple[Any, ...]] = _autocommit_insert().rows(db.connection, sql, params, note)
    return rows


@functools.cache  # each enqueue calls it twice
def _autocommit_insert() -> Any:
    # Imported late, because a project on SQLite may have no psycopg.
    from jobqueue.db.fast_path import autocommit_insert

    return autocommit_insert


def end_and_take_next(db: Database, end: RunEnd, hand_over: tuple[LeaseHolder, Target, ServedQueues, Sequence[str]]) -> Relayed | None:
    """Lock one target, end its job with success, and take over the next in one message.

    The caller has opened the transaction.
    """
    if db.is_sqlite or not switch.is_on() or not plans.can_be_sent_together(db.connection):
        return None
    from jobqueue.db.fast_path import finish_and_take_next

    setattr(db.connection, plans.HINTED, True)
    return finish_and_take_next.relay(db, end, hand_over)
