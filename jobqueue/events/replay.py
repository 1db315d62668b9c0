"""Replay: read the events that a client missed from the log in pages, up to the position of the shared reader."""

from __future__ import annotations

from collections.abc import Iterator

from jobqueue import conf
from jobqueue.db import eventlog as eventlog_sql
from jobqueue.db.cursors import Cursor, Position
from jobqueue.db.eventlog import EventRow
from jobqueue.events import wire
from jobqueue.events.stream import facts_of
from jobqueue.events.wanted import EventSelection
from jobqueue.models import Job, JobEvent

PAGE = 500


def is_from_another_log(last: Position, begin: Cursor) -> bool:
    """Return whether a position is from another database, or from a state of this one that was rolled back."""
    return last.history != begin.history or last.horizon > begin.latest


def is_lost(last: Position, begin: Cursor) -> bool:
    """Return whether a client at this position may have missed events, because the log begins later, or because it is another log."""
    if is_from_another_log(last, begin):
        return True
    if conf.event_age() is None:
        return False
    oldest = JobEvent.objects.using(Job.objects.database.alias).order_by("id").values_list("id", "xid").first()
    if oldest is None:
        return last.horizon < begin.horizon
    event_id, xid = oldest
    # No event is lost if the log still has its very first event, or if the client has seen the oldest event that
    # the log has.
    return event_id != 1 and (xid if xid is not None else event_id) > last.horizon


def pages(wanted: EventSelection, last: Position, begin: Cursor) -> Iterator[bytes]:
    """Yield the messages of the events from a client's position up to the position of the shared reader.

    Each message has the position after it, so that a client whose connection ends in the middle continues from
    there.
    """
    database = Job.objects.database
    end = begin.horizon
    start = cursor = Cursor.behind(last)
    if not database.is_sqlite:
        cursor = cursor._replace(upto=begin.since)
    newest: list[tuple[Position, bytes]] = []  # the newest event: the very last one carries the position at which live events begin
    while True:
        rows, after = eventlog_sql.events_after(database, cursor, PAGE, job_id=wanted.job_id, behind=wanted.target)
        wanted_rows = wanted.shown([row for row in rows if wanted.has(row) and not (database.is_sqlite and row.id > end)])
        if wanted_rows:
            messages = [
                *newest,
                *(
                    (eventlog_sql.position_behind(database, row.id, start, begin), lines)
                    for row, lines in zip(wanted_rows, _lines(wanted_rows), strict=True)
                ),
            ]
            newest = messages[-1:]
            if messages[:-1]:
                yield b"".join(wire.message(position, lines) for position, lines in messages[:-1])
        if not after.more or (rows and database.is_sqlite and rows[-1].id > end):
            break
        cursor = after
    yield wire.message(begin.position, newest[0][1]) if newest else wire.ping(begin.position)


def _lines(rows: list[EventRow]) -> list[bytes]:
    facts = facts_of({row.job_id for row in rows}) if rows else {}
    return [wire.body(wire.described(row, facts.get(row.job_id))) for row in rows]
