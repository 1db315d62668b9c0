"""Claim: move jobs without a target from QUEUED to RUNNING in one statement; only find jobs with one, which are decided on later."""

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
    """The statements of the claim."""

    picked: ClassVar[str] = "IN ({})"
    next_fence: ClassVar[str] = "lease_token + 1"
    not_among: ClassVar[str] = "NOT IN (SELECT value FROM json_each(%s))"  # of one parameter, a list as JSON

    def claim(
        self, lender: LeaseHolder, scope: Scope, limit: int, after: tuple[int, int] | None = None
    ) -> tuple[list[Claimed], list[Candidate]]:
        """Read the best `limit` QUEUED jobs, after the cursor `after` if there is one.

        Move those without a target to RUNNING and return them in claim order. Return those with a target unchanged.
        """
        raise NotImplementedError

    def to_running(self, lender: LeaseHolder) -> tuple[str, list[Any]]:
        """Return the assignments of a claim, and their parameters."""
        sql = (
            f"status = 'RUNNING', waiting_for = '', lease_owner = %s, lease_token = {self.next_fence}, lease_expires_at = {self.ahead},"
            f" heartbeat_at = {self.now}, attempt = attempt + 1, holds_target = (target <> ''), cancel_requested = FALSE,"
            " cancel_outcome = '', started_at = NULL, message = ''"
        )
        return sql, [lender.owner, lender.lease_seconds]

    def claimed_columns(self) -> str:
        """Return the columns of `Claimed`, JSON as text."""
        stored = (self.as_text.format(name) if name in self.json_columns else name for name in Claimed._fields if name != "expired")
        # By the database's clock; for nearly all jobs this only tests a NULL. SQLite 3.40 evaluates "first_started_at
        # IS NULL" wrongly in a RETURNING, because a generated column precedes it.
        expired = f"coalesce(expires_at <= {self.now}, FALSE) AND NOT coalesce(first_started_at <= {self.now}, FALSE)"
        return f"{', '.join(stored)}, {expired} AS expired"

    def take(self, lender: LeaseHolder, ids: Sequence[int]) -> list[Claimed]:
        """Move jobs that the caller has locked and found QUEUED to RUNNING; return them in claim order."""
        changes, values = self.to_running(lender)
        condition, picked = self.among(ids)
        sql = f"{self.updating()}{changes} WHERE id {condition} RETURNING {self.claimed_columns()}"
        return in_claim_order(map(Claimed._make, self.rows(sql, [*values, *picked])))

    def candidates(self, columns: str, scope: Scope, limit: int, after: tuple[int, int] | None) -> tuple[str, list[Any]]:
        """Return a select of the jobs to read, and its parameters."""
        most = scope.most or {}
        if not scope.queues:
            return self.best(columns, scope, None, limit, after)
        if len(scope.queues) == 1:
            queue = scope.queues[0]
            return self.best(columns, scope, queue, min(limit, most.get(queue, limit)), after)
        # Select and lock the best jobs of each queue by its own index, because a union cannot lock; then select the
        # best of all.
        each = [self.best(columns, scope, queue, min(limit, most.get(queue, limit)), after) for queue in scope.queues]
        selects, values = zip(*each, strict=True)
        union = " UNION ALL ".join(f"SELECT {columns} FROM ({select}) AS q" for select in selects)
        return f"SELECT {columns} FROM ({union}) AS best ORDER BY claim_rank, id LIMIT %s", [*itertools.chain(*values), limit]

    def best(self, columns: str, scope: Scope, queue: str | None, limit: int, after: tuple[int, int] | None) -> tuple[str, list[Any]]:
        """Return a select of the best jobs of one queue (None: of all queues), and its parameters."""
        where, order, params = self.range(scope.tenant, queue, after)
        if scope.without:  # excluded before any row is locked
            where, params = f"{where} AND target {self.not_among}", [*params, json.dumps(scope.without)]
        if scope.stuck:
            condition, stuck = self.among(scope.stuck)
            where, params = f"{where} AND NOT (id {condition})", [*params, *stuck]
        sql = f"SELECT {columns} FROM {self.table} WHERE status = 'QUEUED'{where} ORDER BY {order} LIMIT %s{self.skip_locked}"
        return sql, [*params, limit]

    def range(self, tenant: str, queue: str | None, after: tuple[int, int] | None) -> tuple[str, str, list[Any]]:
        """Return the conditions of a range in a claim index, its order, and the parameters."""
        where, params = " AND tenant = %s", [tenant, *(after or ())]
        if after is not None:
            # A row comparison is one range of the index; two conditions joined by OR are not.
            where += " AND (claim_rank, id) > (%s, %s)"
        if queue is not None:
            where, params = f"{where} AND queue = %s", [*params, queue]
        return where, "claim_rank, id", params

    # The tenants and queues that have QUEUED jobs. The statements hop from one value to the next in an index, so the
    # cost depends on `limit` only.

    def queued_tenants(self, limit: int, after: str | None = None) -> list[str]:
        """Return the tenants that have QUEUED jobs ("" for jobs without a tenant), in order, after `after` if it is given."""
        if after is not None:
            return self._hop("tenant", "status = 'QUEUED' AND tenant > %s", [after], limit)
        return self._hop("tenant", "status = 'QUEUED'", [], limit)

    def queued_places(self, limit: int, after: tuple[str, str] | None = None) -> list[tuple[str, str]]:
        """Return the pairs of tenant and queue that have QUEUED jobs, in order, after `after` if it is given."""
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
        """Return the served queues in which a tenant has QUEUED jobs, in order, after `after`, except those in `without`."""
        # The range keeps the planner on the index that begins with the tenant and continues with the queue.
        return self._hop("queue", "status = 'QUEUED' AND tenant = %s AND queue > %s", [tenant, after], limit, without, served)

    def _hop(
        self, column: str, where: str, params: list[Any], limit: int, without: Collection[str] = (), served: ServedQueues = ALL
    ) -> list[str]:
        # Filter the values at the end. A filter inside each hop would read all entries of the queues that are
        # excluded.
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
