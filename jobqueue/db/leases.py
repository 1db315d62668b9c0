"""The writes of a worker to the rows of its runs while they run: renewals, starts, progress. Each is guarded by id, token and lease.

On PostgreSQL they select their rows by primary key (``= ANY``) and token only. A condition on `status` would lead the
planner to a partial index full of dead entries. No statement here depends on the planner's statistics.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from jobqueue import conf
from jobqueue.core import event_names as names
from jobqueue.db import events
from jobqueue.db.columns import Columns
from jobqueue.db.database import Database
from jobqueue.db.events import OF_JOB
from jobqueue.db.records import Lease, Mark, Renewed

# Whether the lease is valid, in a form that statistics do not cover: if few jobs run, the planner would expect
# two tiny sets, and compare each row of one with each of the other.
ALIVE = "CASE WHEN j.lease_expires_at IS NULL THEN FALSE ELSE TRUE END"
BEGUN = "j.id, j.lease_token, j.attempt, j.tenant, j.target, j.queue, j.task, j.status, j.webhook_url, j.started_at"
SHOWN = ", coalesce({progress}, j.progress) <> j.progress OR coalesce({message}, j.message) <> j.message AS shown"

# SQLite
GUARD = "WHERE id = %s AND lease_token = %s AND lease_expires_at IS NOT NULL"
AGO = "strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', -(%s) || ' seconds')"


def renew(db: Database, leases: Sequence[Lease], lease_seconds: float) -> list[Renewed]:
    """Renew the leases whose rows are not locked. Return one record for each renewed row, with its request to stop if it has one."""
    returned = "RETURNING id, lease_token, cancel_requested, cancel_outcome"
    if db.is_sqlite:
        sql = f"UPDATE {db.table} SET lease_expires_at = {db.seconds_from_now}, heartbeat_at = {db.now} {GUARD} {returned}"
        with db.atomic():
            renewed = [row for lease in leases for row in db.rows(sql, [lease_seconds, *lease])]
    else:
        rows = Columns(leases, Lease)
        sql = (
            f"{db.updating()}lease_expires_at = {db.now} + make_interval(secs => %(seconds)s), heartbeat_at = {db.now}"
            f" WHERE id = ANY(ARRAY(SELECT id FROM ({_locked(db, rows)}) AS mine)) {returned}"
        )
        with db.read_committed_statement():
            renewed = db.rows(sql, {**rows.params, "seconds": lease_seconds})
    return [Renewed(job_id, token, bool(flag), outcome) for job_id, token, flag, outcome in renewed]


def mark(db: Database, marks: Sequence[Mark]) -> list[Lease]:
    """Write the starts and the progress of runs; return the leases whose rows were written."""
    return _mark_one_by_one(db, marks) if db.is_sqlite else _mark(db, marks)


def _locked(db: Database, rows: Columns, more: str = "") -> str:
    """Return a select that locks the free rows whose leases are still valid, and returns their values before the change."""
    return (
        f"SELECT j.id, j.started_at IS NULL AS fresh{more} FROM {db.table} AS j, {rows.source}"
        f" WHERE j.id = o.job_id AND j.id = ANY({rows.ids}) AND j.lease_token = o.token AND {ALIVE}"
        f" ORDER BY j.id FOR NO KEY UPDATE OF j SKIP LOCKED"
    )


def _mark(db: Database, marks: Sequence[Mark]) -> list[Lease]:
    rows = Columns(marks, Mark)
    at = f"{db.now} - make_interval(secs => {rows.began_ago})"
    logs_progress = conf.current().event_log == "all"
    shown = SHOWN.format(progress=rows.progress, message=rows.message) if logs_progress else ", FALSE AS shown"
    happened = (
        f"SELECT m.id AS job_id, e.name, CASE e.n WHEN 1 THEN m.started_at ELSE {db.now} END AS at, m.attempt,"
        f" {OF_JOB.format('m', 'CASE e.n WHEN 2 THEN m.shown END')} FROM moved AS m"
        f" CROSS JOIN (VALUES (1, '{names.STARTED}'), (2, '{names.PROGRESS}')) AS e(n, name)"
        " WHERE m.id IN (SELECT id FROM mine WHERE fresh) AND e.n = 1 OR m.id IN (SELECT id FROM mine WHERE shown) AND e.n = 2"
    )
    sql = (
        f"WITH mine AS MATERIALIZED ({_locked(db, rows, shown)}), moved AS ({db.updating('j')}"
        f"started_at = coalesce(j.started_at, {at}), first_started_at = coalesce(j.first_started_at, {at}),"
        f" progress = coalesce({rows.progress}, j.progress), message = coalesce({rows.message}, j.message),"
        f" metadata = coalesce({rows.metadata}::jsonb, j.metadata)"
        f" FROM {rows.source} WHERE j.id = o.job_id AND j.lease_token = o.token AND j.id = ANY(ARRAY(SELECT id FROM mine))"
        f" RETURNING {BEGUN}, jsonb_build_object('progress', j.progress, 'message', j.message) AS shown)"
        f"{events.writing(db, happened)} {events.selecting('id', 'lease_token')}"
    )
    with db.read_committed_statement():
        return [Lease(*row) for row in events.sent(db, db.rows(sql, rows.params), 2)]


def _mark_one_by_one(db: Database, marks: Sequence[Mark]) -> list[Lease]:
    sql = (
        f"UPDATE {db.table} SET started_at = coalesce(started_at, {AGO}), first_started_at = coalesce(first_started_at, {AGO}),"
        " progress = coalesce(%s, progress), message = coalesce(%s, message), metadata = coalesce(%s, metadata)"
        f" {GUARD} RETURNING id, lease_token"
    )
    ids, among = json.dumps([mark.job_id for mark in marks]), "SELECT value FROM json_each(%s)"
    with db.atomic():
        shown = [mark.job_id for mark in marks if conf.current().event_log == "all" and _shows(db, mark)]
        fresh = [row[0] for row in db.rows(f"SELECT id FROM {db.table} WHERE id IN ({among}) AND started_at IS NULL", [ids])]
        params = [(mark.began_ago, mark.began_ago, mark.progress, mark.message, mark.metadata, mark.job_id, mark.token) for mark in marks]
        written = [Lease(*row) for values in params for row in db.rows(sql, values)]
        _write_marked(db, [lease.job_id for lease in written], fresh, shown)
    return written


def _shows(db: Database, mark: Mark) -> bool:
    """Return whether a mark reports a progress that the row does not have yet."""
    sql = f"SELECT coalesce(%s, progress) <> progress OR coalesce(%s, message) <> message FROM {db.table} {GUARD}"
    rows = db.rows(sql, [mark.progress, mark.message, mark.job_id, mark.token])
    return bool(rows and rows[0][0])


def _write_marked(db: Database, written: Sequence[int], fresh: Sequence[int], shown: Collection[int]) -> None:
    """Write the events of the runs that began by the marks that were written, and of those that showed a new progress."""
    data, among = "json_object('progress', j.progress, 'message', j.message)", "SELECT value FROM json_each(%s)"
    happened = (
        f"SELECT j.id AS job_id, e.name, CASE e.n WHEN 1 THEN j.started_at ELSE {db.now} END AS at, j.attempt,"
        f" {OF_JOB.format('j', f'CASE e.n WHEN 2 THEN {data} END')}"
        f" FROM json_each(%s) AS o JOIN {db.table} AS j ON j.id = o.value"
        f" JOIN (SELECT 1 AS n, '{names.STARTED}' AS name UNION ALL SELECT 2, '{names.PROGRESS}') AS e"
        f" WHERE e.n = 1 AND j.id IN ({among}) OR e.n = 2 AND j.id IN ({among}) ORDER BY o.key, e.n"
    )
    params: list[Any] = [json.dumps(ids) for ids in (written, fresh, [job_id for job_id in written if job_id in {*shown}])]
    events.write_selected(db, happened, params)
