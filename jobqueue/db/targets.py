"""The statements on the lines behind targets. Their callers hold the locks of the targets.

A target is free if no job of it is RUNNING, PAUSED or in ERROR, and no holder is QUEUED or waits for a time or for
children. Of the jobs that hold or block it, only a parked holder leaves it free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

from jobqueue.core.queue_rules import ServedQueues
from jobqueue.core.targets import Candidate, Standing, Target
from jobqueue.db.claims import Claims, in_claim_order
from jobqueue.db.records import Claimed, LeaseHolder, Relayed, RunEnd

PARKED = "status = 'PENDING' AND waiting_for = 'target'"
# The condition must equal that of the index of holding and blocking jobs word for word, or no planner uses the index.
HELD = "NOT (target = '') AND (holds_target OR status IN ('PAUSED', 'ERROR'))"

MAX_BETTER = 100


class Released(NamedTuple):
    """A job that was released from its line, for any worker to claim."""

    id: int
    queue: str
    tenant: str


class Targets(Claims):
    """The statements that read lines, park, release and hand over."""

    # The first few rows of each target, with a condition and a limit. The limit keeps the planner from reading the
    # rows of all targets.
    first_of: ClassVar[str] = "JOIN {0} AS j ON j.id IN (SELECT j.id FROM {0} AS j WHERE {1} LIMIT {2})"

    # Locks: a database with one writer at a time needs none

    def try_locks(self, keys: Sequence[int]) -> set[int]:
        """Take the locks that are free until the end of the transaction, in this order, without waiting; return their keys."""
        return set(keys)

    def wait_for_locks(self, keys: Sequence[int]) -> None:
        """Take locks until the end of the transaction, in this order, and wait for each."""

    # Read

    def lock_candidates(self, ids: Sequence[int]) -> list[Candidate]:
        """Lock those of the jobs that are QUEUED and not locked; return them."""
        condition, params = self.among(ids)
        # Judge the status here: as a condition, it would lead the planner to an index full of dead entries.
        sql = f"SELECT id, claim_rank, tenant, target, status FROM {self.table} WHERE id {condition} ORDER BY id{self.skip_locked}"
        return [Candidate(*row[:4]) for row in self.rows(sql, params) if row[4] == "QUEUED"]

    def standings(self, targets: Collection[Target]) -> list[Standing]:
        """Return two of the jobs that hold or block each target, and the best job that is QUEUED behind it.

        Two are enough to find one other than the candidate, and operators may have paused very many.
        """
        source, params = self.pairs(targets)
        mine = "j.tenant = t.tenant AND j.target = t.name"
        sql = (
            f"{self.hint()}WITH t(tenant, name) AS ({source})"
            f" SELECT j.tenant, j.target, j.id, j.status, j.holds_target FROM t {self._first_of(HELD, 2)}"
            f" UNION ALL SELECT t.tenant, t.name, (SELECT j.id FROM {self.table} AS j WHERE {mine} AND NOT (j.target = '')"
            " AND j.status = 'QUEUED' ORDER BY j.claim_rank, j.id LIMIT 1), 'QUEUED', FALSE FROM t"
        )
        return [Standing(row[0], row[1], row[2], row[3], bool(row[4])) for row in self.rows(sql, params) if row[2] is not None]

    # Park and release

    def park(self, ids: Sequence[int]) -> None:
        """Park jobs that the caller has locked and found QUEUED."""
        condition, params = self.among(ids)
        self.rows(f"{self.updating()}status = 'PENDING', waiting_for = 'target' WHERE id {condition}", params)

    def park_line(self, targets: Collection[Target], limit: int) -> int:
        """Park up to `limit` QUEUED jobs behind targets that are held or blocked, except holders; skip locked rows."""
        source, params = self.pairs(targets)
        line = "NOT (j.target = '') AND j.status = 'QUEUED' AND NOT j.holds_target"
        sql = (f"{self.updating()}status = 'PENDING', waiting_for = 'target' WHERE id {self.picked} RETURNING id").format(
            f"WITH t(tenant, name) AS ({source}) SELECT j.id FROM t {self._first_of(line, limit, self.skip_locked)} LIMIT %s"
        )
        return len(self.rows(sql, [*params, limit]))

    def release(self, targets: Collection[Target]) -> list[Released]:
        """Release one parked job of each free target: the parked holder, or else the best job; return the released jobs."""
        source, params = self.pairs(targets)
        holder = self._parked_holder(self.skip_locked_of("j"))
        best = self._first(PARKED, " ORDER BY j.claim_rank, j.id")
        sql = (
            f"{self.updating()}status = 'QUEUED', waiting_for = '', enqueued_at = {self.now} WHERE id {self.picked}"
            f" AND {PARKED} RETURNING id, queue, tenant"
        ).format(f"WITH t(tenant, name) AS ({source}) SELECT coalesce({holder}, {best}) FROM t WHERE {self._free()}")
        return [Released(*row) for row in self.often(sql, params)]

    def hand_over(self, lender: LeaseHolder, targets: Collection[Target], queues: ServedQueues, closed: Sequence[str]) -> list[Claimed]:
        """Take the next job of each free target, QUEUED or parked; return the jobs taken.

        A job is not taken if its queue is not served by `queues` or is in `closed`. Nor is it taken if a QUEUED job
        of the tenant has a higher priority and could be taken by the same rule.
        """
        return in_claim_order(map(Claimed._make, self.often(*self.handing_over(lender, targets, queues, closed))))

    def handing_over(
        self, lender: LeaseHolder, targets: Collection[Target], queues: ServedQueues, closed: Sequence[str], only_if: str = "TRUE"
    ) -> tuple[str, list[Any]]:
        """Return the statement of `hand_over`, which writes under a condition, and its parameters."""
        source, params = self.pairs(targets)
        # The best of both parts of the line, each by its own index. A holder in either part means that the target is
        # not free.
        parts = " UNION ALL ".join(
            f"SELECT * FROM ({self._select('j.id, j.claim_rank', part, ' ORDER BY j.claim_rank, j.id')}) AS part"
            for part in (PARKED, "status = 'QUEUED' AND NOT (target = '')")
        )
        best = f"SELECT (SELECT id FROM ({parts}) AS line ORDER BY claim_rank, id LIMIT 1) FROM t WHERE {self._free(HELD)}"
        better, others = self._nobody_better(queues, closed)
        allowed, more = self._in_queues("j", queues, closed)
        changes, values = self.to_running(lender)
        # Find and lock the job by its key alone, and check its state in the row. As conditions on the parked jobs,
        # these would lead the planner, which does not know how many jobs are parked, into the indexes of all of them.
        mine = f"SELECT j.id FROM {self.table} AS j WHERE j.id {self.picked.format(best)} AND {better}{allowed}{self.skip_locked_of('j')}"
        sql = (
            f"WITH t(tenant, name) AS ({source}) {self.updating()}{changes} WHERE id {self.picked.format(mine)}"
            f" AND status IN ('QUEUED', 'PENDING') AND waiting_for IN ('', 'target') AND {only_if} RETURNING {self.claimed_columns()}"
        )
        return sql, [*params, *values, *others, *more]

    def _nobody_better(self, queues: ServedQueues, closed: Sequence[str]) -> tuple[str, list[Any]]:
        """Return the condition that no better job of the tenant is QUEUED in some queues, and the parameters.

        If not all queues count, only the first few jobs are read, because very many may be queued in queues that do
        not count. A better job that is not among them waits until the chain ends.
        """
        best = f"FROM {self.table} AS q WHERE q.status = 'QUEUED' AND q.tenant = j.tenant ORDER BY q.claim_rank, q.id LIMIT"
        counts, params = self._in_queues("q", queues, closed)
        rank = f"SELECT q.claim_rank {best} 1"
        if counts:
            rank = f"SELECT min(q.claim_rank) FROM (SELECT q.claim_rank, q.queue {best} {MAX_BETTER}) AS q WHERE TRUE{counts}"
        return f"coalesce(({rank}), 32767) >= j.claim_rank", params

    def relay(self, end: RunEnd, hand_over: tuple[LeaseHolder, Target, ServedQueues, Sequence[str]]) -> Relayed | None:
        """Lock one target, end its job with success and take over the next in one message; return None if this connection cannot."""
        return None

    def parked_behind_free(self, after: Target, limit: int) -> tuple[list[Target], Target | None]:
        """Read `limit` targets that have parked jobs, after `after` in the order of their names.

        Return the targets that are free and have no QUEUED job, a state that only raw SQL causes, and the target to
        continue after (None: done).
        """
        first = f"SELECT tenant, target FROM {self.table} WHERE {PARKED} AND (tenant, target) > (%s, %s) ORDER BY tenant, target LIMIT 1"
        following = (
            f"SELECT p.id FROM {self.table} AS p WHERE {PARKED} AND (p.tenant, p.target) > (t.tenant || '', t.name || '')"
            " ORDER BY p.tenant, p.target LIMIT 1"
        )
        queued = self._one("status = 'QUEUED' AND NOT (target = '')", "")
        sql = (
            f"{self.hint()}WITH RECURSIVE t(tenant, name) AS (SELECT * FROM ({first}) AS first UNION ALL"
            f" SELECT n.tenant, n.target FROM t JOIN {self.table} AS n ON n.id = ({following}))"
            f" SELECT tenant, name, {self._free()} AND {queued} IS NULL FROM t LIMIT %s"
        )
        rows = self.rows(sql, [*after, limit])
        seen = [Target(*row[:2]) for row in rows]
        return [target for target, row in zip(seen, rows, strict=True) if row[2]], seen[-1] if len(seen) == limit else None

    # Pieces

    def pairs(self, targets: Iterable[Target]) -> tuple[str, list[Any]]:
        """Return targets as rows (tenant, name), and the parameters."""
        found = list(targets)
        return f"VALUES {', '.join('(%s, %s)' for _ in found)}", [text for target in found for text in target]

    def skip_locked_of(self, alias: str) -> str:
        """Return the clause that locks the rows of one table of a join and skips locked ones."""
        return ""

    def _first_of(self, where: str, limit: int, lock: str = "") -> str:
        return self.first_of.format(self.table, f"j.tenant = t.tenant AND j.target = t.name AND {where}", limit, lock)

    def _free(self, held: str = f"{HELD} AND NOT ({PARKED})") -> str:
        # Not NOT EXISTS: for many targets, the planner would read the holders of all targets, and join.
        return f"({self._select('1', held, '')}) IS NULL"

    def _select(self, columns: str, where: str, order: str) -> str:
        return f"SELECT {columns} FROM {self.table} AS j WHERE j.tenant = t.tenant AND j.target = t.name AND {where}{order} LIMIT 1"

    def _parked_holder(self, lock: str) -> str:
        # Check the status in the row that is found: as a condition, it would lead the planner to the index of all
        # parked jobs.
        return f"({self._select(f'CASE WHEN {PARKED} THEN j.id END', 'j.holds_target', '')}{lock})"

    def _one(self, where: str, order: str) -> str:
        return f"({self._select('j.id', where, order)})"

    def _first(self, where: str, order: str) -> str:
        return f"({self._select('j.id', where, order)}{self.skip_locked_of('j')})"

    def _in_queues(self, alias: str, queues: ServedQueues, closed: Sequence[str]) -> tuple[str, list[Any]]:
        """Return conditions on the queue, and their parameters."""
        (served, its), (others, names) = (rule.condition(f"{alias}.queue") for rule in (queues, ServedQueues(without=(*closed,))))
        return served + others, [*its, *names]
