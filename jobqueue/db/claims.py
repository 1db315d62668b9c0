"""Claim: from QUEUED to RUNNING, the jobs without a target in one statement; those with one are only found, and decided on later."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Sequence
from typing import Any, ClassVar

from jobqueue.core.queue_rules import ALL, ServedQueues
from jobqueue.core.targets import Candidate
from jobqueue.db.records import Claimed, LeaseHolder, Scope
from jobqueue.db.statements import Statements


class Claims(Statements):
    """Run the statements of the claim."""

    picked: ClassVar[str] = "IN ({})"
    next_fence: ClassVar[str] = "lease_token + 1"
    not_among: ClassVar[str] = "NOT IN (SELECT value FROM json_each(%s))"  # of one parameter, a list as JSON

    def claim(
        self, lender: LeaseHolder, scope: Scope, limit: int, after: tuple[int, int] | None = None
    ) -> tuple[list[Claimed], list[Candidate]]:
        """Look at the best `limit` QUEUED jobs, behind the cursor `after` where there is one.

        Move those without a target to RUNNING; return them in claim order, and those with one, which are left as they are.
        """
        raise NotImplementedError

    def to_running(self, lender: LeaseHolder) -> tuple[str, list[Any]]:
        """Return what a claim sets, and the parameters."""
        sql = (
            f"status = 'RUNNING', waiting_for = '', lease_owner = %s, lease_token = {self.next_fence}, lease_expires_at = {self.ahead},"
            f" heartbeat_at = {self.now}, attempt = attempt + 1, holds_target = (target <> ''), cancel_requested = FALSE,"
            " cancel_outcome = '', started_at = NULL, message = ''"
        )
        return sql, [lender.owner, lender.lease_seconds]

    def claimed_columns(self) -> str:
        """Return the columns of `Claimed`, JSON as text."""
        stored = (self.as_text.format(name) if name in self.json_columns else name for name in Claimed._fields if name != "expired")
        # By the database's clock; for nearly all jobs it is one look at a NULL. SQLite 3.40 answers "first_started_at IS NULL" wrongly in a
        # RETURNING, since a generated column precedes it.
        expired = f"coalesce(expires_at <= {self.now}, FALSE) AND NOT coalesce(first_started_at <= {self.now}, FALSE)"
        return f"{', '.join(stored)}, {expired} AS expired"

    def take(self, lender: LeaseHolder, ids: Sequence[int]) -> list[Claimed]:
        """Move jobs that the caller has locked and found QUEUED to RUNNING; return them in claim order."""
        changes, values = self.to_running(lender)
        condition, picked = self.among(ids)
        sql = f"{self.updating()}{changes} WHERE id {condition} RETURNING {self.claimed_columns()}"
        return in_claim_order(map(Claimed._make, self.rows(sql, [*values, *picked])))

    def candidates(self, columns: str, scope: Scope, limit: int, after: tuple[int, int] | None) -> tuple[str, list[Any]]:
        """Return a select of the jobs to look at, and its parameters."""
        most = scope.most or {}
        if not scope.queues:
            return self.best(columns, scope, None, limit, after)
        if len(scope.queues) == 1:
            queue = scope.queues[0]
            return self.best(columns, scope, queue, min(limit, most.get(queue, limit)), after)
        # The best few of each queue by its own index, locked there since a union cannot lock; then the best of all.
        each = [self.best(columns, scope, queue, min(limit, most.get(queue, limit)), after) for queue in scope.queues]
        selects, values = zip(*each, strict=True)
        union = " UNION ALL ".join(f"SELECT {columns} FROM ({select}) AS q" for select in selects)
        return f"SELECT {columns} FROM ({union}) AS best ORDER BY claim_rank, id LIMIT %s", [*itertools.chain(*values), limit]

    def best(self, columns: str, scope: Scope, queue: str | None, limit: int, after: tuple[int, int] | None) -> tuple[str, list[Any]]:
        """Return a select of the best jobs of one queue (None: of all), and its parameters."""
        where, order, params = self.range(scope.tenant, queue, after)
        if scope.without:  # left out before any row is locked
            where, params = f"{where} AND target {self.not_among}", [*params, json.dumps(scope.without)]
        if scope.stuck:
            condition, stuck = self.among(scope.stuck)
            where, params = f"{where} AND NOT (id {condition})", [*params, *stuck]
        sql = f"SELECT {columns} FROM {self.table} WHERE status = 'QUEUED'{where} ORDER BY {order} LIMIT %s{self.skip_locked}"
        return sql, [*params, limit]

    def range(self, tenant: str, queue: str | None, after: tuple[int, int] | None) -> tuple[str, str, list[Any]]:
        """Return which part of a claim index to walk, in which order, and the parameters."""
        where, params = " AND tenant = %s", [tenant, *(after or ())]
        if after is not None:
            # A row comparison is one range of the index; two conditions joined by OR are not.
            where += " AND (claim_rank, id) > (%s, %s)"
        if queue is not None:
            where, params = f"{where} AND queue = %s", [*params, queue]
        return where, "claim_rank, id", params

    # Who has something queued: hops from one value to the next in an index, so that the cost grows with `limit` only

    def queued_tenants(self, limit: int, after: str | None = None) -> list[str]:
        """Return the tenants that have QUEUED jobs ("" stands for jobs without one), in order, behind `after` where there is one."""
        if after is not None:
            return self._hop("tenant", "status = 'QUEUED' AND tenant > %s", [after], limit)
        return self._hop("tenant", "status = 'QUEUED'", [], limit)

    def queued_places(self, limit: int, after: tuple[str, str] | None = None) -> list[tuple[str, str]]:
        """Return the tenants and queues that have QUEUED jobs, in order, behind `after` where there is one."""
        beyond = "" if after is None else " AND (tenant, queue) > (%s, %s)"
        first = f"SELECT tenant, queue FROM {self.table} WHERE status = 'QUEUED'{beyond} ORDER BY tenant, queue LIMIT 1"
        following = (
            f"SELECT p.id FROM {self.table} AS p WHERE p.status = 'QUEUED' AND (p.tenant, p.queue) > (t.tenant || '', t.queue || '')"
            " ORDER BY p.tenant, p.queue LIMIT 1"
        )
        sql = (
            f"{self.hint()}WITH RECURSIVE t(tenant, queue) AS (SELECT * FROM ({first}) AS first UNION ALL"
            f" SELECT n.tenant, n.queue FROM t JOIN {self.table} AS n ON n.id = ({following})) SELECT tenant, queue FROM t LIMIT %s"
        )
        return [(row[0], row[1]) for row in self.rows(sql, [*(after or ()), limit])]

    def queued_queues(
        self, limit: int, tenant: str = "", after: str = "", without: Collection[str] = (), served: ServedQueues = ALL
    ) -> list[str]:
        """Return the served queues in which a tenant has QUEUED jobs, in order, behind `after`, but none of `without`."""
        # The range keeps the planner on the index that begins with the tenant and goes on with the queue.
        return self._hop("queue", "status = 'QUEUED' AND tenant = %s AND queue > %s", [tenant, after], limit, without, served)

    def _hop(
        self, column: str, where: str, params: list[Any], limit: int, without: Collection[str] = (), served: ServedQueues = ALL
    ) -> list[str]:
        # They are hopped over and not asked for in each hop, which would walk over all that is queued there.
        others, names = (f" AND value {self.not_among}", [json.dumps([*without])]) if without else ("", [])
        wanted, its = served.condition("value")
        first = f"SELECT {column} FROM {self.table} WHERE {where}"
        sql = (
            f"{self.hint()}WITH RECURSIVE hop(value) AS (SELECT * FROM ({first} ORDER BY {column} LIMIT 1) AS first UNION ALL"
            f" SELECT ({first} AND {column} > hop.value ORDER BY {column} LIMIT 1) FROM hop WHERE hop.value IS NOT NULL)"
            f" SELECT value FROM hop WHERE value IS NOT NULL{others}{wanted} LIMIT %s"
        )
        return [row[0] for row in self.rows(sql, [*params, *params, *names, *its, limit])]


def in_claim_order(jobs: Any) -> list[Claimed]:
    """Return claimed jobs, best first."""
    return sorted(jobs, key=_claim_order)


def _claim_order(job: Claimed) -> tuple[int, int]:
    return (job.claim_rank, job.id)
