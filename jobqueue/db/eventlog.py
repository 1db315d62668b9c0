"""Read the event log without missing an event, although transactions do not commit in the order of the ids.

A reader that remembers the highest id misses the events of transactions that took a lower id and committed later.
Therefore it remembers the snapshot of its last read. A row is new if this snapshot did not show it. Its
transaction then began later (`xmax` and above), or was running at that time (`xip`). The index on `xid` finds
both. Each read returns its own snapshot as the next cursor. The statement that reads the rows also takes the
snapshot, so no event is missed or read twice between two reads.

The *horizon* is the oldest transaction that was running. A client that reads again from there misses nothing, but may
see events of later transactions twice. Clients keep the horizon, as a `Position`.

A database that was restored from a dump holds rows of transactions with numbers that this server has not reached.
When the server reaches them, these rows would count as new. Therefore they are marked when a reader begins (`xid` 0),
and a position names its history.

SQLite has one writer at a time, so the order of ids is that of commits. There, the cursor and the horizon are an id.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Any, NamedTuple

from jobqueue.core.targets import Target
from jobqueue.db.cursors import Cursor, Position
from jobqueue.db.database import Database

EVENTS = "jobqueue_jobevent"
COLUMNS = "id, job_id, name, at, attempt, tenant, target, data"
# Without statistics, the planner expects a third of a large table to be new, and reads the whole table.
BY_INDEX = "SET LOCAL enable_seqscan = off; "


class EventRow(NamedTuple):
    """An event as it was read."""

    id: int
    job_id: int
    name: str
    at: datetime
    attempt: int
    tenant: str
    target: str
    data: dict[str, Any] | None


def event_cursor(db: Database) -> Cursor:
    """Return the cursor of a reader that begins now."""
    if db.is_sqlite:
        return Cursor.at(db.rows(f"SELECT coalesce(max(id), 0) FROM {EVENTS}")[0][0])
    _mark_foreign_events(db)
    return Cursor(db.rows("SELECT pg_current_snapshot()::text")[0][0], history=event_history(db))


def event_history(db: Database) -> str:
    """Return an identifier of this database and its past, which changes if it is restored on a server or to an earlier state."""
    if db.is_sqlite:
        return "0"
    functions = ("pg_control_system()", "pg_control_checkpoint()")
    known = all(db.rows("SELECT has_function_privilege(%s, 'EXECUTE')", [function])[0][0] for function in functions)
    server = "(SELECT system_identifier FROM pg_control_system()), (SELECT timeline_id FROM pg_control_checkpoint())"
    row = db.rows(f"SELECT oid::text, {server if known else 'NULL'} FROM pg_database WHERE datname = current_database()")[0]
    return hashlib.blake2s(repr(row).encode(), digest_size=4).hexdigest()


def _mark_foreign_events(db: Database) -> None:
    """Mark the rows that transactions of another server wrote: here, those transactions have not ended, but the rows exist."""
    foreign = (
        "xid >= pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
        " AND NOT pg_visible_in_snapshot(xid::text::xid8, pg_current_snapshot())"
        " AND xid IS DISTINCT FROM pg_current_xact_id_if_assigned()::text::bigint"
    )
    rows = db.rows(f"{_by_index(db)}SELECT id FROM {EVENTS} WHERE {foreign} LIMIT 1")
    if rows:
        db.rows(f"{_by_index(db)}UPDATE {EVENTS} SET xid = 0 WHERE {foreign}")


def events_after(
    db: Database, cursor: Cursor, limit: int, *, job_id: int | None = None, behind: Target | None = None
) -> tuple[list[EventRow], Cursor]:
    """Return the next events after a cursor in the order of their ids, at most `limit`, and the cursor to continue with.

    If a job or a target is given, return only its events.
    """
    where, params = "TRUE", dict[str, Any]()
    if job_id is not None:
        where, params = "job_id = %(job)s", {"job": job_id}
    elif behind is not None:
        where = "tenant = %(tenant)s AND target = %(target)s AND NOT (target = '')"
        params = {"tenant": behind.tenant, "target": behind.name}
    params["limit"] = limit
    return _by_id(db, cursor, where, params) if db.is_sqlite else _by_snapshot(db, cursor, where, params)


def events_of(db: Database, job_id: int, limit: int) -> list[EventRow]:
    """Return the newest events of a job, in the order of their ids."""
    newest = f"SELECT {COLUMNS} FROM {EVENTS} WHERE job_id = %s ORDER BY id DESC LIMIT %s"
    return [_event(db, row) for row in db.rows(newest, [job_id, limit])][::-1]


def delete_old(db: Database, table: str, column: str, age: float, after_id: int, batch: int) -> tuple[int, int | None]:
    """Delete those of the next rows after an id whose time in `column` is at least `age` seconds ago.

    Return how many were deleted, and the id to continue after; the id is None if none of the rows was old, or
    there are no more.
    """
    sql = f"{db.hint()}SELECT id, coalesce({column} <= {db.seconds_from_now}, FALSE) FROM {table} WHERE id > %s ORDER BY id LIMIT %s"
    with db.atomic():
        rows = db.rows(sql, [-age, after_id, batch])
        old = [row[0] for row in rows if row[1]]
        if not old:
            return 0, None
        condition, params = db.among(old)
        db.rows(f"DELETE FROM {table} WHERE id {condition}", params)
    return len(old), rows[-1][0] if len(rows) == batch else None


def _by_id(db: Database, cursor: Cursor, where: str, params: dict[str, Any]) -> tuple[list[EventRow], Cursor]:
    sql = f"SELECT {COLUMNS} FROM {EVENTS} WHERE id > %(after)s AND {where} ORDER BY id LIMIT %(limit)s"
    rows = [_event(db, row) for row in db.rows(sql, {**params, "after": max(cursor.after_id, cursor.horizon)})]
    if len(rows) == params["limit"]:  # keep the horizon until the last page is read, as on PostgreSQL
        return rows, cursor._replace(upto=cursor.since, after_id=rows[-1].id)
    return rows, Cursor.at(rows[-1].id if rows else max(cursor.after_id, cursor.horizon))


def position_behind(db: Database, event_id: int, before: Cursor, upto: Cursor) -> Position:
    """Return the position of a client that was sent the events up to this one, of those between two cursors."""
    if db.is_sqlite:
        return Position(before.history, event_id)
    if event_id < before.last_id:  # the earlier position covers more events
        return Position(before.history, before.horizon, before.settled, before.last_id)
    return Position(before.history, before.horizon, upto.horizon, event_id)


def _by_snapshot(db: Database, cursor: Cursor, where: str, params: dict[str, Any]) -> tuple[list[EventRow], Cursor]:
    begin, running = _parts(cursor.since)
    # Rows of this database are never ahead of the present, but rows of another one, before a restore, can be.
    new = "(xid >= %(begin)s AND xid < pg_snapshot_xmax(pg_current_snapshot())::text::bigint OR xid = ANY(%(running)s::bigint[]))"
    params = {**params, "begin": begin, "running": running}
    if cursor.settled:
        new += " AND NOT (xid < %(settled)s AND id <= %(last)s)"
        params |= {"settled": cursor.settled, "last": cursor.last_id}
    if cursor.upto:
        end, params["unseen"] = _parts(cursor.upto)
        params |= {"end": end, "after": cursor.after_id}
        new += " AND xid < %(end)s AND NOT xid = ANY(%(unseen)s::bigint[]) AND id > %(after)s"
    # Not by id itself: to avoid a sort, the planner would read the primary key from its beginning.
    rows = f"SELECT {COLUMNS} FROM {EVENTS} WHERE {new} AND {where} ORDER BY id + 0 LIMIT %(limit)s"
    sql = (
        f"{_by_index(db)}SELECT s.now, e.* FROM (SELECT pg_current_snapshot()::text AS now) AS s"
        f" LEFT JOIN ({rows}) AS e ON TRUE ORDER BY e.id"
    )
    result = db.rows(sql, params)
    upto = cursor.upto or result[0][0]
    events = [_event(db, row[1:]) for row in result if row[1] is not None]
    if len(events) == params["limit"]:
        return events, cursor._replace(upto=upto, after_id=events[-1].id)
    return events, Cursor(upto, history=cursor.history)


def _by_index(db: Database) -> str:
    alone = db.connection.settings_dict["OPTIONS"].get("server_side_binding")  # a prepared statement must be a single one
    return "" if alone else BY_INDEX


def _event(db: Database, row: tuple[Any, ...]) -> EventRow:
    job_id, name, at, attempt, tenant, target, data = row[1:]
    return EventRow(row[0], job_id, name, db.moment(at), attempt, tenant, target, json.loads(data) if data else None)


def _parts(snapshot: str) -> tuple[int, str]:
    """Return the first transaction that a snapshot does not show, and the earlier ones that it does not show, as an array."""
    _, begin, running = snapshot.split(":")
    return int(begin), f"{{{running}}}"
