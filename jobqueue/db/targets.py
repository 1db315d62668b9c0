"""The statements on the lines behind targets. Their callers hold the locks of the targets.

A target is free if none of its jobs is RUNNING, PAUSED or in ERROR, and its holder, if there is one, is parked. A
holder that is QUEUED, or waits for a time or for children, keeps the target.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from jobqueue.core.queue_rules import ServedQueues
from jobqueue.core.targets import Candidate, Target, TargetJob
from jobqueue.db import claims
from jobqueue.db.claims import in_claim_order
from jobqueue.db.database import Database
from jobqueue.db.records import Claimed, LeaseHolder

PARKED = "status = 'PENDING' AND waiting_for = 'target'"
# The text of the condition must be the same as in the index of holding and blocking jobs. Otherwise, the planner
# does not use the index.
HELD = "NOT (target = '') AND (holds_target OR status IN ('PAUSED', 'ERROR'))"

MAX_BETTER = 100


class Released(NamedTuple):
    """A job that was released from its line, for any worker to claim."""

    id: int
    queue: str
    tenant: str


def lock_candidates(db: Database, ids: Sequence[int]) -> list[Candidate]:
    """Lock those of the jobs that are QUEUED and not locked; return them."""
    condition, params = db.among(ids)
    # Check the status here: as a condition, it would lead the planner to an index full of dead entries.
    sql = f"SELECT id, claim_rank, tenant, target, status FROM {db.table} WHERE id {condition} ORDER BY id{db.skip_locked}"
    return [Candidate(*row[:4]) for row in db.rows(sql, params) if row[4] == "QUEUED"]


def target_jobs(db: Database, targets: Collection[Target]) -> list[TargetJob]:
    """Return two of the jobs that hold or block each target, the best QUEUED job and the best parked job of it.

    Two are enough to find a job other than the candidate. More are not read, because operators may have paused
    very many.
    """
    source, params = db.pairs(targets)
    columns = f"SELECT j.tenant, j.target, j.id, j.claim_rank, j.status, j.holds_target, {PARKED} FROM t"
    parts = [(HELD, 2)] + [(f"NOT (j.target = '') AND {part} ORDER BY j.claim_rank, j.id", 1) for part in ("j.status = 'QUEUED'", PARKED)]
    selects = " UNION ALL ".join(f"{columns} {_first_of(db, where, limit)}" for where, limit in parts)
    rows = db.rows(f"{db.hint()}WITH t(tenant, name) AS ({source}) {selects}", params)
    return [TargetJob._make((*row[:5], bool(row[5]), bool(row[6]))) for row in rows]


def park(db: Database, ids: Sequence[int]) -> None:
    """Park jobs that the caller has locked and found QUEUED."""
    condition, params = db.among(ids)
    db.rows(f"{db.updating()}status = 'PENDING', waiting_for = 'target' WHERE id {condition}", params)


def park_line(db: Database, targets: Collection[Target], limit: int) -> int:
    """Park up to `limit` QUEUED jobs behind targets that are held or blocked, except holders; skip locked rows."""
    source, params = db.pairs(targets)
    line = "NOT (j.target = '') AND j.status = 'QUEUED' AND NOT j.holds_target"
    sql = (f"{db.updating()}status = 'PENDING', waiting_for = 'target' WHERE id {db.id_condition} RETURNING id").format(
        f"WITH t(tenant, name) AS ({source}) SELECT j.id FROM t {_first_of(db, line, limit, db.skip_locked)} LIMIT %s"
    )
    return len(db.rows(sql, [*params, limit]))


def release(db: Database, targets: Collection[Target]) -> list[Released]:
    """Release one parked job of each free target: the parked holder, or else the best job; return the released jobs.

    A job that another transaction has locked is skipped. If the next job is released in its place, a claim finds
    that a better one is parked, and releases it first (`release_heads`).
    """
    source, params = db.pairs(targets)
    holder = _parked_holder(db, db.skip_locked_of("j"))
    best = _first(db, PARKED, " ORDER BY j.claim_rank, j.id")
    return _release(db, f"WITH t(tenant, name) AS ({source}) SELECT coalesce({holder}, {best}) FROM t WHERE {_free(db)}", params)


def release_heads(db: Database, ids: Sequence[int]) -> list[Released]:
    """Release parked jobs, each the best of a free target, except those that are locked; return the released jobs."""
    condition, params = db.among(ids)
    return _release(db, f"SELECT id FROM {db.table} WHERE id {condition} ORDER BY id{db.skip_locked}", params)


def _release(db: Database, chosen: str, params: Sequence[Any]) -> list[Released]:
    # The condition is not PARKED, which would lead the planner to the index of all parked jobs.
    sql = (
        f"{db.updating()}status = 'QUEUED', waiting_for = '', enqueued_at = {db.now} WHERE id {db.id_condition}"
        " AND waiting_for = 'target' RETURNING id, queue, tenant"
    ).format(chosen)
    return [Released(*row) for row in db.rows_under_lock(sql, params)]


def hand_over(
    db: Database, holder: LeaseHolder, targets: Collection[Target], queues: ServedQueues, excluded_queues: Sequence[str]
) -> list[Claimed]:
    """Take the next job of each free target, QUEUED or parked; return the jobs taken.

    A job is not taken if its queue is not served by `queues` or is in `excluded_queues`. Nor is it taken if a QUEUED job
    of the tenant has a higher priority and could be taken by the same rule.
    """
    return in_claim_order(map(Claimed._make, db.rows_under_lock(*handing_over(db, holder, targets, queues, excluded_queues))))


def handing_over(
    db: Database,
    holder: LeaseHolder,
    targets: Collection[Target],
    queues: ServedQueues,
    excluded_queues: Sequence[str],
    only_if: str = "TRUE",
) -> tuple[str, list[Any]]:
    """Return the statement of `hand_over`, which writes under a condition, and its parameters."""
    source, params = db.pairs(targets)
    # The best of both parts of the line, each by its own index. A holder in either part means that the target is
    # not free.
    parts = " UNION ALL ".join(
        f"SELECT * FROM ({_select(db, 'j.id, j.claim_rank', part, ' ORDER BY j.claim_rank, j.id')}) AS part"
        for part in (PARKED, "status = 'QUEUED' AND NOT (target = '')")
    )
    best = f"SELECT (SELECT id FROM ({parts}) AS line ORDER BY claim_rank, id LIMIT 1) FROM t WHERE {_free(db, HELD)}"
    better, others = _nobody_better(db, queues, excluded_queues)
    allowed, more = _in_queues(db, "j", queues, excluded_queues)
    changes, values = claims.to_running(db, holder)
    # Find and lock the job by its key alone, and check its state in the row. As conditions on the parked jobs,
    # these would lead the planner, which does not know how many jobs are parked, into the indexes of all of them.
    next_job = f"SELECT j.id FROM {db.table} AS j WHERE j.id {db.id_condition.format(best)} AND {better}{allowed}{db.skip_locked_of('j')}"
    sql = (
        f"WITH t(tenant, name) AS ({source}) {db.updating()}{changes} WHERE id {db.id_condition.format(next_job)}"
        f" AND status IN ('QUEUED', 'PENDING') AND waiting_for IN ('', 'target') AND {only_if} RETURNING {claims.claimed_columns(db)}"
    )
    return sql, [*params, *values, *others, *more]


def _nobody_better(db: Database, queues: ServedQueues, excluded_queues: Sequence[str]) -> tuple[str, list[Any]]:
    """Return the condition that no better job of the tenant is QUEUED in the queues that this worker may take from, and the parameters.

    If the worker may not take from all queues, only the first `MAX_BETTER` jobs are read, because very many may
    be queued in the other queues. A better job that is not among them waits until the hand-overs in a row end.
    """
    best = f"FROM {db.table} AS q WHERE q.status = 'QUEUED' AND q.tenant = j.tenant ORDER BY q.claim_rank, q.id LIMIT"
    counts, params = _in_queues(db, "q", queues, excluded_queues)
    rank = f"SELECT q.claim_rank {best} 1"
    if counts:
        rank = f"SELECT min(q.claim_rank) FROM (SELECT q.claim_rank, q.queue {best} {MAX_BETTER}) AS q WHERE TRUE{counts}"
    return f"coalesce(({rank}), 32767) >= j.claim_rank", params


def parked_behind_free(db: Database, after: Target, limit: int) -> tuple[list[Target], Target | None]:
    """Read `limit` targets that have parked jobs, after `after` in the order of their names.

    Return the targets that are free and have no QUEUED job, a state that only raw SQL causes, and the target to
    continue after (None: done).
    """
    first = f"SELECT tenant, target FROM {db.table} WHERE {PARKED} AND (tenant, target) > (%s, %s) ORDER BY tenant, target LIMIT 1"
    following = (
        f"SELECT p.id FROM {db.table} AS p WHERE {PARKED} AND (p.tenant, p.target) > (t.tenant || '', t.name || '')"
        " ORDER BY p.tenant, p.target LIMIT 1"
    )
    queued = _one(db, "status = 'QUEUED' AND NOT (target = '')", "")
    sql = (
        f"{db.hint()}WITH RECURSIVE t(tenant, name) AS (SELECT * FROM ({first}) AS first UNION ALL"
        f" SELECT n.tenant, n.target FROM t JOIN {db.table} AS n ON n.id = ({following}))"
        f" SELECT tenant, name, {_free(db)} AND {queued} IS NULL FROM t LIMIT %s"
    )
    rows = db.rows(sql, [*after, limit])
    seen = [Target(*row[:2]) for row in rows]
    return [target for target, row in zip(seen, rows, strict=True) if row[2]], seen[-1] if len(seen) == limit else None


def _first_of(db: Database, where: str, limit: int, lock: str = "") -> str:
    return db.first_of.format(db.table, f"j.tenant = t.tenant AND j.target = t.name AND {where}", limit, lock)


def _free(db: Database, held: str = f"{HELD} AND NOT ({PARKED})") -> str:
    # Not NOT EXISTS: for many targets, the planner would read the holders of all targets, and join.
    return f"({_select(db, '1', held, '')}) IS NULL"


def _select(db: Database, columns: str, where: str, order: str) -> str:
    return f"SELECT {columns} FROM {db.table} AS j WHERE j.tenant = t.tenant AND j.target = t.name AND {where}{order} LIMIT 1"


def _parked_holder(db: Database, lock: str) -> str:
    # Check the status in the row that is found: as a condition, it would lead the planner to the index of all
    # parked jobs.
    return f"({_select(db, f'CASE WHEN {PARKED} THEN j.id END', 'j.holds_target', '')}{lock})"


def _one(db: Database, where: str, order: str) -> str:
    return f"({_select(db, 'j.id', where, order)})"


def _first(db: Database, where: str, order: str) -> str:
    return f"({_select(db, 'j.id', where, order)}{db.skip_locked_of('j')})"


def _in_queues(db: Database, alias: str, queues: ServedQueues, excluded_queues: Sequence[str]) -> tuple[str, list[Any]]:
    """Return conditions on the queue, and their parameters."""
    (served, served_params), (others, names) = (
        rule.condition(f"{alias}.queue") for rule in (queues, ServedQueues(without=(*excluded_queues,)))
    )
    return served + others, [*served_params, *names]
