"""Write events, in the statement that changes the job or in the next statement of its transaction.

Each such statement has a part called ``happened``, with one row for each event, and two inserts that read it. One
writes the log, unless `EVENT_LOG` is "none". The other writes the webhooks to send, for the events that the URL of a
job or its queue asks for. Python does nothing for each job of a batch. Only if a receiver of `job_event` is connected
are the rows returned, to be sent after the commit.

On PostgreSQL, the statement has more parts: ``mine``, the locked rows as they were, and ``moved``, the rows as they
are now. All parts are one statement, so they are written together or not at all, even without a transaction.
"""

from __future__ import annotations

import functools
import json
import logging
import threading
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from django.db import transaction

from jobqueue import conf, signals
from jobqueue.core import event_names as names
from jobqueue.core import repeats
from jobqueue.db import hygiene
from jobqueue.db.database import Database
from jobqueue.db.eventlog import EVENTS
from jobqueue.db.records import Event
from jobqueue.exceptions import Interrupted, TimeLimitExceeded

PATIENCE_SECONDS = 0.1
QUEUES = "jobqueue_queue"
DELIVERIES = "jobqueue_webhookdelivery"
LOGGED = "job_id, name, at, attempt, tenant, target, data"
DEFAULT = ", ".join(f"'{name}'" for name in names.SENT_BY_DEFAULT)
# Webhooks are never sent for these events, even if the row of a queue names them: a webhook about a webhook would
# cause another one, without end.
NEVER_SENT = f"'{names.WEBHOOK_DELIVERED}', '{names.WEBHOOK_FAILED}'"
# The values of an event that come from the job's row, in the order of `Event` from `attempt` on.
OF_JOB = "{0}.tenant, {0}.target, {1} AS data, {0}.queue, {0}.task, {0}.status, {0}.webhook_url AS url"
EVENT = ", ".join(f"h.{name}" for name in Event._fields)
TYPES = (
    "job_id bigint, name text, at timestamptz, attempt int, tenant text, target text, data text, queue text, task text,"
    " status text, url text"
)


class _Words(NamedTuple):
    """The SQL of webhook messages for one database; `h` is a row of ``happened`` and `q` the row of its queue."""

    message_id: str
    event_json: str  # of an event, as JSON
    webhook_subscribes: str  # whether the queue has selected the event
    any_webhook: str  # a condition, evaluated without the events, that any message could be asked for


POSTGRESQL = _Words(
    "gen_random_uuid()",
    "jsonb_build_object('job_id', h.job_id, 'task', h.task, 'queue', h.queue, 'tenant', h.tenant, 'target', h.target,"
    f" 'status', h.status, 'attempt', h.attempt, 'at', h.at) || CASE WHEN h.name = '{names.FAILED}'"
    " THEN jsonb_build_object('message', h.data ->> 'message') ELSE '{}' END",
    f"CASE WHEN q.webhook_events IS NULL OR q.webhook_events = '[]' THEN h.name IN ({DEFAULT}) ELSE q.webhook_events ? h.name END",
    # Two init plans: if no job and no queue has a URL, as usual, the events are not joined with the queues one by
    # one.
    f"(EXISTS (SELECT FROM happened WHERE url <> '') OR EXISTS (SELECT FROM {QUEUES} WHERE webhook_url <> '')) AND ",
)
SQLITE = _Words(
    "lower(hex(randomblob(16)))",
    "json_patch(json_object('job_id', h.job_id, 'task', h.task, 'queue', h.queue, 'tenant', h.tenant, 'target', h.target,"
    " 'status', h.status, 'attempt', h.attempt, 'at', replace(h.at, ' ', 'T') || '+00:00'),"
    f" CASE WHEN h.name = '{names.FAILED}' THEN json_object('message', json_extract(h.data, '$.message')) ELSE '{{}}' END)",
    f"CASE WHEN coalesce(q.webhook_events, '[]') = '[]' OR NOT json_valid(q.webhook_events) THEN h.name IN ({DEFAULT})"
    " ELSE h.name IN (SELECT value FROM json_each(q.webhook_events)) END",
    "",
)

# Parts of statements


def insert_logged() -> str:
    """Return the insert of the events of `happened` into the log."""
    return f"INSERT INTO {EVENTS} ({LOGGED}) SELECT {LOGGED} FROM happened"


def insert_messages(db: Database) -> str:
    """Return the insert of the messages for those events of `happened` for which a webhook is configured."""
    words = SQLITE if db.is_sqlite else POSTGRESQL
    return (
        f"INSERT INTO {DELIVERIES} (message_id, job_id, event, queue, url, facts) SELECT {words.message_id}, h.job_id, h.name, h.queue,"
        f" CASE WHEN h.url <> '' THEN h.url ELSE q.webhook_url END, {words.event_json} FROM happened AS h"
        f" LEFT JOIN {QUEUES} AS q ON q.name = h.queue"
        f" WHERE {words.any_webhook}(h.url <> '' OR q.webhook_url <> '') AND {words.webhook_subscribes} AND h.name NOT IN ({NEVER_SENT})"
        # The planner may join in any order, but the messages of a job must be sent in the order of its events.
        f" ORDER BY h.job_id, h.at, h.name <> '{names.STARTED}'"
    )


def writing(db: Database, happened: str, *, sendable: bool = True) -> str:
    """Return the parts of a PostgreSQL statement that write events, after a comma; those for webhooks only if `sendable`."""
    logged = "" if conf.current().event_log == "none" else f", logged AS ({insert_logged()})"
    messages = f", sent AS ({insert_messages(db)})" if sendable else ""
    return f", happened AS ({happened}){logged}{messages}"


def selecting(*columns: str) -> str:
    """Return the end of a statement that selects columns of `moved`, and the events if a receiver is connected; see `sent`."""
    mine = ", ".join(f"m.{column}" for column in columns)
    if not signals.has_receivers(signals.job_event):
        return f"SELECT {mine} FROM moved AS m"
    return f"SELECT {mine}, {EVENT.replace('h.data', 'h.data::text')} FROM moved AS m LEFT JOIN happened AS h ON h.job_id = m.id"


def sent(db: Database, rows: Iterable[tuple[Any, ...]], columns: int) -> list[tuple[Any, ...]]:
    """Return the selected columns of `selecting`, one row for each job; send the events to the receivers of `job_event`."""
    found = list(rows)
    if not found or len(found[0]) == columns:
        return found
    events = [Event(*row[columns:]) for row in found if row[columns] is not None]
    events = [event._replace(at=db.moment(event.at)) for event in events]
    announce(db, sorted(events, key=lambda event: (event.at, event.name != names.STARTED)))
    return list(dict.fromkeys(row[:columns] for row in found))


# Separate statements


def write(db: Database, events: Iterable[Event]) -> None:
    """Write events. The caller's transaction moved their jobs, whose rows it has locked."""
    log = conf.current().event_log
    wanted = [event for event in events if names.happens(event.name, log)]
    if not wanted:
        return
    if signals.has_receivers(signals.job_event):
        now = db.moment(db.rows(f"SELECT {db.now}")[0][0])
        wanted = [event if event.at else event._replace(at=now) for event in wanted]
    _insert(db, json.dumps([{**event._asdict(), "at": db.moment_text(event.at)} for event in wanted], default=str))
    announce(db, wanted)


def write_for_each(db: Database, ids: Sequence[int], name: str) -> None:
    """Write the same event for each of the jobs, which the caller has locked."""
    condition, params = db.among(ids)
    rows = db.rows(f"SELECT id, attempt, {OF_JOB.format('j', 'NULL')} FROM {db.table} AS j WHERE id {condition} ORDER BY id", params)
    write(db, (Event(row[0], name, None, *row[1:]) for row in rows))


def write_selected(db: Database, happened: str, params: Sequence[Any], *, sendable: bool = True) -> None:
    """Write the events of a select and, if `sendable`, their webhooks, on SQLite; send them to the receivers of `job_event`."""
    part = f"WITH happened AS ({happened})"
    if conf.current().event_log != "none":
        db.rows(f"{part} {insert_logged()}", params)
    if sendable:
        db.rows(f"{part} {insert_messages(db)}", params)
    if signals.has_receivers(signals.job_event):
        found = map(Event._make, db.rows(f"{part} SELECT {', '.join(Event._fields)} FROM happened", params))
        announce(db, [event._replace(at=db.moment(event.at)) for event in found])


def _insert(db: Database, events: str) -> None:
    """Write events that are given as JSON."""
    if not db.is_sqlite:
        happened = (
            f"SELECT h.job_id, h.name, coalesce(h.at, {db.now}) AS at, h.attempt, h.tenant, h.target, h.data::jsonb AS data,"
            f" h.queue, h.task, h.status, h.url FROM json_to_recordset(%s::json) AS h({TYPES})"
        )
        db.rows(f"WITH nothing AS (SELECT 1){writing(db, happened)} SELECT 1", [events])
        return
    columns = ", ".join(f"json_extract(value, '$.{name}') AS {name}" for name in Event._fields if name != "at")
    happened = f"SELECT {columns}, coalesce(json_extract(value, '$.at'), {db.now}) AS at FROM json_each(%s) ORDER BY key"
    if conf.current().event_log != "none":
        db.rows(f"WITH happened AS ({happened}) {insert_logged()}", [events])
    db.rows(f"WITH happened AS ({happened}) {insert_messages(db)}", [events])


# Signals


def announce(db: Database, events: Collection[Event]) -> None:
    """Send the events to the receivers of `job_event`, if there are any, when the transaction has committed."""
    if events and signals.has_receivers(signals.job_event):
        transaction.on_commit(functools.partial(_send, type(db), [*events]), using=db.alias, robust=True)


def _send(sender: type, events: Sequence[Event]) -> None:
    signals.deliver(_send_one, [(sender, event) for event in events], patience=PATIENCE_SECONDS)


def _send_one(item: tuple[type, Event], _: None) -> None:
    sender, event = item
    values = {name: getattr(event, name) for name in ("name", "job_id", "at", "attempt", "tenant", "target")}
    try:
        with conf.tenant_context(event.tenant), hygiene.leaving_no_transaction("A receiver of job_event"):
            signals.job_event.send_robust(sender, **values, data=json.loads(event.data) if event.data else None)
    except (Interrupted, TimeLimitExceeded):  # raised in the thread of a task that is to stop
        raise
    except BaseException as error:  # the events are stored; an error with one must not stop the rest
        # `send_robust` does not catch SystemExit and the like, and the commit would count as failed. In the main
        # thread, the exception may be meant for the process: signal handlers raise it there.
        if not isinstance(error, Exception) and threading.current_thread() is threading.main_thread():
            raise
        repeats.log(
            logging.WARNING,
            "Job %s: a receiver of the event %s failed: %s",
            event.job_id,
            event.name,
            error,
            kind=event.name,
        )
