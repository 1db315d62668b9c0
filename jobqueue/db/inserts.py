"""The statements that insert jobs with their `enqueued` events: one job, or many at once (on PostgreSQL by COPY)."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterable, Sequence
from typing import Any

from jobqueue import conf, signals
from jobqueue.core import event_names as names
from jobqueue.db import events, fast_path
from jobqueue.db.columns import cell
from jobqueue.db.database import RELATIVE_TIME_COLUMNS, Database
from jobqueue.db.eventlog import EVENTS
from jobqueue.db.events import LOGGED, OF_JOB
from jobqueue.db.records import Event

COPY_BLOCK = 1000
MADE = f"'{names.ENQUEUED}' AS name, j.created_at AS at, 0 AS attempt"
Calls = Sequence[tuple[str, str, str, str]]
"""For each job: args and kwargs as JSON text, the unique key, the target."""


def insert(db: Database, columns: dict[str, Any], *, ignore_conflicts: bool) -> tuple[Any, ...] | None:
    """Insert one job; return (id, created_at), or None if an unfinished job has its unique key."""
    if db.is_sqlite:
        # The caller's transaction is enough: a savepoint would be two more statements for each job.
        with contextlib.nullcontext() if db.connection.in_atomic_block else db.atomic():
            inserted = _insert_alone(db, columns, ignore_conflicts)
            _write_enqueued(db, inserted)
        return inserted[0] if inserted else None
    rows = events.sent(db, db.rows(_statement(db, columns, ignore_conflicts), [*columns.values()]), 2)
    return (rows[0][0], db.moment(rows[0][1])) if rows else None


def insert_and_commit(db: Database, columns: dict[str, Any], note: tuple[str, str] | None) -> tuple[Any, ...]:
    """Insert one job as `insert` does, commit it, and notify the listeners of a channel, all in one message.

    The job is made even if the notification fails. Call it only if `fast_path.can_commit`.
    """
    rows = fast_path.run_and_commit(db, _statement(db, columns, ignore_conflicts=False), [*columns.values()], note)
    [(job_id, created_at)] = events.sent(db, rows, 2)
    return job_id, db.moment(created_at)


def take_ids(db: Database, number: int) -> list[int]:
    """Return ids in order, for jobs that are then inserted in another order.

    Return none if the database has one writer, so that any order is safe.
    """
    if db.is_sqlite:
        return []
    sql = "SELECT nextval(pg_get_serial_sequence(%s, 'id')) FROM generate_series(1, %s)"
    return sorted(row[0] for row in db.rows(sql, [db.table, number]))


def insert_many(db: Database, columns: dict[str, Any], calls: Calls) -> tuple[list[int], Any]:
    """Insert one job for each call, all with the same other columns; return their ids, in order, and `created_at`.

    None of the jobs has a unique key.
    """
    return _insert_each(db, columns, calls) if db.is_sqlite else _copy(db, columns, calls)


def _inserting(db: Database, columns: Iterable[str], ignore_conflicts: bool) -> str:
    """Return the statement that inserts one job, without RETURNING."""
    into = ", ".join(RELATIVE_TIME_COLUMNS.get(name, name) for name in columns)
    values = ", ".join([db.placeholder(name) for name in columns])
    return f"INSERT INTO {db.table} ({into}) VALUES ({values}){' ON CONFLICT DO NOTHING' if ignore_conflicts else ''}"


# PostgreSQL


def _statement(db: Database, columns: dict[str, Any], ignore_conflicts: bool) -> str:
    """Return the statement of `insert`."""
    return _cached_statement(db, (*columns,), ignore_conflicts, signals.has_receivers(signals.job_event), conf.current().event_log)


@functools.lru_cache(100)  # a project sets few combinations of columns
def _cached_statement(db: Database, columns: tuple[str, ...], ignore_conflicts: bool, has_receivers: bool, event_log: str) -> str:
    # The server may plan it again for each job, so it has no more parts than it needs.
    inserting = _inserting(db, columns, ignore_conflicts)
    if has_receivers:
        happened = f"SELECT j.id AS job_id, {MADE}, {OF_JOB.format('j', 'NULL::jsonb')} FROM moved AS j"
        inserted = f"{inserting} RETURNING id, created_at, tenant, target, queue, task, status, webhook_url"
        return f"WITH moved AS ({inserted}){events.writing(db, happened, sendable=False)} {events.selecting('id', 'created_at')}"
    if event_log == "none":
        return f"{inserting} RETURNING id, created_at"
    return (
        f"WITH j AS ({inserting} RETURNING id, created_at, tenant, target)"
        f" INSERT INTO {EVENTS} ({LOGGED}) SELECT j.id, {MADE}, j.tenant, j.target, NULL FROM j RETURNING job_id, at"
    )


def _copy(db: Database, columns: dict[str, Any], calls: Calls) -> tuple[list[int], Any]:
    """Insert the jobs by COPY, with ids taken from the sequence first."""
    same = {name: value for name, value in columns.items() if name not in ("args", "kwargs", "target")}
    ahead = same.pop("run_in", None)
    texts, created_at, run_at = _take_ids_as_text(db, len(calls), ahead)
    ids = [*map(int, texts)]
    same.update({"created_at": created_at, **({"run_at": run_at} if ahead is not None else {})})
    if (expires_in := same.pop("expires_in", None)) is not None:
        same["expires_at"] = created_at + expires_in
    tail = "".join(f"\t{cell(value)}" for value in same.values()) + "\n"
    command = f"COPY {db.table} (id, args, kwargs, target, {', '.join(same)}) FROM STDIN"
    with db.connection.cursor() as cursor, cursor.copy(command) as copy_in:
        for first in range(0, len(calls), COPY_BLOCK):
            pairs = zip(texts[first : first + COPY_BLOCK], calls[first : first + COPY_BLOCK], strict=True)
            lines = [
                f"{job_id}\t{cell(args)}\t{kwargs if kwargs == '{}' else cell(kwargs)}\t{target and cell(target)}{tail}"
                for job_id, (args, kwargs, _, target) in pairs
            ]
            copy_in.write("".join(lines))
    _write_copied(db, ids, [target for _, _, _, target in calls], same)
    return ids, created_at


def _take_ids_as_text(db: Database, number: int, ahead: Any) -> tuple[list[str], Any, Any]:
    """Take `number` ids from the sequence, in order, as texts; return them with the time now and the time `ahead` of it.

    The ids come in one row, because many rows take the driver longer. A select of its own finds the sequence:
    otherwise the server would find it again for each id, which takes several times as long as the id.
    """
    sequence = f"(SELECT pg_get_serial_sequence('{db.table}', 'id')::regclass)"
    ids = f"array_to_string(ARRAY(SELECT nextval({sequence}) FROM generate_series(1, %s)), ',')"
    [(texts, now, then)] = db.rows(f"SELECT {ids}, {db.now}, {db.now} + %s::interval", [number, ahead])
    return texts.split(","), db.moment(now), db.moment(then)


def _write_copied(db: Database, ids: Sequence[int], targets: Sequence[str], same: dict[str, Any]) -> None:
    """Write the `enqueued` events of new jobs that differ only in their targets."""
    is_one_target = len(set(targets)) == 1  # then send one text: an array of texts takes the driver longer than all other parameters
    happened = (
        f"SELECT o.id AS job_id, '{names.ENQUEUED}' AS name, %(at)s::timestamptz AS at, 0 AS attempt, %(tenant)s::text AS tenant,"
        f" {'%(targets)s::text AS ' if is_one_target else 'o.'}target, NULL::jsonb AS data, %(queue)s::text AS queue,"
        " %(task)s::text AS task, %(status)s::text AS status, %(url)s::text AS url"
        f" FROM unnest(%(ids)s::bigint[]{'' if is_one_target else ', %(targets)s::text[]'}) AS o(id{'' if is_one_target else ', target'})"
    )
    params = {
        "at": same["created_at"],
        "tenant": same.get("tenant", ""),
        "queue": same["queue"],
        "task": same["task"],
        "status": same.get("status", "QUEUED"),
        "url": same.get("webhook_url", ""),
    }
    lists = {"ids": f"{{{','.join(map(str, ids))}}}", "targets": targets[0] if is_one_target else list(targets)}
    if conf.current().event_log != "none":
        db.rows(f"WITH nothing AS (SELECT 1){events.writing(db, happened, sendable=False)} SELECT 1", {**params, **lists})
    if signals.has_receivers(signals.job_event):
        shared = (params["queue"], params["task"], params["status"], params["url"])
        pairs = zip(ids, targets, strict=True)
        enqueued = [Event(pk, names.ENQUEUED, params["at"], 0, params["tenant"], target, None, *shared) for pk, target in pairs]
        events.announce(db, enqueued)


# SQLite


def _insert_each(db: Database, columns: dict[str, Any], calls: Calls) -> tuple[list[int], Any]:
    with db.atomic():
        each = ({"args": args, "kwargs": kwargs, "target": target} for args, kwargs, _, target in calls)
        rows = [row for own_columns in each for row in _insert_alone(db, {**columns, **own_columns}, ignore_conflicts=False)]
        _write_enqueued(db, rows)
    return [row[0] for row in rows], rows[0][1]


def _insert_alone(db: Database, columns: dict[str, Any], ignore_conflicts: bool) -> list[tuple[Any, ...]]:
    """Insert one job without its event."""
    sql = f"{_inserting(db, columns, ignore_conflicts)} RETURNING id, created_at"
    return [(row[0], db.moment(row[1])) for row in db.rows(sql, [*map(db.adapt, columns.values())])]


def _write_enqueued(db: Database, rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        happened = (
            f"SELECT j.id AS job_id, {MADE}, {OF_JOB.format('j', 'NULL')}"
            f" FROM json_each(%s) AS o JOIN {db.table} AS j ON j.id = o.value ORDER BY o.key"
        )
        events.write_selected(db, happened, [json.dumps([row[0] for row in rows])], sendable=False)
