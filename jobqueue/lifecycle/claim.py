"""Claim: take jobs for a worker process.

One statement takes jobs without a target, and finds those with a target. A separate transaction takes the locks of
the targets, and then locks the jobs again. A statement that begins after the locks are taken reads the state of each
target. `core.targets.decide` then decides which jobs run and which are parked. If a limit is set, all of this happens
in one transaction that holds the lock of the limit.

If a statement violates a constraint, one row is bad. The rows are then taken one by one. The bad row is set aside as
ERROR with the reason, and so does not block the jobs after it. A row that cannot be changed at all is `stuck`: the
caller excludes it from its next claims (`Scope.stuck`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from jobqueue import db
from jobqueue.core import states
from jobqueue.core import targets as line
from jobqueue.core.targets import Candidate
from jobqueue.db import Claimed, Lease, LeaseHolder, Scope, claims
from jobqueue.db import targets as targets_sql
from jobqueue.lifecycle import aside
from jobqueue.lifecycle.expire import Expired
from jobqueue.lifecycle.limits import Limits, room
from jobqueue.lifecycle.release import release_heads
from jobqueue.models import Job

PARKED_AT_ONCE = 2000


class Claim(NamedTuple):
    """The result of a claim: the jobs taken, the cursor, how many jobs it read, parked and released, and the jobs that it found lost.

    `last` is the cursor: the key of the last job that the claim read. `busy` are the targets that the claim skipped,
    because another transaction had locked them or their next job. `full` are the queues whose limits left no room for
    any job ("" for the limit of all jobs). `stuck` are the jobs whose rows cannot be changed.
    """

    jobs: list[Claimed]
    last: tuple[int, int] | None = None
    seen: int = 0
    parked_or_released: int = 0
    lost: Sequence[Expired] = ()
    busy: frozenset[str] = frozenset()
    full: frozenset[str] = frozenset()
    stuck: tuple[int, ...] = ()

    @property
    def moved(self) -> bool:
        """Whether the claim took, parked or released any job."""
        return bool(self.jobs) or self.parked_or_released > 0


def claim(holder: LeaseHolder, scope: Scope, limit: int, after: tuple[int, int] | None = None, limits: Limits | None = None) -> Claim:
    """Read the best `limit` QUEUED jobs of the scope and take those that may run; `after` is the cursor to start after."""
    if limits:
        return _limited(holder, scope, limit, limits)
    database = Job.objects.database
    try:
        plain, targeted = claims.claim(database, holder, scope, limit, after)
    except Exception as error:
        if not db.is_refusal(error):
            raise
        return _one_by_one(holder, scope, limit)
    if not targeted:
        return _claim(plain, TargetedClaim([]), targeted)
    ids = [candidate.id for candidate in targeted]
    try:
        with database.atomic():
            behind = _take_targeted(holder, targeted)
    except Exception as error:
        if not db.is_refusal(error):
            raise
        tried = _take_each(holder, ids)
        return _claim(plain, TargetedClaim(tried.jobs), targeted)._replace(stuck=tried.stuck)
    return _claim(plain, behind, targeted)


class TargetedClaim(NamedTuple):
    """The jobs with a target that were taken, how many were parked or released, and the targets that other transactions have locked."""

    jobs: list[Claimed]
    parked_or_released: int = 0
    busy: frozenset[str] = frozenset()


def _claim(plain: list[Claimed], behind: TargetedClaim, targeted: Sequence[Candidate], lost: Sequence[Expired] = ()) -> Claim:
    keys = [(job.claim_rank, job.id) for job in plain] + [(job.claim_rank, job.id) for job in targeted]
    jobs = sorted([*plain, *behind.jobs], key=lambda job: (job.claim_rank, job.id)) if behind.jobs else plain
    return Claim(jobs, max(keys, default=None), len(keys), behind.parked_or_released, lost, behind.busy)


def _limited(holder: LeaseHolder, scope: Scope, limit: int, limits: Limits) -> Claim:
    database = Job.objects.database
    try:
        with database.atomic():
            # Take the locks of limits first, while this transaction holds no other lock, so that waiting for them
            # blocks no other transaction.
            free, scope, lost = room(limits, scope, limit)
            full = frozenset(name for name, most in (scope.most or {}).items() if most <= 0)
            if free <= 0:
                return Claim([], lost=lost, full=full)
            plain, targeted = claims.claim(database, holder, scope, free)
            behind = _take_targeted(holder, targeted) if targeted else TargetedClaim([])
    except Exception as error:
        if not db.is_refusal(error):
            raise
        return _one_by_one(holder, scope, limit, limits)
    return _claim(plain, behind, targeted, lost)._replace(full=full)


def _take_targeted(holder: LeaseHolder, targeted: Sequence[Candidate]) -> TargetedClaim:
    """Lock the jobs that a claim has found, take or park them, and park the lines behind them. The caller has opened a transaction."""
    candidates, busy = _lock(targeted)
    return _take_or_park(holder, candidates, busy) if candidates else TargetedClaim([], 0, busy)


def _lock(candidates: Sequence[Candidate]) -> tuple[list[Candidate], frozenset[str]]:
    """Lock the targets that are free, and their jobs that are still QUEUED; return these jobs, and the names of the other targets."""
    database = Job.objects.database
    # Targets first: a row that was parked meanwhile must not be locked, because the end of the run before it, which
    # has the lock of the target, would skip the row. Do not wait: with a limit, the claim has locked its rows already,
    # and another transaction with the lock of a target may wait for one of them.
    targets = {candidate.tenant_target for candidate in candidates}
    keys = database.try_locks(line.in_lock_order(targets))
    locked = {target for target in targets if target.key in keys}
    ids = [candidate.id for candidate in candidates if candidate.tenant_target in locked]
    return targets_sql.lock_candidates(database, ids) if ids else [], frozenset(target.name for target in targets - locked)


def _take_or_park(
    holder: LeaseHolder, candidates: Sequence[Candidate], busy: frozenset[str] = frozenset(), *, alone: bool = False
) -> TargetedClaim:
    """Take or park locked candidates, and park the lines behind them unless `alone`."""
    database = Job.objects.database
    # A separate statement after the locks, so that its snapshot shows all that the previous holders of the locks
    # committed.
    decision = line.decide(candidates, targets_sql.target_jobs(database, {candidate.tenant_target for candidate in candidates}))
    blocked = release_heads(decision.release) if decision.release else set()
    if decision.park:
        states.check(states.QUEUED, states.PENDING_TARGET)
        targets_sql.park(database, decision.park)
    taken = claims.take(database, holder, decision.take) if decision.take else []
    moved = len(decision.park) + len(decision.release) - len(blocked)
    if decision.crowded and not alone:  # if a row of the line is bad, the error must not seem to be that of the candidate
        moved += targets_sql.park_line(database, decision.crowded, PARKED_AT_ONCE)
    return TargetedClaim(taken, moved, busy | {target.name for target in blocked})


def _one_by_one(holder: LeaseHolder, scope: Scope, limit: int, limits: Limits | None = None) -> Claim:
    queued = Job.objects.current.filter(status=states.Status.QUEUED, tenant=scope.tenant).in_queues(scope.queues)
    if scope.stuck:
        queued = queued.exclude(pk__in=scope.stuck)
    ids = list(queued.order_by("claim_rank", "pk").values_list("pk", flat=True)[:limit])
    return _take_each(holder, ids, limits)


@dataclass
class RefusedJobs:
    """The jobs that could not be taken: the number of those that were set aside, and the jobs that could not even be set aside."""

    aside: int = 0
    stuck: list[int] = field(default_factory=list)


def _take_each(holder: LeaseHolder, ids: Sequence[int], limits: Limits | None = None) -> Claim:
    """Take jobs one by one. A job that is set aside counts as seen, so that the caller continues immediately."""
    refused = RefusedJobs()
    claimed = _claim([job for job_id in ids for job in _take_one(holder, job_id, refused, limits)], TargetedClaim([]), [])
    return claimed._replace(seen=claimed.seen + refused.aside, stuck=tuple(refused.stuck))


def _take_one(holder: LeaseHolder, job_id: int, refused: RefusedJobs, limits: Limits | None = None) -> list[Claimed]:
    """Take one QUEUED job that no other transaction has locked, or set it aside if its row is bad."""
    database = Job.objects.database
    with database.atomic():
        row = Job.objects.current.filter(pk=job_id).values_list("claim_rank", "tenant", "target", "queue").first()
        if row is None or (limits and room(limits, Scope(row[1], (row[3],)), 1)[0] < 1):
            return []
        candidate = Candidate(job_id, *row[:3])
        candidates = _lock([candidate])[0] if candidate.target else targets_sql.lock_candidates(database, [job_id])
        if not candidates:
            return []
        try:
            with database.atomic():  # the savepoint to which a bad row is rolled back
                if candidate.target:
                    return _take_or_park(holder, candidates, alone=True).jobs
                return claims.take(database, holder, [job_id])
        except Exception as error:
            if not db.is_refusal(error):
                raise
            token = Job.objects.current.values_list("lease_token", flat=True).get(pk=job_id)
            if aside.try_set_aside(Lease(job_id, token), states.Status.QUEUED, "it cannot be claimed", error):
                refused.aside += 1
            else:
                refused.stuck.append(job_id)
            return []
