"""Claim: one statement moves jobs without a target from QUEUED to RUNNING.

It only finds jobs with a target, and the caller decides on them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Sequence
from typing import Any

from jobqueue.core.queue_rules import ALL, ServedQueues
from jobqueue.core.targets import Candidate
from jobqueue.db.database import Database
from jobqueue.db.records import Claimed, LeaseHolder, Scope

JSON_COLUMNS = frozenset({"args", "kwargs", "options", "metadata"})
# The columns of `Claimed` for a job with a target, which the claim only finds. Most are placeholders.
PLACEHOLDER_COLUMNS = "id, claim_rank, 0, 0, 0, 0, 0, '', '', tenant, target, '', '', '', '', '', '', FALSE"


def claim(
    db: Database, holder: LeaseHolder, scope: Scope, limit: int, after: tuple[int, int] | None = None
) -> tuple[list[Claimed], list[Candidate]]:
    """Read the best `limit` QUEUED jobs, after the cursor `after` if there is one.

    Move those without a target to RUNNING and return them in claim order. Return those with a target unchanged.
    """
    selected, params = select_candidates(db, "id, claim_rank, tenant, target", scope, limit, after)
    if db.is_sqlite:
        with db.atomic():
            candidates = [Candidate(*row) for row in db.rows(selected, params)]
            plain = [candidate.id for candidate in candidates if not candidate.target]
            claimed = take(db, holder, plain) if plain else []
        return claimed, [candidate for candidate in candidates if candidate.target]
    changes, values = to_running(db, holder)
    # Materialized: otherwise, some plans would lock more rows than the limit, or lock a row twice.
    sql = (
        f"{db.hint()}WITH c AS MATERIALIZED ({selected}), taken AS ({db.updating()}{changes}"
        f" WHERE id = ANY(ARRAY(SELECT id FROM c WHERE target = '')) RETURNING {claimed_columns(db)})"
        f" SELECT * FROM taken UNION ALL SELECT {PLACEHOLDER_COLUMNS} FROM c WHERE target <> ''"
    )
    with db.read_committed_statement():
        rows = list(map(Claimed._make, db.rows(sql, [*params, *values])))
    with_target = [Candidate(row.id, row.claim_rank, row.tenant, row.target) for row in rows if row.target]
    return in_claim_order(row for row in rows if not row.target), with_target


def to_running(db: Database, holder: LeaseHolder) -> tuple[str, list[Any]]:
    """Return the assignments of a claim, and their parameters."""
    sql = (
        f"status = 'RUNNING', waiting_for = '', lease_owner = %s, lease_token = {db.next_fence}, lease_expires_at = {db.seconds_from_now},"
        f" heartbeat_at = {db.now}, attempt = attempt + 1, holds_target = (target <> ''), cancel_requested = FALSE,"
        " cancel_outcome = '', started_at = NULL, message = ''"
    )
    return sql, [holder.owner, holder.lease_seconds]


def claimed_columns(db: Database) -> str:
    """Return the columns of `Claimed`, JSON as text."""
    stored = (db.as_text.format(name) if name in JSON_COLUMNS else name for name in Claimed._fields if name != "expired")
    # By the database's clock; for nearly all jobs this only tests a NULL. SQLite 3.40 evaluates "first_started_at
    # IS NULL" wrongly in a RETURNING, because a generated column precedes it.
    expired = f"coalesce(expires_at <= {db.now}, FALSE) AND NOT coalesce(first_started_at <= {db.now}, FALSE)"
    return f"{', '.join(stored)}, {expired} AS expired"


def take(db: Database, holder: LeaseHolder, ids: Sequence[int]) -> list[Claimed]:
    """Move jobs that the caller has locked and found QUEUED to RUNNING; return them in claim order."""
    changes, values = to_running(db, holder)
    condition, picked = db.among(ids)
    sql = f"{db.updating()}{changes} WHERE id {condition} RETURNING {claimed_columns(db)}"
    return in_claim_order(map(Claimed._make, db.rows(sql, [*values, *picked])))


def select_candidates(db: Database, columns: str, scope: Scope, limit: int, after: tuple[int, int] | None) -> tuple[str, list[Any]]:
    """Return a select of the jobs to read, and its parameters."""
    most = scope.most or {}
    if not scope.queues:
        return select_best(db, columns, scope, None, limit, after)
    if len(scope.queues) == 1:
        queue = scope.queues[0]
        return select_best(db, columns, scope, queue, min(limit, most.get(queue, limit)), after)
    # Select and lock the best jobs of each queue by its own index, because a union cannot lock; then select the
    # best of all.
    each = [select_best(db, columns, scope, queue, min(limit, most.get(queue, limit)), after) for queue in scope.queues]
    selects, values = zip(*each, strict=True)
    union = " UNION ALL ".join(f"SELECT {columns} FROM ({select}) AS q" for select in selects)
    return f"SELECT {columns} FROM ({union}) AS best ORDER BY claim_rank, id LIMIT %s", [*itertools.chain(*values), limit]


def select_best(
    db: Database, columns: str, scope: Scope, queue: str | None, limit: int, after: tuple[int, int] | None
) -> tuple[str, list[Any]]:
    """Return a select of the best jobs of one queue (None: of all queues), and its parameters."""
    where, order, params = db.range(scope.tenant, queue, after)
    if scope.without:  # as a condition here, so that their rows are not locked
        where, params = f"{where} AND target {db.not_among}", [*params, json.dumps(scope.without)]
    if scope.stuck:
        condition, stuck = db.among(scope.stuck)
        where, params = f"{where} AND NOT (id {condition})", [*params, *stuck]
    sql = f"SELECT {columns} FROM {db.table} WHERE status = 'QUEUED'{where} ORDER BY {order} LIMIT %s{db.skip_locked}"
    return sql, [*params, limit]


def queued_tenants(db: Database, limit: int, after: str | None = None) -> list[str]:
    """Return the tenants that have QUEUED jobs ("" for jobs without a tenant), in order, after `after` if it is given."""
    if after is not None:
        return distinct_values(db, "tenant", "status = 'QUEUED' AND tenant > %s", [after], limit)
    return distinct_values(db, "tenant", "status = 'QUEUED'", [], limit)


def queued_places(db: Database, limit: int, after: tuple[str, str] | None = None) -> list[tuple[str, str]]:
    """Return up to `limit` pairs of tenant and queue that have QUEUED jobs, in order, after `after` if it is given."""
    beyond = "" if after is None else " AND (tenant, queue) > (%s, %s)"
    first = f"SELECT tenant, queue FROM {db.table} WHERE status = 'QUEUED'{beyond} ORDER BY tenant, queue LIMIT 1"
    following = (
        f"SELECT p.id FROM {db.table} AS p WHERE p.status = 'QUEUED' AND (p.tenant, p.queue) > (t.tenant || '', t.queue || '')"
        " ORDER BY p.tenant, p.queue LIMIT 1"
    )
    sql = (
        f"{db.hint()}WITH RECURSIVE t(tenant, queue) AS (SELECT * FROM ({first}) AS first UNION ALL"
        f" SELECT n.tenant, n.queue FROM t JOIN {db.table} AS n ON n.id = ({following})) SELECT tenant, queue FROM t LIMIT %s"
    )
    return [(row[0], row[1]) for row in db.rows(sql, [*(after or ()), limit])]


def queued_queues(
    db: Database, limit: int, tenant: str = "", after: str = "", without: Collection[str] = (), served: ServedQueues = ALL
) -> list[str]:
    """Return the served queues in which a tenant has QUEUED jobs, in order, after `after`, except those in `without`."""
    # The range keeps the planner on the index that begins with the tenant and continues with the queue.
    return distinct_values(db, "queue", "status = 'QUEUED' AND tenant = %s AND queue > %s", [tenant, after], limit, without, served)


def distinct_values(
    db: Database, column: str, where: str, params: list[Any], limit: int, without: Collection[str] = (), served: ServedQueues = ALL
) -> list[str]:
    """Return up to `limit` values of the first column of an index, except those in `without` and those that are not served."""
    # Filter the values at the end. A filter inside each hop would read all entries of the queues that are
    # excluded.
    others, names = (f" AND value {db.not_among}", [json.dumps([*without])]) if without else ("", [])
    wanted, served_params = served.condition("value")
    first = f"SELECT {column} FROM {db.table} WHERE {where}"
    sql = (
        f"{db.hint()}WITH RECURSIVE hop(value) AS (SELECT * FROM ({first} ORDER BY {column} LIMIT 1) AS first UNION ALL"
        f" SELECT ({first} AND {column} > hop.value ORDER BY {column} LIMIT 1) FROM hop WHERE hop.value IS NOT NULL)"
        f" SELECT value FROM hop WHERE value IS NOT NULL{others}{wanted} LIMIT %s"
    )
    return [row[0] for row in db.rows(sql, [*params, *params, *names, *served_params, limit])]


def in_claim_order(jobs: Any) -> list[Claimed]:
    """Return claimed jobs, best first."""
    return sorted(jobs, key=_claim_order)


def _claim_order(job: Claimed) -> tuple[int, int]:
    return (job.claim_rank, job.id)
