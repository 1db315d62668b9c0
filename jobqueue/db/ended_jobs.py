"""The statements that look at jobs that have ended, from the oldest on, and how many there were of late.

Each reads a bounded number of rows by an index, whatever the planner knows: what is filtered is filtered by whoever asked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from jobqueue.core.targets import Target
from jobqueue.db.open_jobs import OpenJobs

# The condition of the index of those that have ended, word by word: else no planner finds it.
ENDED = "status IN ('SUCCESS', 'ERROR', 'CANCELED')"
Key = tuple[Any, int]


class Ended(NamedTuple):
    """Name one job that has ended; `ended` is its time as the index compares it, to go on behind it."""

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
        """The job's place in the index."""
        return self.ended, self.id

    @property
    def behind(self) -> Target:
        """The job's target; its name is empty where the job has none."""
        return Target(self.tenant, self.target)


class Flow(NamedTuple):
    """Count the jobs of one queue that came, or ended with one status, within a while (`number`).

    `read` are all that the look has read, and `first` is how many seconds ago the first of these came or ended.
    """

    queue: str
    status: str
    number: int
    read: int
    first: float


class EndedJobs(OpenJobs):
    """Look at jobs that have ended."""

    exact_time: ClassVar[str] = "{}"  # a time that loses nothing on its way to here and back
    seconds_since: ClassVar[str] = ""
    for_deletion: ClassVar[str] = ""

    def ended_before(self, age: float, after: Key | None, limit: int, since: float | None = None) -> list[Ended]:
        """Return the first `limit` jobs that ended so many seconds ago or earlier, behind a key, or no longer than `since` ago."""
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
        """Lock those of the jobs that ended so long ago and that nobody has locked; return the status of each.

        For a deletion those are passed over, too, that somebody adds a child to just now: the deletion would wait for them.
        """
        condition, params = self.among(ids)
        lock = self.for_deletion if for_deletion else self.skip_locked
        # What they are is judged here: in the statement it would invite the planner into an index full of dead entries.
        sql = f"SELECT id, status, {ENDED} AND finished_at <= {self.ahead} FROM {self.table} WHERE id {condition} ORDER BY id{lock}"
        return {row[0]: row[1] for row in self.rows(sql, [-age, *params]) if row[2]}

    @contextlib.contextmanager
    def by_index(self) -> Iterator[None]:
        """Have the statements inside find their rows by an index, where there is one: of tables that others made, and may never analyze."""
        yield

    def newest_id(self) -> int:
        """Return the highest id of a job; 0 where there is none."""
        return int(self.rows(f"SELECT coalesce(max(id), 0) FROM {self.table}")[0][0])

    def rest(self, newest_id: int, begin: float, queues: str) -> tuple[bool, bool]:
        """Return whether there is nothing to count, and whether the table `queues` is empty: one statement.

        Nothing is where no job came behind an id, none is queued or runs, and none ended within so many seconds.
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
        """Count the jobs that ended between so many seconds ago (`begin`) and fewer (`end`), among the newest `most`."""
        newest = (
            f"SELECT queue, status, {self.readable('finished_at')} AS moment FROM {self.table} WHERE {ENDED} AND finished_at > {self.ahead}"
            " ORDER BY finished_at DESC, id DESC LIMIT %s"
        )
        return self._flows(newest, [-begin, most], begin, end)

    def arrivals_within(self, behind_id: int, begin: float, end: float, most: int) -> list[Flow]:
        """Count the jobs behind an id that were created between so many seconds ago and fewer, among the newest `most`."""
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
