"""A state machine over targets, tenants, limits and pauses of queues: the real verbs, on the real database, over two connections.

After each verb, the guarantees of the lines are checked in the rows. At the end of an example one worker that polls alone
must be able to run every job: no job ever stays parked behind a target that no job holds or blocks.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

from django.db import connection, connections, transaction
from django.db.models import F
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jobqueue.core import states
from jobqueue.core.targets import Target
from jobqueue.db import Lease, LeaseHolder, Scope
from jobqueue.db.fast_path.plans import OPTION
from jobqueue.lifecycle import control
from jobqueue.lifecycle.children import resume_parents
from jobqueue.lifecycle.claim import claim
from jobqueue.lifecycle.enqueue import JobSpec, enqueue
from jobqueue.lifecycle.expire import expire_owner, expire_stale_running_jobs
from jobqueue.lifecycle.finish import finish
from jobqueue.lifecycle.limits import Limits
from jobqueue.lifecycle.outcome import HandOver, Kind, Outcome
from jobqueue.lifecycle.promote import promote_due_jobs
from jobqueue.lifecycle.queues import limit_queue, pause_queue, resume_queue
from jobqueue.lifecycle.release import release_parked_targets
from jobqueue.models import Job, Queue
from tests.events import story
from tests.lifecycle.rows import repeated_tries

WORKERS = ("worker-1", "worker-2")
QUEUES = ("a", "b")
TENANTS = ("", "", "", "acme")
TARGETS = ("t1", "t1", "t1", "t2", "")
MAX_JOBS = 6
LEASE_SECONDS = 30.0
SIDE = st.integers(0, 1)
PICK = st.integers(0, 11)
KIND = st.sampled_from([*Kind, *[Kind.SUCCESS] * 4])
ROUNDS = 200


@contextlib.contextmanager
def keeping_plans(planned: bool) -> Iterator[None]:
    """Make the connection keep plans, as those of workers do: then the end of a job and the claim of the next one are one message."""
    options = connection.settings_dict["OPTIONS"]
    if planned and connection.vendor == "postgresql":
        options[OPTION] = 0
    try:
        yield
    finally:
        options.pop(OPTION, None)


class Row(NamedTuple):
    """One job as the database has it."""

    id: int
    status: str
    waiting_for: str
    token: int
    owner: str
    queue: str
    tenant: str
    target: str
    holds: bool
    rank: int

    @property
    def place(self) -> states.Place:
        return (self.status, self.waiting_for)

    @property
    def tenant_target(self) -> Target:
        return Target(self.tenant, self.target)

    @property
    def order(self) -> tuple[bool, int, int]:
        """Its place in the line: a holder first, then by priority and age."""
        return (not self.holds, self.rank, self.id)


Rows = dict[int, Row]


class Lines(RuleBasedStateMachine):
    """Enqueue, claim, finish with and without a hand-over, control, expire, promote, pauses and limits."""

    parties: list[Any] = []  # set by the test: the connections

    def __init__(self) -> None:
        super().__init__()
        self.locked: Row | None = None
        self.was_locked = False
        self.passed_over: set[int] = set()  # rows that were locked: meanwhile, a job of lower order in their line can have been released
        self.held: Target | None = None
        self.idle_stops: Counter[int] = Counter()
        self.first_tokens: dict[int, int] = {}  # what each row began with
        self.open = contextlib.ExitStack()
        connections["default"] = self.parties[0]
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM jobqueue_job")
            cursor.execute("DELETE FROM jobqueue_queue")
            cursor.execute("DELETE FROM jobqueue_jobevent")
        self.rows: Rows = {}

    def teardown(self) -> None:
        try:
            self.close_open_transaction()
            self.drain()
        finally:
            connections["default"] = self.parties[0]

    @contextlib.contextmanager
    def via(self, side: int) -> Iterator[None]:
        connections["default"] = self.parties[side]
        try:
            yield
        finally:
            connections["default"] = self.parties[0]

    def look(self) -> Rows:
        columns = "id, status, waiting_for, lease_token, lease_owner, queue, tenant, target, holds_target, claim_rank"
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {columns} FROM jobqueue_job ORDER BY id")
            rows = {row[0]: Row(*row[:8], bool(row[8]), row[9]) for row in cursor.fetchall()}
        for row in rows.values():
            self.first_tokens.setdefault(row.id, row.token)
        return rows

    def judge(self, *, deleted: bool = False) -> Rows:
        """Read the rows again and check the invariants; return the rows as they were before."""
        before, after = self.rows, self.look()
        assert deleted or before.keys() <= after.keys(), "a job is lost"
        holders = Counter(row.tenant_target for row in after.values() if row.target and (row.holds or row.status == "RUNNING"))
        assert all(count == 1 for count in holders.values()), f"two holders: {after}"
        for job_id, row in after.items():
            old = before.get(job_id)
            if old is None or old == row:
                continue
            assert old.status not in states.FINAL, "what has ended changes no more"
            assert row.token - old.token in (0, 1)
            if row.token > old.token:
                self.judge_start(old, before)
            elif old.place != row.place:
                assert states.allows(old.place, row.place), f"{old.place} -> {row.place}"
            stopped = row.status in ("PAUSED", "CANCELED") and row.status != old.status
            self.idle_stops[job_id] += stopped and old.status != "RUNNING"
            assert not (row.status in states.FINAL and row.holds)
        self.rows = after
        return before

    @invariant()
    def events_tell_the_same_story_as_the_row(self) -> None:
        told = story.all_told()
        assert told.keys() >= self.rows.keys(), "a job without events"
        for job_id, names in told.items():
            row = self.rows.get(job_id)
            if row is None:
                assert names == ["job.deleted"]
            else:
                claims = row.token - self.first_tokens[job_id]
                story.judge(names, status=row.status, claims=claims, idle_stops=self.idle_stops[job_id])

    def judge_start(self, job: Row, before: Rows) -> None:
        """Check that no job before it in its line waited, and that no job blocked it, except one that ended in the same verb."""
        if not job.target:
            return
        after = self.look()
        for other in before.values():
            if other.tenant_target != job.tenant_target or other.id == job.id or other.id not in after:
                continue
            still = after[other.id]
            assert still.status not in ("PAUSED", "ERROR"), f"{job} starts though {still} blocks its target"
            waits = other.place in (states.QUEUED, states.PENDING_TARGET)
            passed = other == self.locked or (other.place == states.PENDING_TARGET and other.id in self.passed_over)
            if waits and not passed and still.status not in states.FINAL:
                assert job.order < other.order, f"{job} starts before {other}"

    def pick(self, pick: int, *statuses: str) -> Row | None:
        """Choose a job, every second time among those that hold or block a target, as what is done to them matters most."""
        found = [row for row in self.rows.values() if row.status in statuses and row != self.locked and row.tenant_target != self.held]
        if pick % 2:
            found = [row for row in found if row.holds or row.status in ("PAUSED", "ERROR")] or found
        return found[pick // 2 % len(found)] if found else None

    def some(self, *statuses: str) -> bool:
        return any(row.status in statuses for row in self.rows.values())

    # Verbs

    @initialize(names=st.lists(st.tuples(st.sampled_from(TARGETS), st.integers(-1, 1)), min_size=3, max_size=5))
    def begin_with_some_jobs(self, names: list[tuple[str, int]]) -> None:
        for name, priority in names:
            self.enqueue(0, "a", priority, 0, "", name)
        self.claim(0, "worker-1", "", MAX_JOBS, None)

    @precondition(lambda self: sum(row.status not in states.FINAL for row in self.rows.values()) < MAX_JOBS)
    @rule(
        side=SIDE, queue=st.sampled_from(QUEUES), priority=st.integers(-1, 1), seconds=st.sampled_from([0, 0, 0, 5]),
        tenant=st.sampled_from(TENANTS), behind=st.sampled_from(TARGETS),
    )  # fmt: skip
    def enqueue(self, side: int, queue: str, priority: int, seconds: int, tenant: str, behind: str) -> None:
        spec = JobSpec("a.b", queue=queue, priority=priority, run_after=timedelta(seconds=seconds), tenant=tenant, target=behind)
        with self.via(side):
            enqueue(spec)
        self.judge()

    def open_queues(self) -> tuple[str, ...]:
        paused = set(Queue.objects.filter(paused=True).values_list("name", flat=True))
        return tuple(name for name in QUEUES if name not in paused)

    def limits(self, most: int | None = None) -> Limits:
        rows = Queue.objects.filter(max_running__isnull=False).values_list("name", "max_running")
        return Limits(most, {name: limit for name, limit in rows if limit is not None})

    @rule(
        side=SIDE,
        owner=st.sampled_from(WORKERS),
        tenant=st.sampled_from(TENANTS),
        limit=st.integers(1, 4),
        most=st.sampled_from([None, None, 1, 2]),
    )
    def claim(self, side: int, owner: str, tenant: str, limit: int, most: int | None) -> None:
        queues, limits = self.open_queues(), self.limits(most)
        if not queues:
            return
        with self.via(side):
            found = claim(LeaseHolder(owner, LEASE_SECONDS), Scope(tenant, queues), limit, limits=limits or None)
        before = self.judge()
        assert all(job.queue in queues and job.tenant == tenant for job in found.jobs)
        assert {job.id for job in found.jobs} == {
            row.id for row in self.rows.values() if row.id in before and row.token > before[row.id].token
        }
        if found.jobs:
            running = Counter(row.queue for row in self.rows.values() if row.status == "RUNNING")
            assert most is None or running.total() <= most
            for job in found.jobs:
                assert running[job.queue] <= limits.queues.get(job.queue, MAX_JOBS)

    @precondition(lambda self: self.some("RUNNING"))
    @rule(
        side=SIDE,
        picks=st.lists(PICK, min_size=1, max_size=3),
        kind=KIND,
        hands_over=st.booleans(),
        old=st.booleans(),
        planned=st.booleans(),
    )
    def finish(self, side: int, picks: list[int], kind: Kind, hands_over: bool, old: bool, planned: bool) -> None:
        running = [row for row in self.rows.values() if row.status == "RUNNING"]
        chosen = {running[pick % len(running)] for pick in picks}
        now = time.monotonic()
        outcomes = [
            Outcome(
                Lease(row.id, row.token - old), Kind.SUCCESS if number else kind, now - 1, now, "1",
                delay_seconds=3.0 if kind is Kind.RETRY else 0.0, target=row.tenant_target if row.target else None,
            )
            for number, row in enumerate(sorted(chosen))
        ]  # fmt: skip
        excluded = tuple(set(QUEUES) - set(self.open_queues())) + tuple(self.limits().queues)
        hand_over = (
            HandOver(LeaseHolder("worker-1", LEASE_SECONDS), [one.lease for one in outcomes], excluded_queues=excluded)
            if hands_over
            else None
        )
        silent = repeated_tries(row.id for row in chosen)
        with self.via(side), keeping_plans(planned):
            settled = finish(outcomes, hand_over)
        for one in settled:
            repeated = one.outcome.kind is Kind.UNKNOWN_TASK and one.status == "PENDING" and one.outcome.lease.job_id in silent
            self.idle_stops[one.outcome.lease.job_id] -= repeated
        before = self.judge()
        if old:
            assert not any(one.status for one in settled), "the end of a lost run changes nothing"
            assert before == self.rows
        for job in [one.following for one in settled if one.following is not None]:
            row = self.rows[job.id]
            assert (row.status, row.owner, row.token, row.holds) == ("RUNNING", "worker-1", job.lease_token, True)
            assert job.queue not in excluded
            better = [
                one
                for one in before.values()
                if one.status == "QUEUED" and one.tenant == row.tenant and one.rank < row.rank and one.queue not in excluded
            ]
            assert not better, "a better job waits for any slot"

    @rule(side=SIDE, picks=st.lists(PICK, min_size=1, max_size=3), kind=KIND, limit=st.integers(1, 4))
    def work(self, side: int, picks: list[int], kind: Kind, limit: int) -> None:
        """Take a turn of a worker: else hardly any example gets far, as chance takes claims and ends apart."""
        self.claim(side, "worker-1", "", limit, None)
        if self.some("RUNNING"):
            self.finish(side, picks, kind, True, False, len(picks) < 3)

    @rule(side=SIDE, pick=PICK, verb=st.sampled_from(["pause", "cancel", "resume", "run_now", "delete", "clear"]))
    def decide(self, side: int, pick: int, verb: str) -> None:
        row = self.pick(pick, "PENDING", "QUEUED", "RUNNING", "PAUSED", "ERROR")
        if row is None:
            return
        if verb == "clear":
            self.clear(side, row)
            return
        with self.via(side):
            answer = getattr(control, verb)(row.id)
        self.judge(deleted=verb == "delete")
        assert verb != "delete" or (row.id in self.rows) == (row.status == "RUNNING") == (not answer)

    def clear(self, side: int, some: Row) -> None:
        if self.locked is not None or self.held is not None or not some.target:
            return
        with self.via(side):
            control.clear_target(some.target, tenant=some.tenant)
        self.judge()
        mine = [row for row in self.rows.values() if row.tenant_target == some.tenant_target]
        assert not [row for row in mine if row.status in ("PAUSED", "ERROR")]

    @precondition(lambda self: self.some("RUNNING"))
    @rule(side=SIDE, owner=st.sampled_from(WORKERS))
    def die(self, side: int, owner: str) -> None:
        with self.via(side):
            expire_owner(owner)
        self.judge()

    @precondition(lambda self: self.some("RUNNING") and self.locked is None)
    @rule(side=SIDE)
    def leases_run_out(self, side: int) -> None:
        Job.objects.filter(status="RUNNING").update(lease_expires_at=F("lease_expires_at") - timedelta(minutes=1))
        with self.via(side):
            expire_stale_running_jobs()
        self.judge()

    @precondition(lambda self: any(row.waiting_for in ("time", "children") for row in self.rows.values()) and self.locked is None)
    @rule(side=SIDE)
    def time_passes(self, side: int) -> None:
        Job.objects.filter(status="PENDING", run_at__isnull=False).update(run_at=F("run_at") - timedelta(minutes=1))
        with self.via(side):
            promote_due_jobs()
            resume_parents()
        self.judge()

    @rule(name=st.sampled_from(QUEUES), decision=st.sampled_from(["pause", "resume", "resume", "limit 0", "limit 1", "no limit"]))
    def decide_on_a_queue(self, name: str, decision: str) -> None:
        if decision == "pause":
            pause_queue(name)
        elif decision == "resume":
            resume_queue(name)
        else:
            limit_queue(name, None if decision == "no limit" else int(decision[-1]))
        self.judge()

    # Another client

    @precondition(lambda self: len(self.parties) > 2 and self.locked is None and self.held is None and self.rows)
    @rule(pick=PICK, advisory=st.booleans())
    def somebody_locks(self, pick: int, advisory: bool) -> None:
        row = [*self.rows.values()][pick % len(self.rows)]
        with self.via(2):
            self.open.enter_context(transaction.atomic())
            with connection.cursor() as cursor:
                if advisory and row.target:
                    cursor.execute("SELECT pg_advisory_xact_lock(%s)", [row.tenant_target.key])
                    self.held = row.tenant_target
                else:
                    cursor.execute("SELECT 1 FROM jobqueue_job WHERE id = %s FOR UPDATE", [row.id])
                    self.locked, self.was_locked = row, True
                    self.passed_over.add(row.id)

    @precondition(lambda self: self.locked is not None or self.held is not None)
    @rule()
    def somebody_lets_go(self) -> None:
        self.close_open_transaction()

    def close_open_transaction(self) -> None:
        with self.via(2 if len(self.parties) > 2 else 0):
            self.open.close()
        self.locked = self.held = None

    # The end

    def drain(self) -> None:
        """Run all jobs that were not stopped in one worker that polls, then the stopped ones."""
        for name in QUEUES:
            resume_queue(name)
            limit_queue(name, None)
        for stopped in (False, True):
            for row in self.look().values():
                if row.status == "RUNNING":
                    end = Outcome(Lease(row.id, row.token), Kind.SUCCESS, 1.0, 1.0, target=row.tenant_target if row.target else None)
                    finish([end])
                if stopped and row.status in ("PAUSED", "ERROR"):
                    control.resume(row.id)
            if self.was_locked:  # if the row to release is locked, the repair releases it later
                release_parked_targets()
            self.run_alone()
            blocked = {row.tenant_target for row in self.look().values() if row.target and row.status in ("PAUSED", "ERROR")}
            left = [
                row for row in self.look().values() if row.status in ("PENDING", "QUEUED", "RUNNING") and row.tenant_target not in blocked
            ]
            assert not left, f"free, but never runs: {left}"
        assert not [row for row in self.look().values() if row.status not in states.FINAL]

    def run_alone(self) -> None:
        for _ in range(ROUNDS):
            Job.objects.filter(status="PENDING", waiting_for="time").update(run_at=F("created_at"))
            moved = promote_due_jobs() + resume_parents()
            for tenant in set(TENANTS):
                found = claim(LeaseHolder("worker-1", LEASE_SECONDS), Scope(tenant), 3)
                moved += found.parked_or_released
                for job in found.jobs:
                    target = Target(job.tenant, job.target) if job.target else None
                    finish([Outcome(Lease(job.id, job.lease_token), Kind.SUCCESS, 1.0, 1.0, target=target)])
                    moved += 1
            if not moved:
                return
        raise AssertionError("The worker goes round in circles.")
