"""The statements for lists of queues and of the lines behind targets.

Each hops from one value to the next in a partial index and reads a bounded number of its entries. So the cost
depends on the number of lines that are shown, not on the number of jobs that wait. No statement here changes or
locks anything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from jobqueue.core.targets import Target
from jobqueue.db import claims
from jobqueue.db.database import Database
from jobqueue.db.targets import HELD, PARKED

QUEUED = "status = 'QUEUED'"
QUEUED_IN_LINE = f"NOT (target = '') AND {QUEUED}"  # the text must be the same as in the index, because SQLite compares the texts
LOWEST_RANK = -32768  # below that of any job
MAX_BLOCKERS = 100
MAX_QUEUES = 1000  # the maximum that a page or a command shows
MINE = ("t.tenant", "t.name")


class TargetHead(NamedTuple):
    """The jobs at the front of a line: the holder of the target, a job that blocks it, and the best queued and parked jobs."""

    tenant: str
    target: str
    holder: int | None
    blocker: int | None
    queued: int | None
    parked: int | None

    @property
    def job_ids(self) -> list[int]:
        """The numbers of these jobs."""
        return [job_id for job_id in (self.holder, self.blocker, self.queued, self.parked) if job_id is not None]


class Group(NamedTuple):
    """The number of jobs of one queue or target with one priority, up to a bound. `oldest` is the earliest time of the first few."""

    tenant: str
    name: str
    number: int
    oldest: datetime | None


class LastEnding(NamedTuple):
    """The end of a job's last run that did not succeed, from its history."""

    outcome: str | None
    finished_at: str | None


def targets_in(db: Database, where: str, after: Target, limit: int, tenant: str | None = None) -> list[Target]:
    """Return the targets of the jobs that `where` selects, in order, after `after`; only those of `tenant` if it is given."""
    return _pairs_in(db, "target", where, after, limit, tenant)


def queues_in(db: Database, limit: int) -> list[Target]:
    """Return the pairs (tenant, queue) that have QUEUED jobs."""
    return _pairs_in(db, "queue", QUEUED, Target("", ""), limit, None)


def first_in_queues(db: Database, limit: int) -> list[int]:
    """Return the QUEUED job that is claimed first of each pair (tenant, queue), of the first pairs."""
    pairs = queues_in(db, limit)
    source, params = db.pairs(pairs)
    first = _in_order(db, "j.id", "queue", QUEUED, "tenant, queue, claim_rank, id")
    with reading(db):
        rows = db.rows(f"{db.hint()}WITH t(tenant, name) AS ({source}) SELECT ({first} LIMIT 1) FROM t", params) if pairs else []
    return [job_id for (job_id,) in rows if job_id is not None]


def tenants_in_lines(db: Database, limit: int) -> list[str]:
    """Return tenants that may have a line."""
    with reading(db):
        found = {
            *claims.queued_tenants(db, limit),
            *claims.distinct_values(db, "tenant", PARKED, [], limit),
            *claims.distinct_values(db, "tenant", HELD, [], limit),
        }
    return sorted(found)


def target_heads(db: Database, targets: Collection[Target]) -> list[TargetHead]:
    """Return the jobs at the front of each line."""
    source, params = db.pairs(targets)
    holder = f"SELECT j.id FROM {db.table} AS j WHERE j.tenant = t.tenant AND j.target = t.name AND j.holds_target LIMIT 1"
    blockers = _in_order(db, "j.id", "target", f"{HELD} AND status IN ('PAUSED', 'ERROR')", "tenant, target")
    line = "tenant, target, claim_rank, id"
    queued, parked = (_in_order(db, "j.id", "target", where, line) for where in (QUEUED_IN_LINE, PARKED))
    sql = (
        f"{db.hint()}WITH t(tenant, name) AS ({source}) SELECT t.tenant, t.name, ({holder}),"
        f" (SELECT min(id) FROM ({blockers} LIMIT {MAX_BLOCKERS}) AS b), ({queued} LIMIT 1), ({parked} LIMIT 1) FROM t"
    )
    with reading(db):
        return [TargetHead(*row) for row in db.rows(sql, params)] if targets else []


def members(db: Database, target: Target, most: int) -> list[int]:
    """Return the jobs that hold, block or wait for a target, up to `most` in each of these roles."""
    line = "tenant, target, claim_rank, id"
    ids: set[int] = set()
    with reading(db):
        for where, order in ((HELD, "tenant, target"), (PARKED, line), (QUEUED_IN_LINE, line)):
            sql = _in_order(db, "j.id", "target", where, order, values=("%s", "%s"))
            ids.update(row[0] for row in db.rows(f"{db.hint()}{sql} LIMIT %s", [*[*target] * (sql.count("%s") // 2), most]))
    return sorted(ids)


def groups(db: Database, column: str, where: str, pairs: Collection[Target], most: int, first: int) -> list[Group]:
    """Count the jobs of each target or queue (the `column`), by priority, each up to `most`.

    `oldest` is the earliest time at which one of the `first` jobs of each priority was enqueued.
    """
    source, params = db.pairs(pairs)
    mine = db.columns_equal(["p.tenant", f"p.{column}"], ["g.tenant", "g.name"], beyond=("p.claim_rank", "g.rank"))
    following = f"SELECT p.claim_rank FROM {db.table} AS p WHERE {where} AND {mine} ORDER BY p.tenant, p.{column}, p.claim_rank LIMIT 1"
    # A holder that waits to run again is in the line of its target, but does not wait for it.
    since = db.readable("j.enqueued_at")
    since = f"CASE WHEN j.holds_target THEN NULL ELSE {since} END" if column == "target" else since
    members = _in_order(db, f"{since} AS since", column, where, f"tenant, {column}, claim_rank, id", values=(*MINE, "t.rank"))
    sql = (
        f"{db.hint()}WITH RECURSIVE t(tenant, name) AS ({source}), g(tenant, name, rank) AS ("
        f" SELECT t.tenant, t.name, {LOWEST_RANK} FROM t UNION ALL SELECT g.tenant, g.name, ({following}) FROM g"
        " WHERE g.rank IS NOT NULL)"
        f" SELECT tenant, name, (SELECT count(*) FROM ({members} LIMIT %s) AS m),"
        f" (SELECT min(since) FROM ({members} LIMIT %s) AS m) FROM g AS t WHERE rank > {LOWEST_RANK}"
    )
    with reading(db):
        rows = db.rows(sql, [*params, most, first]) if pairs else []
    return [Group(tenant, name, count, db.moment(oldest)) for tenant, name, count, oldest in rows]


def endings(db: Database, ids: Sequence[int]) -> dict[int, LastEnding]:
    """Return how the last unsuccessful runs of jobs ended."""
    condition, params = db.among(ids)
    columns = ", ".join(db.last_entry.format(name) for name in LastEnding._fields)
    rows = db.rows(f"SELECT id, {columns} FROM {db.table} WHERE id {condition}", params) if ids else []
    return {row[0]: LastEnding(*row[1:]) for row in rows}


def clock(db: Database) -> datetime:
    """Return the time of the database."""
    now: datetime = db.moment(db.rows(f"SELECT {db.now}")[0][0])
    return now


def _pairs_in(db: Database, column: str, where: str, after: Target, limit: int, tenant: str | None) -> list[Target]:
    of_tenant, tenant_params = ("", list[Any]()) if tenant is None else (" AND p.tenant <= %s", [tenant])
    # Each column has a separate subselect, because the planner could turn a join to the row into a join to the
    # whole table. The comparison uses an expression: with another column, SQLite uses the index for the first of
    # the two only.
    behind = f"FROM {db.table} AS p WHERE {where} AND (p.tenant, p.{column}) > ({{}}){of_tenant} ORDER BY p.tenant, p.{column} LIMIT 1"
    step = f"SELECT (SELECT p.tenant {behind}), (SELECT p.{column} {behind})"
    first, following = step.format("%s, %s", "%s, %s"), step.format(*["t.tenant || '', t.name || ''"] * 2)
    sql = (
        f"{db.hint()}WITH RECURSIVE t(tenant, name) AS ({first} UNION ALL {following} FROM t WHERE t.name IS NOT NULL)"
        " SELECT tenant, name FROM t WHERE name IS NOT NULL LIMIT %s"
    )
    params = [*after, *tenant_params, *after, *tenant_params, *tenant_params, *tenant_params, limit]
    with reading(db):
        return [Target(*row) for row in db.rows(sql, params)]


def _in_order(db: Database, selected: str, column: str, where: str, order: str, *, values: Sequence[str] = MINE) -> str:
    """Return a select of the jobs of one target or queue, in the order of their index; `values` are those of its first columns."""
    columns = [f"j.{name}" for name in ("tenant", column, "claim_rank")[: len(values)]]
    ordered = ", ".join(f"j.{name}" for name in order.split(", "))
    return f"SELECT {selected} FROM {db.table} AS j WHERE {where} AND {db.columns_equal(columns, values)} ORDER BY {ordered}"


def reading(db: Database) -> contextlib.AbstractContextManager[None]:
    """Give the planner's hint for one statement that only reads, and take it back afterwards."""
    # A hint lasts until the end of the transaction. If the caller has one open, the hint is given in a savepoint
    # and taken back; otherwise the message is a transaction by itself. With one writer at a time, there are no
    # hints, and readers do not block the writer.
    if db.is_sqlite:
        return contextlib.nullcontext()
    return db.atomic() if db.connection.in_atomic_block else db.read_committed_statement()
