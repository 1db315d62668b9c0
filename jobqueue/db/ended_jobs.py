"""The statements that read jobs that have ended, from the oldest on.

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
