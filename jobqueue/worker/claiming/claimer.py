"""The claimer claims jobs for one lane at a time, for the tenants in turn, as the claim policy allows.

A claim starts after the cursor, which is the key of the last job that was read. The reason is that dead index entries of claimed rows
accumulate before the cursor while an old snapshot is open. Jobs of higher priority, late commits and returned jobs also lie before the
cursor. So a claim starts from the head again every 0.1 s, and whenever a scan finds too little.

A claim skips the jobs of a target whose lock another transaction holds, perhaps for as long as that transaction stays open. These jobs
must not block other jobs: if a claim saw no other jobs, the next claim continues after them at once and leaves those targets out.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from jobqueue.db import Claimed, LeaseHolder, Scope, claims
from jobqueue.lifecycle.batches import Batches
from jobqueue.lifecycle.claim import Claim, claim
from jobqueue.lifecycle.expire import Expired
from jobqueue.lifecycle.limits import ALL, Limits
from jobqueue.models import Job
from jobqueue.worker.claim_policy import ClaimPolicy
from jobqueue.worker.running.lanes import Lane, Lanes
from jobqueue.worker.running.round_robin import share

HEAD_SECONDS = 0.1
MAX_TENANTS = 1000
ROUNDS = 100
MAX_EMPTY = 20
STEPS = 20
STILL_SECONDS = 30.0
MAX_BUSY = 1000


@dataclass
class TenantScan:
    """The position that the claims of one tenant have reached."""

    cursor: tuple[int, int] | None = None
    head_at: float = 0.0
    must_continue: bool = False  # the next claim continues after jobs that cannot be taken now
    busy: frozenset[str] = frozenset()  # the targets of those jobs


@dataclass
class Pick:
    """The result of the claims for a lane."""

    jobs: list[Claimed] = field(default_factory=list)
    lost: list[Expired] = field(default_factory=list)
    more: bool = False  # the last scan was full
    moved: bool = False  # a job was taken or parked
    start_before_next_scan: bool = False  # the jobs found are to begin before the next scan, which starts from the head
    limited: bool = False  # a limit applied: another worker may make room at any time
    must_continue: bool = False  # the next scan is to continue where this one ended
    full: frozenset[str] = frozenset()  # the queues whose limits leave no room
    busy: bool = False  # jobs were skipped because another transaction held the lock of their target


class Claimer:
    """A claimer of jobs for the lanes of one process."""

    def __init__(self, holder: LeaseHolder, policy: ClaimPolicy, lanes: Lanes) -> None:
        """Prepare; other threads call `notify`."""
        self._holder, self._policy, self._lanes = holder, policy, lanes
        self._notified: deque[str] = deque()
        self._walks: dict[str, TenantScan] = {}
        self._found_at = 0.0
        self._resting = False  # whether the last query found nothing to take
        self._stuck = Batches("Claiming", 1)
        self._after: str | None = None
        self._after_place: tuple[str, str] | None = None
        self._places: dict[str, set[str]] = {}  # for each tenant that has a turn: the queues in which its jobs were found

    def notify(self, tenant: str) -> None:
        """Record that a tenant has new work; from any thread."""
        self._notified.append(tenant)

    def find_tenants(self) -> None:
        """Process the notified tenants; if no tenant is known to have queued jobs, query for tenants."""
        if self._is_still():
            return
        self._policy.refresh()
        while self._notified:
            tenant = self._notified.popleft()
            self._forget(tenant)
            self._lanes.of(tenant).turns.notified(tenant)
        if not self._has_turns:
            self._find()
            self._resting = not self._has_turns and not self.is_halfway
        else:
            self._resting = False

    def _is_still(self) -> bool:
        """Return whether this process is idle and no job is queued; it then need not refresh the claim policy."""
        if not self._resting or self._notified or self._has_turns:
            return False
        if self._policy.age > STILL_SECONDS:  # operators see the slots of tenants even while no job needs them
            self._policy.refresh()
        self._found_at = time.monotonic()
        return not Job.objects.current.any_queued()

    @property
    def _has_turns(self) -> bool:
        return any(len(lane.turns) for lane in self._lanes)

    def find_more_tenants(self) -> bool:
        """Query now and then for further tenants with queued jobs; return whether there are any. Called after the claims, to delay none."""
        if time.monotonic() - self._found_at < HEAD_SECONDS:
            return False
        before = sum(len(lane.turns) for lane in self._lanes)
        self._find()
        return sum(len(lane.turns) for lane in self._lanes) > before

    def _find(self) -> None:
        self._found_at = time.monotonic()
        if self._policy.is_selective:
            self._find_places()
        else:
            tenants = claims.queued_tenants(Job.objects.database, MAX_TENANTS, self._after)
            for tenant in tenants:
                self._lanes.of(tenant).turns.found(tenant)
            self._after = tenants[-1] if len(tenants) == MAX_TENANTS else None
        if len(self._walks) > MAX_TENANTS:
            self._walks.clear()

    def _find_places(self) -> None:
        """Find tenants by the queues that this process serves: a tenant with jobs in other queues only gets no turns."""
        places = claims.queued_places(Job.objects.database, MAX_TENANTS, self._after_place)
        for tenant, queue in places:
            if self._policy.is_open(queue):
                self._lanes.of(tenant).turns.found(tenant)
                self._places.setdefault(tenant, set()).add(queue)
        self._after_place = places[-1] if len(places) == MAX_TENANTS else None

    @property
    def is_halfway(self) -> bool:
        """Whether more tenants may have queued jobs than one query has found."""
        return (self._after_place if self._policy.is_selective else self._after) is not None

    def pick(self, lane: Lane, wanted: int) -> Pick:
        """Claim up to `wanted` jobs, an even share for each tenant in turn, until the lane is full or no job is left."""
        pick, waiting, next_round, part, scans, empty = Pick(), deque[str](), lane.turns.round(), 0, 0, 0
        while scans < ROUNDS and empty < MAX_EMPTY:
            missing = wanted - len(pick.jobs)
            if not waiting and next_round:  # a new round: tenants that have more jobs share what was not used in the last round
                waiting, next_round, part = next_round, deque(), share(missing, len(next_round))
            if not waiting or missing <= 0:
                break
            tenant, portion = waiting.popleft(), min(part, missing)
            if (places := self._places.get(tenant)) and pick.full.issuperset(places):
                self._drop(lane, tenant)
                continue
            scans += 1
            claimed = self._turn(tenant, portion, pick)
            lane.turns.served(tenant)
            if pick.start_before_next_scan:
                pick.more = True
                break
            if ALL in claimed.full:  # no other tenant could take anything
                return pick
            empty = 0 if claimed.seen else empty + 1
            if not claimed.seen:  # else scan once more soon: a notification may have been held back
                self._drop(lane, tenant)
            elif pick.more and claimed.moved:
                next_round.append(tenant)
        pick.must_continue = pick.must_continue or empty == MAX_EMPTY
        pick.more = pick.more or pick.must_continue or bool(waiting or next_round)
        return pick

    def _drop(self, lane: Lane, tenant: str) -> None:
        self._forget(tenant)
        lane.turns.drop(tenant)

    def _forget(self, tenant: str) -> None:
        self._places.pop(tenant, None)
        self._policy.forget_names(tenant)

    def _turn(self, tenant: str, portion: int, pick: Pick) -> Claim:
        """Claim for one tenant, and add the result to the pick."""
        scope = self._policy.scope(tenant)
        if scope is not None and (stuck := self._stuck.set_aside):
            scope = scope._replace(stuck=tuple(stuck))
        pick.more = False
        claimed = Claim([]) if scope is None else self._claim(scope, portion, pick)
        pick.jobs += claimed.jobs
        pick.lost += claimed.lost
        pick.full |= claimed.full
        pick.moved = pick.moved or claimed.moved
        pick.busy = pick.busy or bool(claimed.busy)
        return claimed

    def _claim(self, scope: Scope, wanted: int, pick: Pick) -> Claim:
        """Claim for one tenant; record in `pick` whether the last scan was full."""
        walk = self._walks.setdefault(scope.tenant, TenantScan())
        if limits := self._policy.limits_of(scope):
            pick.limited = True
            return self._scan(scope, wanted, walk, pick, limits=limits)
        now = time.monotonic()
        going = walk.must_continue
        if (now - walk.head_at >= HEAD_SECONDS and not going) or self._policy.is_partial(scope):
            walk.cursor = None
        if walk.cursor is None:
            walk.head_at, result = now, self._scan(scope, wanted, walk, pick)
        else:
            result = self._scan(scope, wanted, walk, pick, walk.cursor)
            if not pick.more and (result.jobs or going):
                walk.cursor, pick.start_before_next_scan = None, bool(result.jobs)
                return result
            if not pick.more:
                walk.head_at, result = now, _together(result, self._scan(scope, wanted, walk, pick))
        walk.cursor = result.last or walk.cursor
        return result

    def _scan(
        self, scope: Scope, wanted: int, walk: TenantScan, pick: Pick, after: tuple[int, int] | None = None, limits: Limits | None = None
    ) -> Claim:
        """Claim once, or several times if no job that was seen can be taken or parked now."""
        if walk.must_continue:
            scope = scope._replace(without=tuple(walk.busy))
        result, busy = Claim([]), walk.busy
        for _ in range(STEPS):
            claimed = claim(self._holder, scope, wanted, after, limits)
            result = _together(result, claimed)
            if claimed.stuck:
                scope = self._exclude(claimed.stuck, scope)
            # Under limits, each queue has a window of its own and no key lies after all windows: there only the targets are left out.
            pick.more = bool(claimed.stuck) or claimed.seen >= wanted
            walk.must_continue = not claimed.moved and (bool(claimed.stuck or claimed.busy) if limits else pick.more)
            if not walk.must_continue:
                break
            busy, after = claimed.busy | (busy if len(busy) < MAX_BUSY or limits else frozenset()), claimed.last
            scope = scope._replace(without=tuple(busy))
        pick.must_continue, pick.more = pick.must_continue or walk.must_continue, pick.more or walk.must_continue
        walk.busy = busy if walk.must_continue else frozenset()
        return result

    def _exclude(self, stuck: tuple[int, ...], scope: Scope) -> Scope:
        """Leave out jobs whose rows cannot be changed, since they would block all jobs after them; retry them later."""
        for job_id in stuck:
            self._stuck.set_row_aside(job_id)
        return scope._replace(stuck=(*scope.stuck, *stuck))


def _together(first: Claim, second: Claim) -> Claim:
    last = max(filter(None, (first.last, second.last)), default=None)
    jobs, lost = [*first.jobs, *second.jobs], [*first.lost, *second.lost]
    return Claim(
        jobs,
        last,
        first.seen + second.seen,
        first.parked_or_released + second.parked_or_released,
        lost,
        first.busy | second.busy,
        first.full | second.full,
    )
