"""The statements that count what came, ended, waits and runs, for the samples of queues and tasks.

Each reads a bounded number of rows using an index, even if the statistics are wrong. None changes or locks anything.
Times are in seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.core.exceptions import EmptyResultSet
from django.db.models import QuerySet

from jobqueue.core.histograms import BOUNDS, MAX_SECONDS
from jobqueue.core.targets import Target
from jobqueue.db import overview
from jobqueue.db.database import Database
from jobqueue.db.ended_jobs import ENDED

# A span is the time from one multiple of this to the next.
SPAN = "CAST(floor(moment / {0}) * {0} AS bigint)"


class Arrived(NamedTuple):
    """The number of jobs of one queue and task that were created in a span, of `read` jobs, of which the earliest was `first`."""

    span: int
    queue: str
    task: str
    number: int
    read: int
    first: float


class Ended(NamedTuple):
    """The number of jobs that ended alike in a span. `wait` and `run` are positions of a histogram, with the sums of the seconds."""

    span: int
    queue: str
    task: str
    status: str
    wait: int | None
    run: int | None
    number: int
    first: float
    wait_seconds: float
    run_seconds: float


class Present(NamedTuple):
    """The number of jobs of one queue and task that wait or run now, and for how many seconds the oldest has waited."""

    queue: str
    task: str
    number: int
    oldest_seconds: float


def newest_id(db: Database) -> int:
    """Return the highest id of a job, or 0."""
    return int(db.rows(f"SELECT coalesce(max(id), 0) FROM {db.table}")[0][0])


def is_at_rest(db: Database, newest_id: int, since: int) -> bool:
    """Return whether no job has an id above `newest_id`, none is queued or runs, and none ended since a time."""
    heads = (
        f"SELECT 1 FROM {db.table} WHERE id > %s ORDER BY id LIMIT 1",
        f"SELECT 1 FROM {db.table} WHERE status = 'QUEUED' ORDER BY tenant, claim_rank, id LIMIT 1",
        f"SELECT 1 FROM {db.table} WHERE status = 'RUNNING' ORDER BY lease_owner LIMIT 1",
        f"SELECT 1 FROM {db.table} WHERE {ENDED} AND finished_at >= {db.at_epoch} ORDER BY finished_at DESC, id DESC LIMIT 1",
    )
    return not db.rows(f"SELECT coalesce({', '.join(f'({head})' for head in heads)}, 0)", [newest_id, since])[0][0]


def arrived(db: Database, behind_id: int, begin: int, end: int, span: int, most: int) -> list[Arrived]:
    """Count the jobs above an id that were created from `begin` to `end`, among the newest `most`."""
    moment = db.epoch.format(db.readable("created_at"))
    newest = (
        f"SELECT queue, task, {moment} AS moment, created_at >= {db.at_epoch} AND created_at < {db.at_epoch} AS within"
        f" FROM {db.table} WHERE id > %s ORDER BY id DESC LIMIT %s"
    )
    sql = (
        f"{db.hint()}SELECT {SPAN.format(span)} AS span, queue, task, count(*) FILTER (WHERE within), count(*), min(moment)"
        f" FROM ({newest}) AS newest GROUP BY 1, 2, 3"
    )
    with overview.reading(db):
        return [Arrived(*row) for row in db.rows(sql, [begin, end, behind_id, most])]


def ended(db: Database, begin: int, end: int, span: int, most: int) -> list[Ended]:
    """Count the jobs that ended from `begin` to `end`, among the newest `most`.

    A job has a wait and a run if it ended in SUCCESS or ERROR and its times are in order.
    """
    became, started, finished = (db.readable(name) for name in ("enqueued_at", "started_at", "finished_at"))
    known = "status <> 'CANCELED' AND enqueued_at <= started_at AND started_at <= finished_at"
    wait, run = db.seconds_between.format(became, started), db.seconds_between.format(started, finished)
    newest = (
        f"SELECT queue, task, status, {db.epoch.format(finished)} AS moment,"
        f" CASE WHEN {known} THEN {wait} END AS wait, CASE WHEN {known} THEN {run} END AS run"
        f" FROM {db.table} WHERE {ENDED} AND finished_at >= {db.at_epoch} AND finished_at < {db.at_epoch}"
        " ORDER BY finished_at DESC, id DESC LIMIT %s"
    )
    counted = f"CASE WHEN wait <= {MAX_SECONDS} AND run <= {MAX_SECONDS} THEN {{}} END"
    buckets = (counted.format(db.bucket("wait", BOUNDS)), counted.format(db.bucket("run", BOUNDS)))
    sums = (f"coalesce(sum({counted.format(name)}), 0)" for name in ("wait", "run"))
    sql = (
        f"{db.hint()}SELECT {SPAN.format(span)} AS span, queue, task, status, {', '.join(buckets)}, count(*), min(moment),"
        f" {', '.join(sums)} FROM ({newest}) AS newest GROUP BY 1, 2, 3, 4, 5, 6"
    )
    with overview.reading(db):
        return [Ended(*row) for row in db.rows(sql, [begin, end, most])]


def waiting(db: Database, queues: Sequence[Target], most: int) -> list[Present]:
    """Count the first `most` queued jobs of each queue of each tenant, by task."""
    source, params = db.pairs(queues)
    mine = db.columns_equal(("j.tenant", "j.queue"), overview.MINE)
    first = f"{overview.QUEUED} AND {mine} ORDER BY j.tenant, j.queue, j.claim_rank, j.id"
    oldest = db.seconds_between.format(f"min({db.readable('j.enqueued_at')})", db.now)
    sql = (
        f"{db.hint()}WITH t(tenant, name) AS ({source}) SELECT j.queue, j.task, count(*), {oldest}"
        f" FROM t {db.first_of.format(db.table, first, most, '')} GROUP BY j.queue, j.task"
    )
    with overview.reading(db):
        return [Present(*row) for row in db.rows(sql, params)] if queues else []


def running(db: Database) -> list[Present]:
    """Count the jobs that run, by queue and task."""
    sql = f"SELECT queue, task, count(*), 0 FROM {db.table} WHERE status = 'RUNNING' GROUP BY queue, task"
    with overview.reading(db):
        return [Present(*row) for row in db.rows(f"{db.hint()}{sql}")]


def raw_rows(db: Database, query: QuerySet[Any], *, hashed: bool = False) -> list[tuple[Any, ...]]:
    """Return the rows of a query as the driver returns them: for thousands of rows, Django's conversions take longer than the query.

    With `hashed`, rows are grouped by hashing. PostgreSQL expects too many groups, and would sort all rows on the disk.
    """
    try:
        sql, params = query.query.get_compiler(db.alias).as_sql()
    except EmptyResultSet:
        return []
    if not hashed:
        return db.rows(sql, params)
    with overview.reading(db):
        return db.rows(f"{db.hint()}{sql}", params)
