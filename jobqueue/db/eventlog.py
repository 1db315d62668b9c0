"""How the log of events is read on, so that none is ever missed, though transactions do not commit in the order of ids.

A reader that remembers the highest id loses the events of whoever took a lower id and committed later. So it remembers the snapshot of
the database that it read by. What is new is what that snapshot did not show: rows of transactions that began later (`xmax` and on), and
of those that ran just then (`xip`). Both are found in the index on `xid`. Each read returns its own snapshot as the next cursor, taken in
the very statement that read the rows, so that nothing lies between two reads, and nothing is read twice.

The *horizon* is the oldest transaction that ran then: whoever reads again what was written from it on misses nothing, and may see twice
what others wrote meanwhile. It is one number, to be kept by clients.

SQLite has one writer at a time, so the order of ids is that of commits: there the cursor and the horizon are an id.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NamedTuple

from jobqueue.db.statements import Statements
from jobqueue.line import Target

EVENTS = "jobqueue_jobevent"
COLUMNS = "id, job_id, name, at, attempt, tenant, target, data"
# Without statistics a third of a large table is taken to be new, and the whole of it would be read.
BY_INDEX = "SET LOCAL enable_seqscan = off; "


class EventRow(NamedTuple):
    """Carry one event as it was read."""

    id: int
    job_id: int
    name: str
    at: datetime
    attempt: int
    tenant: str
    target: str
    data: dict[str, Any] | None


class Cursor(NamedTuple):
    """Say how far a reader has come.

    `since` is a snapshot: all that it shows was read. Where there was more than one read returns, `upto` is the snapshot that is being
    read by, and `after_id` the last row of it.
    """

    since: str
    upto: str = ""
    after_id: int = 0

    @classmethod
    def at(cls, horizon: int) -> Cursor:
        """Return the cursor of a reader that has seen nothing from this horizon on."""
        return cls(f"{horizon}:{horizon}:")

    @property
    def horizon(self) -> int:
        """Return the number from which on a client has to read again, so that it misses nothing."""
        return int(self.since.partition(":")[0])

    @property
    def more(self) -> bool:
        """Whether there is more to read at once."""
        return bool(self.upto)


class EventLog(Statements):
    """Read the log of events. The reader's transaction must not have written anything, or it would pass over its own later rows."""

    def event_cursor(self) -> Cursor:
        """Return the cursor of a reader that begins now."""
        if self.one_writer:
            return Cursor.at(self.rows(f"SELECT coalesce(max(id), 0) FROM {EVENTS}")[0][0])
        return Cursor(self.rows("SELECT pg_current_snapshot()::text")[0][0])

    def events_after(
        self, cursor: Cursor, limit: int, *, job_id: int | None = None, behind: Target | None = None
    ) -> tuple[list[EventRow], Cursor]:
        """Return the next events behind a cursor in the order of their ids, at most `limit`, and the cursor to go on with.

        A job or a target may be named, whose events alone are read.
        """
        where, params = "TRUE", dict[str, Any]()
        if job_id is not None:
            where, params = "job_id = %(job)s", {"job": job_id}
        elif behind is not None:
            where = "tenant = %(tenant)s AND target = %(target)s AND NOT (target = '')"
            params = {"tenant": behind.tenant, "target": behind.name}
        params["limit"] = limit
        return self._by_id(cursor, where, params) if self.one_writer else self._by_snapshot(cursor, where, params)

    def events_of(self, job_id: int, limit: int) -> list[EventRow]:
        """Return the newest events of a job, the oldest of these first."""
        newest = f"SELECT {COLUMNS} FROM {EVENTS} WHERE job_id = %s ORDER BY id DESC LIMIT %s"
        return [self._event(row) for row in self.rows(newest, [job_id, limit])][::-1]

    def delete_old(self, table: str, column: str, age: float, after_id: int, batch: int) -> tuple[int, int | None]:
        """Delete those of the next rows behind an id whose time in `column` is so many seconds ago.

        Return how many, and behind which id to go on; None where none of these was old, or there were no more.
        """
        sql = f"{self.hint()}SELECT id, coalesce({column} <= {self.ahead}, FALSE) FROM {table} WHERE id > %s ORDER BY id LIMIT %s"
        with self.atomic():
            rows = self.rows(sql, [-age, after_id, batch])
            old = [row[0] for row in rows if row[1]]
            if not old:
                return 0, None
            condition, params = self.among(old)
            self.rows(f"DELETE FROM {table} WHERE id {condition}", params)
        return len(old), rows[-1][0] if len(rows) == batch else None

    def _by_id(self, cursor: Cursor, where: str, params: dict[str, Any]) -> tuple[list[EventRow], Cursor]:
        sql = f"SELECT {COLUMNS} FROM {EVENTS} WHERE id > %(after)s AND {where} ORDER BY id LIMIT %(limit)s"
        rows = [self._event(row) for row in self.rows(sql, {**params, "after": max(cursor.after_id, cursor.horizon)})]
        if len(rows) == params["limit"]:  # the horizon stays until the end, as on any database
            return rows, cursor._replace(upto=cursor.since, after_id=rows[-1].id)
        return rows, Cursor.at(rows[-1].id if rows else max(cursor.after_id, cursor.horizon))

    def _by_snapshot(self, cursor: Cursor, where: str, params: dict[str, Any]) -> tuple[list[EventRow], Cursor]:
        begin, running = _parts(cursor.since)
        # No row of this database comes from ahead of the present; those that another one wrote, before a restore, may.
        new = "(xid >= %(begin)s AND xid < pg_snapshot_xmax(pg_current_snapshot())::text::bigint OR xid = ANY(%(running)s::bigint[]))"
        params = {**params, "begin": begin, "running": running}
        if cursor.upto:
            end, params["unseen"] = _parts(cursor.upto)
            params |= {"end": end, "after": cursor.after_id}
            new += " AND xid < %(end)s AND NOT xid = ANY(%(unseen)s::bigint[]) AND id > %(after)s"
        # Not by id itself: the planner would walk the primary key from its beginning for want of a sort.
        rows = f"SELECT {COLUMNS} FROM {EVENTS} WHERE {new} AND {where} ORDER BY id + 0 LIMIT %(limit)s"
        alone = self.connection.settings_dict["OPTIONS"].get("server_side_binding")  # a prepared statement is one alone
        sql = (
            f"{'' if alone else BY_INDEX}SELECT s.now, e.* FROM (SELECT pg_current_snapshot()::text AS now) AS s"
            f" LEFT JOIN ({rows}) AS e ON TRUE ORDER BY e.id"
        )
        found = self.rows(sql, params)
        upto = cursor.upto or found[0][0]
        events = [self._event(row[1:]) for row in found if row[1] is not None]
        if len(events) == params["limit"]:
            return events, Cursor(cursor.since, upto, events[-1].id)
        return events, Cursor(upto)

    def _event(self, row: tuple[Any, ...]) -> EventRow:
        job_id, name, at, attempt, tenant, target, data = row[1:]
        return EventRow(row[0], job_id, name, self.moment(at), attempt, tenant, target, json.loads(data) if data else None)


def _parts(snapshot: str) -> tuple[int, str]:
    """Return from which transaction on a snapshot shows nothing, and those before it that it does not show, as an array."""
    _, begin, running = snapshot.split(":")
    return int(begin), f"{{{running}}}"
