"""The statements that read jobs that have ended, from the oldest on, and count recent ends.

Each reads a bounded number of rows by an index, whatever plan the statistics suggest. The callers filter the rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from jobqueue.core.targets import Target
from jobqueue.db.open_jobs import OpenJobs

# The condition must equal that of the index of ended jobs word for word, or no planner uses the index.
ENDED = "status IN ('SUCCESS', 'ERROR', 'CANCELED')"
Key = tuple[Any, int]


class Ended(NamedTuple):
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
    def behind(self) -> Target:
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


class EndedJobs(OpenJobs):
    """The statements on jobs that have ended."""

    exact_time: ClassVar[str] = "{}"  # a time that keeps its precision when it is read and sent back
    seconds_since: ClassVar[str] = ""
    for_deletion: ClassVar[str] = ""

    def ended_before(self, age: float, after: Key | None, limit: int, since: float | None = None) -> list[Ended]:
        """Return the first `limit` jobs that ended at least `age` seconds ago, after a key, or at most `since` seconds ago."""
        behind, params = "", list[Any]()
        if after is not None:
            behind, params = " AND (finished_at, id) > (%s, %s)", [*after]
        elif since is not None:
            behind, params = f" AND finished_at > {self.ahead}", [-since]
        ended = self.exact_time.format(f"({self.readable('finished_at')})")
        sql = (
            f"{self.hint()}SELECT id, {ended}, tenant, queue, task, target, status, stale_at IS NOT NULL"
            f" FROM {self.table} WHERE {ENDED}{behind} AND finished_at <= {self.ahead} ORDER BY {self.table}.finished_at, id LIMIT %s"
        )
        with self._reading():
            return [Ended._make([*row[:7], bool(row[7])]) for row in self.rows(sql, [*params, -age, limit])]

    def lock_ended(self, ids: Sequence[int], age: float, *, for_deletion: bool) -> dict[int, str]:
        """Lock those of the jobs that ended at least `age` seconds ago and are not locked; return the status of each.

        For a deletion, jobs to which another transaction adds a child are skipped, too: the deletion would wait for
        it.
        """
        condition, params = self.among(ids)
        lock = self.for_deletion if for_deletion else self.skip_locked
        # Judge the rows here: as a condition, the status would lead the planner to an index full of dead entries.
        sql = f"SELECT id, status, {ENDED} AND finished_at <= {self.ahead} FROM {self.table} WHERE id {condition} ORDER BY id{lock}"
        return {row[0]: row[1] for row in self.rows(sql, [-age, *params]) if row[2]}

    @contextlib.contextmanager
    def by_index(self) -> Iterator[None]:
        """Make the statements inside find their rows by an index if there is one: tables of other apps may never be analyzed."""
        yield

    def newest_id(self) -> int:
        """Return the highest id of a job, or 0."""
        return int(self.rows(f"SELECT coalesce(max(id), 0) FROM {self.table}")[0][0])

    def rest(self, newest_id: int, begin: float, queues: str) -> tuple[bool, bool]:
        """Return whether there is nothing to count, and whether the table `queues` is empty, by one statement.

        There is nothing to count if no job has an id above `newest_id`, none is queued or runs, and none ended within
        `begin` seconds.
        """
        heads = (
            f"SELECT 1 FROM {self.table} WHERE id > %s ORDER BY id LIMIT 1",
            f"SELECT 1 FROM {self.table} WHERE status = 'QUEUED' ORDER BY tenant, claim_rank, id LIMIT 1",
            f"SELECT 1 FROM {self.table} WHERE status = 'RUNNING' ORDER BY lease_owner LIMIT 1",
            f"SELECT 1 FROM {self.table} WHERE {ENDED} AND finished_at > {self.ahead} ORDER BY finished_at DESC, id DESC LIMIT 1",
        )
        sql = f"SELECT coalesce({', '.join(f'({head})' for head in heads)}, 0), EXISTS (SELECT 1 FROM {queues})"
        busy, named = self.rows(sql, [newest_id, -begin])[0]
        return not busy, not named

    def ends_within(self, begin: float, end: float, most: int) -> list[Flow]:
        """Count the jobs that ended between `begin` and `end` seconds ago, among the newest `most`."""
        newest = (
            f"SELECT queue, status, {self.readable('finished_at')} AS moment FROM {self.table} WHERE {ENDED} AND finished_at > {self.ahead}"
            " ORDER BY finished_at DESC, id DESC LIMIT %s"
        )
        return self._flows(newest, [-begin, most], begin, end)

    def arrivals_within(self, behind_id: int, begin: float, end: float, most: int) -> list[Flow]:
        """Count the jobs above an id that were created between `begin` and `end` seconds ago, among the newest `most`."""
        moment = self.readable("created_at")
        newest = f"SELECT queue, 'QUEUED' AS status, {moment} AS moment FROM {self.table} WHERE id > %s ORDER BY id DESC LIMIT %s"
        return self._flows(newest, [behind_id, most], begin, end)

    def _flows(self, newest: str, params: Sequence[Any], begin: float, end: float) -> list[Flow]:
        within = f"moment > {self.ahead} AND moment <= {self.ahead}"
        sql = (
            f"{self.hint()}SELECT queue, status, count(*) FILTER (WHERE {within}), count(*), {self.seconds_since.format('min(moment)')}"
            f" FROM ({newest}) AS newest GROUP BY queue, status"
        )
        with self._reading():
            return [Flow._make([*row[:4], float(row[4])]) for row in self.rows(sql, [-begin, -end, *params])]
