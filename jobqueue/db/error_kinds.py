"""The statements on the kinds of errors of the jobs in ERROR. Each reads a bounded number of index entries of each kind."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from jobqueue.core.targets import Target
from jobqueue.db import claims
from jobqueue.db.database import Database
from jobqueue.db.overview import reading

ERROR = "status = 'ERROR'"
HOUR_SECONDS, DAY_SECONDS = 3600, 86400


class KindCount(NamedTuple):
    """The jobs in ERROR of one kind: how many, each number up to a bound, the times of the first and the last end, and the newest job."""

    key: str
    number: int
    in_last_hour: int
    in_last_day: int
    first_at: datetime | None
    last_at: datetime | None
    newest_id: int


class LastError(NamedTuple):
    """The task of a job, and the exception and the message of its last run that did not succeed."""

    task: str
    exception: str | None
    message: str | None


def count_kinds(db: Database, limit: int, most: int) -> list[KindCount]:
    """Return up to `limit` kinds, in the order of their keys, and count up to `most` jobs of each."""
    with reading(db):
        keys = claims.distinct_values(db, "error_key", ERROR, [], limit)
    if not keys:
        return []
    source, params = db.pairs([Target("", key) for key in keys])
    jobs = f"FROM {db.table} AS j WHERE {ERROR} AND {db.columns_equal(['j.error_key'], ['t.name'])}"
    order, ended = "ORDER BY j.error_key{0}, j.finished_at{0}, j.id{0} LIMIT", db.readable("j.finished_at")
    last = f"{jobs} {order.format(' DESC')}"
    # All three numbers in one text, because they must come from one pass over the newest jobs of the kind, and a
    # subselect returns one value.
    recent = f"coalesce(sum(CASE WHEN finished_at > {db.seconds_from_now} THEN 1 ELSE 0 END), 0)"
    numbers = f"SELECT count(*) || ' ' || {recent} || ' ' || {recent} FROM (SELECT j.finished_at {last} %s) AS newest"
    sql = (
        f"{db.hint()}WITH t(tenant, name) AS ({source}) SELECT t.name, ({numbers}), (SELECT {ended} {jobs} {order.format('')} 1),"
        f" (SELECT {ended} {last} 1), (SELECT j.id {last} 1) FROM t ORDER BY t.name"
    )
    with reading(db):
        rows = db.rows(sql, [*params, -HOUR_SECONDS, -DAY_SECONDS, most])
    return [
        KindCount._make((key, *map(int, counts.split()), db.moment(first_at), db.moment(last_at), newest_id))
        for key, counts, first_at, last_at, newest_id in rows
        if newest_id is not None
    ]


def last_errors(db: Database, ids: Collection[int]) -> dict[int, LastError]:
    """Return the last error of each of these jobs, by its history."""
    condition, params = db.among([*ids])
    columns = ", ".join(db.last_entry.format(name) for name in ("exception", "message"))
    rows = db.rows(f"SELECT id, task, {columns} FROM {db.table} WHERE id {condition}", params) if ids else []
    return {row[0]: LastError(*row[1:]) for row in rows}


def last_releases(db: Database, ids: Collection[int]) -> dict[int, str]:
    """Return the release of the worker of the last run of each of these jobs that did not succeed; "" if it is not known."""
    condition, params = db.among([*ids])
    rows = db.rows(f"SELECT id, {db.last_entry.format('release')} FROM {db.table} WHERE id {condition}", params) if ids else []
    return {job_id: str(release or "") for job_id, release in rows}
