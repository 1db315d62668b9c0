"""SQLite's statement that ends a run: one for each run, all in one transaction, with the checks and writes of ``run_ends.py``."""

from __future__ import annotations

from collections.abc import Sequence

from jobqueue.core import event_names as names
from jobqueue.db import events
from jobqueue.db.database import Database
from jobqueue.db.records import CLEARED, MAX_ENTRIES, STANDING_FLAG, EndedRun, Event, RunEnd

NOW = "strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now')"
BEGAN = "coalesce(started_at, strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', -%(began_ago)s || ' seconds'))"
# The format of `datetime.isoformat`.
ISO = "strftime('%%Y-%%m-%%dT%%H:%%M:%%f', {}) || '000+00:00'"
LIST = "CASE WHEN json_valid({0}) AND json_type({0}) = 'array' THEN {0} ELSE '[]' END"
HISTORY = LIST.format("history")
OPTIONS = "CASE WHEN json_valid(options) AND json_type(options) = 'object' THEN json_remove(options, '$.unknown_since') ELSE options END"
RETURNED = "id, lease_token, status, queue, tenant, attempt, target, task, webhook_url, started_at, finished_at"

END_RUN = f"""\
UPDATE {{table}} SET status = %(status)s, waiting_for = %(waiting_for)s,
    started_at = CASE WHEN %(forgets_start)s THEN NULL ELSE {BEGAN} END, first_started_at = coalesce(first_started_at, {BEGAN}),
    finished_at = strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', -%(ended_ago)s || ' seconds'),
    message = coalesce(%(message)s, message), metadata = coalesce(%(metadata)s, metadata), progress = coalesce(%(progress)s, progress),
    result = coalesce(%(result)s, result), attempt = max(attempt - %(given_back)s, 0), failures = failures + %(failed)s,
    enqueued_at = CASE WHEN %(status)s = 'QUEUED' THEN {NOW} ELSE enqueued_at END,
    run_at = coalesce(%(run_at)s, strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', %(run_in)s || ' seconds'), run_at),
    phase = coalesce(%(phase)s, phase), error_key = coalesce(%(error_key)s, error_key),
    options = CASE WHEN %(status)s = 'SUCCESS' THEN options WHEN %(options)s IS NULL THEN {OPTIONS}
        ELSE json_patch(CASE WHEN json_valid(options) THEN {OPTIONS} ELSE '{{{{}}}}' END, %(options)s) END,
    worker_ids = CASE WHEN %(given_back)s THEN worker_ids ELSE json_insert({LIST.format("worker_ids")}, '$[#]', lease_owner) END,
    history = CASE WHEN %(entry)s IS NULL THEN history ELSE json_insert(
        CASE WHEN json_array_length({HISTORY}) >= {MAX_ENTRIES} THEN json_remove(history, '$[1]') ELSE {HISTORY} END, '$[#]',
        json_patch(json_object('attempt', attempt, 'worker', lease_owner, 'started_at', {ISO.format(BEGAN)},
            'finished_at', {ISO.format("'now'")}), %(entry)s)) END,
    holds_target = (holds_target AND %(status)s NOT IN ('SUCCESS', 'CANCELED')), {CLEARED}
WHERE id = %(job_id)s AND lease_token = %(token)s AND lease_expires_at IS NOT NULL AND {STANDING_FLAG} = %(flag)s
    AND (phase = '' OR NOT %(alone)s)
RETURNING {RETURNED}"""

FRESH = f"SELECT {BEGAN} FROM {{table}} WHERE id = %(job_id)s AND started_at IS NULL"


def end_runs(db: Database, ends: Sequence[RunEnd]) -> list[EndedRun]:
    """End runs and write their events; return those written."""
    done: list[EndedRun] = []
    happened: list[Event] = []
    with db.atomic():
        for end in ends:
            written, own_events = _end(db, end)
            done += written
            happened += own_events
        events.write(db, happened)
    return done


def _end(db: Database, end: RunEnd) -> tuple[list[EndedRun], list[Event]]:
    params = {**end._asdict(), "run_at": db.adapt(end.run_at)}
    fresh = db.rows(FRESH.format(table=db.table), params)
    rows = db.rows(END_RUN.format(table=db.table), params)
    if not rows:
        return [], []
    job_id, token, status, queue, tenant, attempt, target, task, url, started_at, finished_at = rows[0]
    happened = [(end.event, db.moment(finished_at), end.data)] if end.event else []
    if end.shown is not None:
        happened.insert(0, (names.PROGRESS, None, end.shown))
    if fresh and fresh[0][0] is not None and end.event:  # a repeated try has neither start nor end in the log
        happened.insert(0, (names.STARTED, db.moment(started_at or fresh[0][0]), None))
    own_events = [
        Event(job_id, name, at, attempt + end.given_back, tenant, target, data, queue, task, status, url) for name, at, data in happened
    ]
    return [EndedRun(job_id, token, queue, tenant)], own_events
