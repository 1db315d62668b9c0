"""PostgreSQL's statement that ends runs: many in one message, with any outcomes, and with their events.

What becomes of a run is decided before (``lifecycle/decide.py``). The statement only checks that the decision is
still right: the lease is valid, the request to stop in the row is the one that was decided for, and no other
transaction has locked the row. Other rows are left unchanged, and their runs are not returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobqueue import conf
from jobqueue.core import event_names as names
from jobqueue.db import events, run_ends_sqlite
from jobqueue.db.columns import Columns
from jobqueue.db.database import Database
from jobqueue.db.events import OF_JOB
from jobqueue.db.fast_path import plans
from jobqueue.db.records import CLEARED, MAX_ENTRIES, STANDING_FLAG, EndedRun, RunEnd

# The guard of `mine` is one CASE, see `leases.ALIVE`.
END_RUNS = """\
WITH mine AS MATERIALIZED (
    SELECT j.id, j.started_at IS NULL AS fresh FROM {table} AS j, {o.source}
    WHERE j.id = o.job_id AND j.id = ANY({o.ids}) AND j.lease_token = o.token
        AND CASE WHEN j.lease_expires_at IS NULL OR {flag} <> {o.flag}{has_phases} THEN FALSE ELSE TRUE END
    ORDER BY j.id FOR NO KEY UPDATE OF j SKIP LOCKED
), moved AS (
    {update} status = {o.status}, waiting_for = {o.waiting_for}, first_started_at = coalesce(j.first_started_at, j.started_at, {began}),
        {cleared}, {assignments}
    FROM {o.source}
    WHERE j.id = o.job_id AND j.lease_token = o.token AND j.id = ANY(ARRAY(SELECT id FROM mine)) AND {only_if}
    RETURNING j.id, j.lease_token, j.status, j.queue, j.tenant, j.target, j.task, j.webhook_url, j.finished_at,
        {attempt} AS attempt, {start} AS began{of_events}{computing}
){recording} {answer}"""

# The assignments of a batch in which all runs have succeeded, and of any other. The first is shorter, because most
# batches are of this kind, and the server parses their statement each time.
SUCCESS = {
    "started_at": "coalesce(j.started_at, {began})",
    "finished_at": "{now} - make_interval(secs => {o.ended_ago})",
    "worker_ids": "{worker_ids}",
    "holds_target": "FALSE",
}
ANY_END = {
    "started_at": "CASE WHEN {o.forgets_start} THEN NULL ELSE coalesce(j.started_at, {began}) END",
    "finished_at": "{now} - make_interval(secs => {o.ended_ago})",
    "worker_ids": "CASE WHEN {o.given_back} = 1 THEN j.worker_ids ELSE {worker_ids} END",
    "holds_target": "j.holds_target AND {o.status} NOT IN ('SUCCESS', 'CANCELED')",
    "attempt": "greatest(j.attempt - {o.given_back}, 0)",
    "failures": "j.failures + {o.failed}",
    "enqueued_at": "CASE WHEN {o.status} = 'QUEUED' THEN {now} ELSE j.enqueued_at END",
    "run_at": "coalesce({o.run_at}, {now} + make_interval(secs => {o.run_in}), j.run_at)",
    "options": "CASE WHEN jsonb_typeof(j.options) <> 'object' THEN coalesce({o.options}::jsonb, j.options)"
    " ELSE (j.options - 'unknown_since'::text) || coalesce({o.options}::jsonb, '{{}}') END",
    "history": """CASE WHEN {o.entry} IS NULL THEN j.history ELSE {history} || jsonb_build_array(jsonb_build_object(
            'attempt', j.attempt, 'worker', j.lease_owner,
            'started_at', {began_text}, 'finished_at', {now_text}) || {o.entry}::jsonb) END""",
}
# Assignments that a statement has only if a run of the batch has a value.
IF_GIVEN = {
    "message": "coalesce({o.message}, j.message)",
    "metadata": "coalesce({o.metadata}::jsonb, j.metadata)",
    "progress": "coalesce({o.progress}, j.progress)",
    "result": "coalesce({o.result}::jsonb, j.result)",
    "phase": "coalesce({o.phase}, j.phase)",
    "error_key": "coalesce({o.error_key}, j.error_key)",
}

HAPPENED = """SELECT m.id AS job_id, CASE e.n WHEN 1 THEN '{started}' WHEN 2 THEN '{progress}' ELSE m.event END AS name,
    CASE e.n WHEN 1 THEN m.began WHEN 2 THEN {now} ELSE coalesce(m.finished_at, {now}) END AS at, m.attempt, {of_job}
    FROM moved AS m CROSS JOIN (VALUES {numbers}) AS e(n)
    WHERE CASE e.n WHEN 1 THEN m.began IS NOT NULL AND m.event <> '' AND m.id IN (SELECT id FROM mine WHERE fresh)
        WHEN 2 THEN m.shown IS NOT NULL ELSE m.event <> '' END"""
SUCCEEDED = """SELECT m.id AS job_id, e.name, CASE e.n WHEN 1 THEN m.began ELSE m.finished_at END AS at, m.attempt, {of_job}
    FROM moved AS m CROSS JOIN (VALUES (1, '{started}'), (2, '{completed}')) AS e(n, name)
    WHERE e.n = 2 OR m.id IN (SELECT id FROM mine WHERE fresh)"""

RETURNED = ("id", "lease_token", "queue", "tenant")

# The format of `datetime.isoformat`, in any time zone of the session.
ISO = """to_char({} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')"""


def end_runs(db: Database, ends: Sequence[RunEnd]) -> list[EndedRun]:
    """End the runs whose leases are still valid and whose rows are not locked, and write their events; return those written."""
    if db.is_sqlite:
        return run_ends_sqlite.end_runs(db, ends)
    (sql, params), connection = statement(db, ends), db.connection
    with db.read_committed_statement():
        # The text depends on what the ends have in common, and the best plan on their number. A single end has one
        # text and one plan.
        plan_is_kept = len(ends) == 1 and plans.are_kept(connection)
        rows = plans.rows(connection, sql, params) if plan_is_kept else db.rows(sql, params)
        return [EndedRun(*row) for row in events.sent(db, rows, len(returned(ends)))]


def returned(ends: Sequence[RunEnd]) -> Sequence[str]:
    """Return the columns that the statement returns. A success needs fewer, which saves the driver a twentieth of its time."""
    return RETURNED[:2] if all(end.status == "SUCCESS" for end in ends) else RETURNED


def statement(db: Database, ends: Sequence[RunEnd], only_if: str = "TRUE", computing: str = "") -> tuple[str, dict[str, Any]]:
    """Return the statement and its parameters. It writes under the condition `only_if` and computes `computing` for each row."""
    o, now = Columns(ends, RunEnd), db.now
    succeed = o.all_are(status="SUCCESS", event=names.COMPLETED, data=None, shown=None)
    began = f"{now} - make_interval(secs => {o.began_ago})"
    start = f"coalesce(j.started_at, {began})"
    values = {
        "o": o,
        "now": now,
        "began": began,
        "worker_ids": "CASE WHEN jsonb_typeof(j.worker_ids) = 'array' THEN j.worker_ids || to_jsonb(j.lease_owner)"
        " ELSE jsonb_build_array(j.lease_owner) END",
        "history": f"CASE WHEN jsonb_typeof(j.history) <> 'array' THEN '[]' WHEN jsonb_array_length(j.history) >= {MAX_ENTRIES}"
        " THEN j.history - 1 ELSE j.history END",
        "began_text": ISO.format(start),
        "now_text": ISO.format(now),
    }
    assignments = (SUCCESS if succeed else ANY_END) | {name: sql for name, sql in IF_GIVEN.items() if not o.all_are(**{name: None})}
    sql = END_RUNS.format(
        o=o,
        table=db.table,
        flag=STANDING_FLAG,
        has_phases="" if o.all_are(alone=False) else f" OR {o.alone} AND j.phase <> ''",
        update=db.updating("j"),
        began=began,
        start=start,
        attempt="j.attempt" if o.all_are(given_back=0) else f"j.attempt + {o.given_back}",
        of_events="" if succeed else f", {o.event} AS event, {o.data}::jsonb AS data, {o.shown}::jsonb AS shown",
        cleared=CLEARED,
        assignments=", ".join(f"{name} = {expression}" for name, expression in assignments.items()).format(**values),
        only_if=only_if,
        computing=computing,
        recording=events.writing(db, _happened(o, now, succeed)),
        answer=events.selecting(*returned(ends)),
    )
    return sql, o.params


def _happened(o: Columns, now: str, succeed: bool) -> str:
    """Return the select of the events."""
    if succeed:
        return SUCCEEDED.format(started=names.STARTED, completed=names.COMPLETED, of_job=OF_JOB.format("m", "NULL::jsonb"))
    shows = conf.current().event_log == "all" and not o.all_are(shown=None)
    return HAPPENED.format(
        now=now,
        started=names.STARTED,
        progress=names.PROGRESS,
        numbers="(1), (2), (3)" if shows else "(1), (3)",
        of_job=OF_JOB.format("m", "CASE e.n WHEN 2 THEN m.shown WHEN 3 THEN m.data END"),
    )
