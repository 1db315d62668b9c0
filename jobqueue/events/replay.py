"""Replay: what a client missed while it was away, read from the log in pages, up to where the shared reader stands."""

from __future__ import annotations

from collections.abc import Iterator

from jobqueue import conf
from jobqueue.db.eventlog import Cursor, EventRow
from jobqueue.events import wire
from jobqueue.events.stream import facts_of
from jobqueue.events.wanted import Wanted
from jobqueue.models import Job, JobEvent

PAGE = 500


def is_lost(last_id: int, begin: Cursor) -> bool:
    """Return whether events may be gone that a client with this id has not seen: the log begins later, or ends before."""
    if last_id > latest_of(begin):
        return True
    if conf.event_age() is None:
        return False
    oldest = JobEvent.objects.using(Job.objects.database.alias).order_by("id").values_list("id", "xid").first()
    if oldest is None:
        return last_id < begin.horizon
    event_id, xid = oldest
    # The first event there ever was is still there; or one that the client has seen is, and all later ones are, too.
    return event_id != 1 and (xid if xid is not None else event_id) > last_id


def latest_of(begin: Cursor) -> int:
    """Return the highest id that this database can have given to a client by then."""
    return int(begin.since.split(":")[1])


def pages(wanted: Wanted, last_id: int, begin: Cursor) -> Iterator[bytes]:
    """Yield the messages of the events from a client's horizon on, which the shared reader has left behind."""
    database = Job.objects.database
    end = begin.horizon
    cursor = Cursor.at(last_id)
    if not database.one_writer:
        cursor = cursor._replace(upto=begin.since)
    held: bytes | None = None  # the newest message: only the very last one carries the new horizon
    while True:
        rows, after = database.events_after(cursor, PAGE, job_id=wanted.job_id, behind=wanted.target)
        mine = wanted.shown([row for row in rows if wanted.has(row) and not (database.one_writer and row.id > end)])
        lines = _lines(mine)
        if lines:
            ready = [*([held] if held is not None else []), *lines[:-1]]
            held = lines[-1]
            if ready:
                yield b"".join(wire.message(last_id, one) for one in ready)
        if not after.more or (rows and database.one_writer and rows[-1].id > end):
            break
        cursor = after
    yield wire.message(end, held) if held is not None else wire.ping(end)


def _lines(rows: list[EventRow]) -> list[bytes]:
    facts = facts_of({row.job_id for row in rows}) if rows else {}
    return [wire.body(wire.described(row, facts.get(row.job_id))) for row in rows]
