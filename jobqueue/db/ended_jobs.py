"""The statements that read jobs that have ended, from the oldest on, and count recent ends.

Each reads a bounded number of rows using an index, even if the statistics are wrong. The callers filter the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from jobqueue.core.targets import Target
from jobqueue.db import overview
from jobqueue.db.database import Database

# The text of the condition must be the same as in the index of ended jobs. Otherwise, the planner does not use
# the index.
ENDED = "status IN ('SUCCESS', 'ERROR', 'CANCELED')"
Key = tuple[Any, int]


class EndedJob(NamedTuple):
    """A job that has ended. `ended` is its time in the precision of the index, to continue after it."""

    id: int
    ended: Any
    tenant: str
    queue: str
    task: str
    target: str
    status: str
    stale: bool

    @property
    def key(self) -> Key:
        """The job's position in the index."""
        return self.ended, self.id

    @property
    def tenant_target(self) -> Target:
        """The job's target; its name is empty if the job has none."""
        return Target(self.tenant, self.target)


class Flow(NamedTuple):
    """The number of jobs of one queue that were created, or ended with one status, in a period (`number`).

    `read` is the number of jobs that the statement read. `first` is how many seconds ago the earliest of these was
    created or ended.
    """

    queue: str
    status: str
    number: int
    read: int
    first: float


def ended_before(db: Database, age: float, after: Key | None, limit: int, since: float | None = None) -> list[EndedJob]:
    """Return the first `limit` jobs that ended at least `age` seconds ago, after a key, or at most `since` seconds ago."""
    behind, params = "", list[Any]()
    if after is not None:
        behind, params = " AND (finished_at, id) > (%s, %s)", [*after]
    elif since is not None:
        behind, params = f" AND finished_at > {db.seconds_from_now}", [-since]
    ended = db.exact_time.format(f"({db.readable('finished_at')})")
    sql = (
        f"{db.hint()}SELECT id, {ended}, tenant, queue, task, target, status, stale_at IS NOT NULL"
        f" FROM {db.table} WHERE {ENDED}{behind} AND finished_at <= {db.seconds_from_now} ORDER BY {db.table}.finished_at, id LIMIT %s"
    )
    with overview.reading(db):
        return [EndedJob._make([*row[:7], bool(row[7])]) for row in db.rows(sql, [*params, -age, limit])]


def lock_ended(db: Database, ids: Sequence[int], age: float, *, for_deletion: bool) -> dict[int, str]:
    """Lock those of the jobs that ended at least `age` seconds ago and are not locked; return the status of each.

    For a deletion, jobs to which another transaction adds a child are skipped, too: the deletion would wait for
    it.
    """
    condition, params = db.among(ids)
    lock = db.for_deletion if for_deletion else db.skip_locked
    # Judge the rows here: as a condition, the status would lead the planner to an index full of dead entries.
    sql = f"SELECT id, status, {ENDED} AND finished_at <= {db.seconds_from_now} FROM {db.table} WHERE id {condition} ORDER BY id{lock}"
    return {row[0]: row[1] for row in db.rows(sql, [-age, *params]) if row[2]}


def newest_id(db: Database) -> int:
    """Return the highest id of a job, or 0."""
    return int(db.rows(f"SELECT coalesce(max(id), 0) FROM {db.table}")[0][0])


def rest(db: Database, newest_id: int, begin: float, queues: str) -> tuple[bool, bool]:
    """Return whether there is nothing to count, and whether the table `queues` is empty, by one statement.

    There is nothing to count if no job has an id above `newest_id`, none is queued or runs, and none ended within
    `begin` seconds.
    """
    heads = (
        f"SELECT 1 FROM {db.table} WHERE id > %s ORDER BY id LIMIT 1",
        f"SELECT 1 FROM {db.table} WHERE status = 'QUEUED' ORDER BY tenant, claim_rank, id LIMIT 1",
        f"SELECT 1 FROM {db.table} WHERE status = 'RUNNING' ORDER BY lease_owner LIMIT 1",
        f"SELECT 1 FROM {db.table} WHERE {ENDED} AND finished_at > {db.seconds_from_now} ORDER BY finished_at DESC, id DESC LIMIT 1",
    )
    sql = f"SELECT coalesce({', '.join(f'({head})' for head in heads)}, 0), EXISTS (SELECT 1 FROM {queues})"
    busy, named = db.rows(sql, [newest_id, -begin])[0]
    return not busy, not named


def ends_within(db: Database, begin: float, end: float, most: int) -> list[Flow]:
    """Count the jobs that ended between `begin` and `end` seconds ago, among the newest `most`."""
    newest = (
        f"SELECT queue, status, {db.readable('finished_at')} AS moment FROM {db.table} WHERE {ENDED}"
        f" AND finished_at > {db.seconds_from_now} ORDER BY finished_at DESC, id DESC LIMIT %s"
    )
    return _flows(db, newest, [-begin, most], begin, end)


def arrivals_within(db: Database, behind_id: int, begin: float, end: float, most: int) -> list[Flow]:
    """Count the jobs above an id that were created between `begin` and `end` seconds ago, among the newest `most`."""
    moment = db.readable("created_at")
    newest = f"SELECT queue, 'QUEUED' AS status, {moment} AS moment FROM {db.table} WHERE id > %s ORDER BY id DESC LIMIT %s"
    return _flows(db, newest, [behind_id, most], begin, end)


def _flows(db: Database, newest: str, params: Sequence[Any], begin: float, end: float) -> list[Flow]:
    within = f"moment > {db.seconds_from_now} AND moment <= {db.seconds_from_now}"
    sql = (
        f"{db.hint()}SELECT queue, status, count(*) FILTER (WHERE {within}), count(*), {db.seconds_since.format('min(moment)')}"
        f" FROM ({newest}) AS newest GROUP BY queue, status"
    )
    with overview.reading(db):
        return [Flow._make([*row[:4], float(row[4])]) for row in db.rows(sql, [-begin, -end, *params])]
