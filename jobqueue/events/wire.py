"""The format of a stream for its client: each event is one JSON object, in the lines of ``text/event-stream``.

The ``id:`` of a message is not the number of an event. It is the position from which a client must read so that it
misses nothing.
"""

from __future__ import annotations

import json
from typing import Any, Final

from jobqueue import public_ids
from jobqueue.core import event_names as names
from jobqueue.core import masking
from jobqueue.core.capping import capped
from jobqueue.core.states import Status
from jobqueue.db.cursors import Position
from jobqueue.db.eventlog import EventRow

SNAPSHOT: Final = "jobqueue.snapshot"
RESET: Final = "jobqueue.reset"
STATUS_AFTER: Final = {**names.STATUS_AFTER, names.STARTED: Status.RUNNING.value, names.PROGRESS: Status.RUNNING.value}


def described(row: EventRow, facts: tuple[str, str] | None) -> dict[str, Any]:
    """Return an event of the log as JSON values; `facts` are the job's task and queue, None if the job is deleted."""
    status = STATUS_AFTER.get(row.name)
    return {
        "id": row.id,
        "event": row.name,
        "job_id": row.job_id,
        "public_id": public_ids.public_id(row.job_id),
        "at": row.at.isoformat(),
        "attempt": row.attempt,
        **({"status": status} if status else {}),
        **({"task": facts[0], "queue": facts[1]} if facts else {}),
        "tenant": row.tenant,
        "target": masking.mask_text(row.target),
        "data": masking.mask(capped(row.data or {})),
    }


def body(event: dict[str, Any]) -> bytes:
    """Return the lines of a message without its id; JSON in ASCII contains no line breaks."""
    return f"event: {event['event']}\ndata: {json.dumps(event, separators=(',', ':'))}\n\n".encode("ascii")


def message(position: Position, lines: bytes) -> bytes:
    """Return a message: its id, then its lines."""
    return b"id: %s\n%s" % (str(position).encode("ascii"), lines)


def ping(position: Position) -> bytes:
    """Return a comment that keeps the connection open, and moves the client's position without an event."""
    return b": ping\nid: %s\n\n" % str(position).encode("ascii")


def retry(milliseconds: int) -> bytes:
    """Return the line that sets the delay before a client reconnects; it is not a message, but the first line of the next one."""
    return b"retry: %d\n" % milliseconds
