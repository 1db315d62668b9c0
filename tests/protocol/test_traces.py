"""The traces that the protocol's model finds if one of its rules is missing, replayed with the real verbs on PostgreSQL.

Each is run twice: with the rule, its guarantee holds; without the rule, it does not. The numbers are those of
the model's rules, I1 to I7 those of its guarantees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.db import OperationalError, transaction

from jobqueue.core import states
from jobqueue.core import targets as line
from jobqueue.core.targets import Target, in_lock_order
from jobqueue.db import Lease, LeaseHolder
from jobqueue.db import targets as targets_sql
from jobqueue.lifecycle import control, decide, expire, finish, release
from jobqueue.lifecycle.outcome import HandOver, Kind, Outcome
from jobqueue.lifecycle.promote import promote_due_jobs
from jobqueue.models import Job
from jobqueue.worker.running.executor import execute
from tests.claiming import claim
from tests.factories import JobFactory
from tests.protocol.replay import Actor, without
from tests.rivals import Rival, wait_until_somebody_waits_for_a_lock
from tests.worker.parts import run_of

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]
WITH, WITHOUT = "with the rule", "without the rule"
ROUNDS = 20


class Violation(AssertionError):
    """A guarantee does not hold."""


def hold(condition: object, text: str) -> None:
    if not condition:
        raise Violation(text)


@pytest.fixture
def other() -> Iterator[Rival]:
    made = Rival()
    yield made
    made.close()


@pytest.fixture
def third() -> Iterator[Rival]:
    made = Rival()
    yield made
    made.close()


@pytest.fixture(params=[WITH, WITHOUT])
def judged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Run a trace with the rule, or with the rule taken out, where it must violate a guarantee."""

    def judge(trace: Callable[[], None], rule: Callable[[pytest.MonkeyPatch], None], guarantee: str) -> None:
        if request.param == WITH:
            trace()
            return
        rule(monkeypatch)
        with pytest.raises(Violation, match=guarantee):
            trace()

    return judge


def job(**columns: Any) -> Job:
    return JobFactory(target="t", **columns)


def take(limit: int = 10, **scope: Any) -> list[int]:
    return [one.id for one in claim("worker-1", scope.pop("queues", ()), limit, 30.0, **scope)]


def end(one: Job, kind: Kind = Kind.SUCCESS) -> str:
    one.refresh_from_db()
    [settled] = finish.finish([Outcome(Lease(one.pk, one.lease_token), kind, target=one.tenant_target)])
    return settled.status


def lost(one: Job) -> None:
    one.refresh_from_db()
    expire.expire_owner(one.lease_owner)


def place(one: Job) -> states.Place:
    one.refresh_from_db()
    return one.place


def runs_all() -> None:
    """I3: one worker that polls runs every job, as long as no job is PAUSED or in ERROR."""
    for _ in range(ROUNDS):
        for one in Job.objects.filter(pk__in=take()):
            end(one)
    left = list(Job.objects.exclude(status__in=states.FINAL).values_list("pk", "status", "waiting_for"))
    hold(not left, f"I3: free, but never runs: {left}")


def test_1_a_queued_holder_is_the_head(judged: Callable[..., None]) -> None:
    def trace() -> None:
        first = job()
        hold(take() == [first.pk], "the claim")
        lost(first)
        job(priority=1), job(priority=1)
        runs_all()

    judged(trace, lambda patch: patch.setattr(line, "_line_order", lambda one: (one.claim_rank, one.id)), "I3")


def test_2_a_queued_holder_is_not_parked_with_the_rest(judged: Callable[..., None], other: Rival) -> None:
    def trace() -> None:
        first = job(priority=1)
        hold(take() == [first.pk], "the claim")
        job()
        slow = Actor(other, take, before="LIMIT 2000")
        lost(first)  # while the other claimer is about to park what waits behind a target that was held a moment ago
        slow.go_on()
        runs_all()

    judged(trace, lambda patch: without(patch, targets_sql, "park_line", " AND NOT j.holds_target", ""), "I3")


def test_3_free_is_judged_by_status_and_a_parked_holder_goes_first(judged: Callable[..., None]) -> None:
    def trace() -> None:
        first, second = job(), job()
        hold(take() == [first.pk], "the claim")
        end(first, Kind.HANDED_BACK)
        control.pause(second.pk)
        hold((take(), place(first)) == ([], states.PENDING_TARGET), "the holder is parked behind the other, who is paused")
        control.cancel(second.pk)
        runs_all()

    judged(trace, lambda patch: without(patch, targets_sql, "_free", 'f"{HELD} AND NOT ({PARKED})"', '"holds_target"'), "I3")


def test_4_control_takes_the_targets_lock_first(judged: Callable[..., None], other: Rival, third: Rival) -> None:
    first, better, last = job(priority=2), job(priority=1), job()
    hold(take() == [first.pk], "the claim")

    def cancel_and_think_better_of_it() -> None:
        with transaction.atomic():
            control.cancel(better.pk)
            transaction.set_rollback(True)

    def trace() -> None:
        ending = Actor(other, end, first, before="waiting_for = '', enqueued_at")  # it has the lock, and is about to settle
        # With the rule it stops before the lock, for which it must wait; without the rule, before its own write, after the row has changed.
        canceling = Actor(third, cancel_and_think_better_of_it, before="coalesce(" if control.lock is not release.lock else "advisory")
        ending.go_on()
        canceling.go_on()
        taken = take()
        hold(taken == [better.pk], f"I4: {taken} is taken before {better.pk}, and {last.pk} is behind it")

    judged(trace, lambda patch: patch.setattr(control, "lock", lambda targets: None), "I4")


def test_5_a_cancel_settles_the_target_whatever_the_job_was(judged: Callable[..., None]) -> None:
    def trace() -> None:
        first, second, _ = job(priority=1), job(), job()
        hold(take() == [first.pk], "the claim")
        end(first)
        hold(place(second) == states.QUEUED, "the second is released; it holds nothing")
        control.cancel(second.pk)
        runs_all()

    judged(trace, lambda patch: patch.setattr(control, "_settle", lambda one: None), "I3")


def test_6_retry_and_hand_back_obey_the_flag(judged: Callable[..., None]) -> None:
    def trace() -> None:
        first = job()
        hold(take() == [first.pk], "the claim")
        control.cancel(first.pk)
        end(first, Kind.HANDED_BACK)
        hold(take() == [], "I7: a job that a person has canceled runs again")

    words = "row.flag and outcome.kind is not Kind.ERROR"

    def obey_in_an_interrupt_only(patch: pytest.MonkeyPatch) -> None:
        without(patch, decide, "decide", words, "row.flag and outcome.kind is Kind.INTERRUPTED")
        patch.setattr(finish, "decide", decide.decide)

    judged(trace, obey_in_an_interrupt_only, "I7")


def test_7_an_interrupted_run_ends_as_the_flag_on_its_row_says(judged: Callable[..., None]) -> None:
    def trace() -> None:
        first = job()
        hold(take() == [first.pk], "the claim")
        control.cancel(first.pk)  # the worker sees it, and interrupts
        control.resume(first.pk)
        end(first, Kind.INTERRUPTED)
        hold(place(first) == states.QUEUED, "I7: it ends canceled, and the last word was resume")

    def as_the_worker_saw_it(patch: pytest.MonkeyPatch) -> None:
        patch.setitem(decide.DECISIONS, Kind.INTERRUPTED, lambda outcome, row: (states.CANCELED, {"message": ""}))

    judged(trace, as_the_worker_saw_it, "I7")


def test_8_expiry_obeys_the_flag(judged: Callable[..., None]) -> None:
    def trace() -> None:
        first = job()
        hold(take() == [first.pk], "the claim")
        control.cancel(first.pk)
        lost(first)
        hold(take() == [], "I7: a job that a person has canceled runs again")

    judged(trace, lambda patch: without(patch, expire, "decide", "if job.cancel_requested:", "if False:"), "I7")


def test_9_candidates_behind_a_head_elsewhere_are_parked(judged: Callable[..., None]) -> None:
    def trace() -> None:
        job(queue="unserved")
        job(), job()
        free = JobFactory()
        seen = [take(2, queues=("default",)) for _ in range(3)]
        hold([free.pk] in seen, f"I3: job {free.pk} is free, and never found behind those that wait: {seen}")

    def leave_alone(patch: pytest.MonkeyPatch) -> None:
        words = "            decision.park.append(candidate.id)\n"
        without(
            patch,
            line,
            "_decide_one",
            words,
            "            if head in [one.id for one in line] or blocked:\n                decision.park.append(candidate.id)\n",
        )

    judged(trace, leave_alone, "I3")


def test_10_a_hand_over_takes_the_best_of_queued_and_parked(judged: Callable[..., None]) -> None:
    def trace() -> None:
        older, parked, first = job(due=True), job(), job(priority=1)
        hold(take() == [first.pk], "the claim")
        promote_due_jobs()
        hold((place(older), place(parked)) == (states.QUEUED, states.PENDING_TARGET), "one part of the line each")
        hand_over = HandOver(LeaseHolder("worker-1", 30.0), [Lease(first.pk, 1)])
        [settled] = finish.finish([Outcome(Lease(first.pk, 1), Kind.SUCCESS, target=first.tenant_target)], hand_over)
        taken = [settled.following.id] if settled.following is not None else []
        hold(taken == [older.pk], f"I4: {taken} is taken before {older.pk}")

    words = """(PARKED, "status = 'QUEUED' AND NOT (target = '')")"""
    judged(trace, lambda patch: without(patch, targets_sql, "handing_over", words, "(PARKED,)"), "I4")


@pytest.mark.long
def test_11_locks_are_taken_in_the_order_of_their_keys(
    judged: Callable[..., None], monkeypatch: pytest.MonkeyPatch, other: Rival, third: Rival
) -> None:
    """Two targets share a key, so that an order by name is no order of the locks.

    No verb of today waits for the locks of several targets: claims, ends and expiry try theirs, control has one. So this is the lock
    alone, for future code that must wait for several.
    """
    keys = {"a": 2, "b": 1, "c": 0, "d": 2}
    monkeypatch.setattr(Target, "key", property(lambda one: keys[one.name]))

    def wait_for(names: str) -> str:
        try:
            with transaction.atomic():
                release.lock([Target("", name) for name in names])
        except OperationalError as error:
            return str(error)
        return ""

    def trace() -> None:
        holder = Rival()
        with holder.holding(keys["b"]):  # it keeps the first of the two between its locks
            ends = [other.start(wait_for, "abc")]
            wait_until_somebody_waits_for_a_lock()
            ends.append(third.start(wait_for, "cd"))
            wait_until_somebody_waits_for_a_lock(2)
        holder.close()
        found = [end.result(20) for end in ends]
        hold(found == ["", ""], f"I5: {found}")

    judged(
        trace, lambda patch: patch.setattr(release, "in_lock_order", lambda targets: [one.key for one in sorted(targets)]), "I5: .*deadlock"
    )


def test_13_the_head_of_a_line_is_sought_among_parked_jobs_too(judged: Callable[..., None], other: Rival) -> None:
    """A claim locks rows that it saw QUEUED although they were parked a moment ago, so the release of a job may skip the best."""

    def trace() -> None:
        first, better, last = job(priority=2), job(priority=1), job()
        hold(take() == [first.pk], "the claim")
        with other.locking(better):
            end(first)
            hold(place(last) == states.QUEUED, "the release skips the locked job")
            hold(take() == [], f"I4: {last.pk} is taken before {better.pk}, which is locked")
        hold((take(), take()) == ([], [better.pk]), f"I4: {last.pk} is taken before {better.pk}")
        end(better)
        runs_all()

    judged(trace, lambda patch: without(patch, line, "decide", " or job.is_parked", ""), "I4")


def test_the_order_of_locks_is_the_same_for_all_transactions() -> None:
    targets = [Target(tenant, name) for tenant in ("", "acme") for name in ("a", "b", "c", "a b", "é")]
    assert in_lock_order(targets) == in_lock_order(targets[::-1]) == sorted({one.key for one in targets})
    assert in_lock_order([targets[0], targets[0]]) == [targets[0].key]


@pytest.mark.long
@pytest.mark.parametrize("touches", [False, True], ids=[WITH, WITHOUT])
def test_12_the_tasks_transaction_leaves_its_jobs_row_alone(other: Rival, third: Rival, touches: bool) -> None:
    """jobqueue never writes the row before it takes the lock. A task that does can deadlock with a request that decides about its job."""
    one = job(running=True)
    canceling: list[Any] = []

    def function() -> None:
        if touches:
            Job.objects.filter(pk=one.pk).update(phase="mine")
        canceling.append(other.start(control.cancel, one.pk))
        if touches:
            third.do(wait_until_somebody_waits_for_a_lock)  # not here: inside a transaction the server shows what was
        else:
            canceling[0].result(20)

    run = run_of(function, number=one.pk, lease_token=1, target="t")
    assert run.entry is not None
    run.entry = replace(run.entry, transactional=True)
    outcome = execute(run)
    deadlocks = [outcome.failure.summary] if outcome.failure else []
    try:
        canceling[0].result(20)
    except OperationalError as error:
        deadlocks.append(str(error))
    assert ["deadlock detected" in text for text in deadlocks] == [True] * touches, deadlocks
    assert (place(one) == states.SUCCESS) == (not outcome.failure)
