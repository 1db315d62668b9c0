"""Targets: one job of a target at a time, in order; the holder, the waiting jobs, and the next one."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction

from jobqueue.core import states
from jobqueue.core.queue_rules import parse
from jobqueue.core.targets import Target
from jobqueue.db import Claimed, Lease, LeaseHolder
from jobqueue.exceptions import JobIsRunning
from jobqueue.lifecycle import control
from jobqueue.lifecycle.expire import expire_stale_running_jobs
from jobqueue.lifecycle.finish import finish
from jobqueue.lifecycle.outcome import HandOver, Kind, Outcome
from jobqueue.lifecycle.promote import promote_due_jobs
from jobqueue.lifecycle.release import release_parked_targets
from jobqueue.models import Job
from tests.claiming import claim
from tests.factories import JobFactory
from tests.rivals import Rival

pytestmark = pytest.mark.django_db
SEVEN = {"target": "customer:7"}


def ids(jobs: Any) -> list[int]:
    return [job.id for job in jobs]


def take(limit: int = 10, **scope: Any) -> list[int]:
    return ids(claim("worker-1", scope.pop("queues", ()), limit, 30, **scope))


def end(job: Job, kind: Kind = Kind.SUCCESS, **values: Any) -> str:
    job.refresh_from_db()
    [settled] = finish([Outcome(Lease(job.pk, job.lease_token), kind, target=job.tenant_target, **values)])
    return settled.status


def places(*jobs: Job) -> list[tuple[str, str]]:
    rows = {job.pk: job.place for job in Job.objects.filter(pk__in=[job.pk for job in jobs])}
    return [rows[job.pk] for job in jobs]


def taken_over(job: Job, hand_over: HandOver, kind: Kind = Kind.SUCCESS) -> list[Claimed]:
    """End a job; return what was taken over with its end."""
    job.refresh_from_db()
    settled = finish([Outcome(Lease(job.pk, job.lease_token), kind, target=job.tenant_target)], hand_over)
    return [one.following for one in settled if one.following is not None]


def mine(*leases: Lease, **values: Any) -> HandOver:
    return HandOver(LeaseHolder("worker-1", 30.0), leases, **values)


def test_one_job_of_a_target_is_taken_and_the_others_are_parked() -> None:
    first, second, third, free = JobFactory(**SEVEN), JobFactory(**SEVEN), JobFactory(**SEVEN), JobFactory()
    assert take() == [first.pk, free.pk]
    assert places(first, second, third) == [states.RUNNING, states.PENDING_TARGET, states.PENDING_TARGET]
    first.refresh_from_db()
    assert (first.holds_target, Job.objects.filter(holds_target=True).count()) == (True, 1)


def test_the_best_of_a_target_goes_first_and_then_by_age() -> None:
    jobs = [JobFactory(**SEVEN, priority=priority) for priority in (0, 5, 0, 5)]
    order = []
    while taken := take():
        order += taken
        end(Job.objects.get(pk=taken[0]))
    assert order == [jobs[index].pk for index in (1, 3, 0, 2)]


def test_a_target_belongs_to_one_tenant_and_crosses_queues() -> None:
    one, other = JobFactory(**SEVEN, queue="mail"), JobFactory(**SEVEN, queue="reports")
    foreign = JobFactory(**SEVEN, tenant="acme")
    assert (take(), take(tenant="acme")) == ([one.pk], [foreign.pk])
    assert places(other) == [states.PENDING_TARGET]


@pytest.mark.parametrize("trait", ["paused", "error"])
@pytest.mark.parametrize("holds", [True, False])
def test_a_paused_or_failed_job_blocks_its_target_until_it_is_canceled(trait: str, holds: bool) -> None:
    blocker, waiting = JobFactory(**SEVEN, **{trait: True}, holds_target=holds), JobFactory(**SEVEN)
    assert take() == []
    assert places(waiting) == [states.PENDING_TARGET]
    control.cancel(blocker.pk)
    assert take() == [waiting.pk]


def test_a_retry_holds_its_target_and_a_job_scheduled_by_its_caller_does_not() -> None:
    later, first, second = JobFactory(**SEVEN, scheduled=True), JobFactory(**SEVEN), JobFactory(**SEVEN)
    assert take() == [first.pk]
    assert end(first, Kind.RETRY, delay_seconds=60.0) == "PENDING"
    assert (take(), places(later, second)) == ([], [states.PENDING_TIME, states.PENDING_TARGET])
    control.run_now(first.pk)
    assert take() == [first.pk], "the holder goes first"


def test_another_blocker_stops_a_holder_that_waits_and_the_holder_goes_first_afterwards() -> None:
    holder, other = JobFactory(**SEVEN), JobFactory(**SEVEN, priority=-1)
    better = JobFactory(**SEVEN, priority=-1)
    assert take(1) == [holder.pk]
    control.pause(other.pk)
    assert end(holder, Kind.HANDED_BACK) == "QUEUED"
    assert (take(), places(holder)) == ([], [states.PENDING_TARGET])
    Job.objects.filter(pk=better.pk).update(priority=50)
    control.cancel(other.pk)
    assert take() == [holder.pk]


def test_ending_releases_the_next_one_at_once() -> None:
    first, second, third = (JobFactory(**SEVEN) for _ in range(3))
    take()
    assert end(first) == "SUCCESS"
    assert places(first, second, third) == [states.SUCCESS, states.QUEUED, states.PENDING_TARGET]
    assert take() == [second.pk]
    assert end(second, Kind.ERROR) == "ERROR"
    assert (take(), places(third)) == ([], [states.PENDING_TARGET])
    control.resume(second.pk)
    assert take() == [second.pk]


def test_a_hand_over_takes_the_best_of_those_that_are_queued_and_parked() -> None:
    first, parked = JobFactory(**SEVEN), JobFactory(**SEVEN)
    take()
    better = JobFactory(**SEVEN, priority=3)
    taken = taken_over(first, mine(Lease(first.pk, 1)))
    assert [(job.id, job.lease_token, job.attempt) for job in taken] == [(better.pk, 1, 1)]
    better.refresh_from_db()
    assert (better.status, better.lease_owner, better.holds_target) == ("RUNNING", "worker-1", True)
    assert places(first, parked) == [states.SUCCESS, states.PENDING_TARGET]
    taken = taken_over(better, mine(Lease(better.pk, 1)))
    assert ids(taken) == [parked.pk]


@pytest.mark.parametrize(
    "forbidden",
    [
        {"leases": False},
        {"excluded_queues": ("default",)},
        {"queues": parse(("mail",))},
        {"queues": parse(("def*", "!default"))},
        {"queues": parse(("!d*",))},
        {"rival": {"priority": 9}},
        {"rival": {"priority": 9, "queue": "mail"}},
        {"rival": {"priority": 9, "queue": "mail"}, "excluded_queues": ("reports",)},
        {"rival": {"priority": 9, "queue": "mail"}, "queues": parse(("default", "mail"))},
        {"rival": {"priority": 9, "queue": "mail"}, "queues": parse(("default", "m*"))},
    ],
)
def test_without_a_hand_over_the_next_job_is_released(forbidden: dict[str, Any]) -> None:
    first, second = JobFactory(**SEVEN), JobFactory(**SEVEN)
    take()
    if "rival" in forbidden:
        JobFactory(**forbidden.pop("rival"))
    taken = taken_over(first, mine(*([Lease(first.pk, 1)] if forbidden.pop("leases", True) else []), **forbidden))
    assert (taken, places(second)) == ([], [states.QUEUED])


@pytest.mark.parametrize(
    "where",
    [
        {"excluded_queues": ("mail",)},
        {"queues": parse(("default", "reports"))},
        {"queues": parse(("d*", "!mail"))},
        {"queues": parse(("!mai*",))},
    ],
)
def test_a_better_job_that_no_worker_may_claim_does_not_disable_hand_over(where: dict[str, Any]) -> None:
    first, second = JobFactory(**SEVEN), JobFactory(**SEVEN)
    take()
    JobFactory(priority=9, queue="mail")
    taken = taken_over(first, mine(Lease(first.pk, 1), **where))
    assert ids(taken) == [second.pk]


@pytest.mark.parametrize("kind", [Kind.ERROR, Kind.RETRY, Kind.HANDED_BACK, Kind.STOPPED])
def test_an_end_that_does_not_free_the_target_hands_nothing_over(kind: Kind) -> None:
    first, second = JobFactory(**SEVEN), JobFactory(**SEVEN)
    take()
    taken = taken_over(first, mine(Lease(first.pk, 1)), kind)
    assert (taken, places(second)) == ([], [states.PENDING_TARGET])


def test_a_canceled_run_frees_its_target() -> None:
    first, second = JobFactory(**SEVEN), JobFactory(**SEVEN)
    take()
    control.cancel(first.pk)
    assert end(first, Kind.INTERRUPTED) == "CANCELED"
    assert places(second) == [states.QUEUED]


def test_a_released_job_that_is_canceled_releases_the_next_one() -> None:
    first, second, third = (JobFactory(**SEVEN) for _ in range(3))
    take()
    end(first)
    control.cancel(second.pk)
    assert places(third) == [states.QUEUED]


@pytest.mark.parametrize("trait", ["paused", "error", "scheduled"])
def test_deletion_moves_the_line_on(trait: str) -> None:
    first, second = JobFactory(**SEVEN, **{trait: True}, holds_target=True), JobFactory(**SEVEN)
    assert take() == []
    first.delete()
    assert places(second) == [states.QUEUED]


def test_a_running_job_is_not_deleted() -> None:
    job, done = JobFactory(running=True), JobFactory(success=True)
    with pytest.raises(JobIsRunning, match="cancel it first"):
        job.delete()
    with pytest.raises(JobIsRunning, match=str(job.pk)):
        Job.objects.all().delete()
    assert Job.objects.count() == 2
    assert Job.objects.filter(pk=done.pk).delete() == (1, {"jobqueue.Job": 1})


def test_bulk_deletion_moves_every_line_on() -> None:
    holders = [JobFactory(target=f"t{n}", holds_target=True, error=True) for n in range(3)]
    waiting = [JobFactory(target=f"t{n}") for n in range(3)]
    plain = JobFactory()
    assert take() == [plain.pk]
    assert Job.objects.filter(pk__in=[job.pk for job in holders]).delete() == (3, {"jobqueue.Job": 3})
    assert places(*waiting) == [states.QUEUED] * 3


def test_clearing_a_target_cancels_what_blocks_it() -> None:
    holder, other, waiting = JobFactory(**SEVEN, error=True, holds_target=True), JobFactory(**SEVEN, paused=True), JobFactory(**SEVEN)
    assert take() == []
    assert [answer.status for answer in control.clear_target("customer:7")] == ["CANCELED", "CANCELED"]
    assert places(holder, other, waiting) == [states.CANCELED, states.CANCELED, states.QUEUED]
    assert control.clear_target("customer:7") == []


def test_an_expired_holder_stays_the_first_of_its_target() -> None:
    holder, waiting = JobFactory(**SEVEN, expired=True, holds_target=True), JobFactory(**SEVEN, priority=9)
    assert take() == []
    assert [one.status for one in expire_stale_running_jobs()] == ["QUEUED"]
    assert take() == [holder.pk]
    assert places(waiting) == [states.PENDING_TARGET]


def test_an_expired_holder_that_was_to_be_canceled_releases_the_next_one() -> None:
    JobFactory(**SEVEN, expired=True, holds_target=True, cancel_requested=True, cancel_outcome="CANCELED")
    waiting = JobFactory(**SEVEN)
    assert take() == []
    expire_stale_running_jobs()
    assert places(waiting) == [states.QUEUED]


def test_rows_that_raw_sql_leaves_behind_are_repaired() -> None:
    holder = JobFactory(**SEVEN, paused=True, holds_target=True)
    waiting = [JobFactory(**SEVEN), JobFactory(**SEVEN)]
    parked = [JobFactory(target=f"t{n:03}", waiting_for_target=True) for n in range(20)]
    assert take() == []
    assert release_parked_targets() == 20
    Job.objects.filter(pk=holder.pk).erase()
    assert release_parked_targets() == 1
    assert places(*waiting, *parked) == [states.QUEUED, states.PENDING_TARGET] + [states.QUEUED] * 20
    assert release_parked_targets() == 0


def test_a_job_due_now_waits_behind_its_target() -> None:
    holder, due = JobFactory(**SEVEN), JobFactory(**SEVEN, due=True)
    assert take() == [holder.pk]
    promote_due_jobs()
    assert (take(), places(due)) == ([], [states.PENDING_TARGET])


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgresql
def test_a_target_whose_lock_is_taken_is_skipped(rival: Rival) -> None:
    first, free = JobFactory(**SEVEN), JobFactory()
    with rival.holding(Target("", "customer:7").key):
        assert take() == [free.pk]
        assert places(first) == [states.QUEUED]
    assert take() == [first.pk]
    with rival.holding(Target("", "customer:7").key):
        assert end(first) == ""
    assert end(first) == "SUCCESS"


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgresql
def test_a_verb_inside_the_callers_transaction_leaves_no_setting_in_it() -> None:
    holder, waiting = JobFactory(**SEVEN, paused=True, holds_target=True), JobFactory(**SEVEN)
    assert take() == []
    with transaction.atomic(), connection.cursor() as cursor:
        control.cancel(holder.pk)
        assert places(waiting) == [states.QUEUED]
        cursor.execute("SELECT current_setting('enable_sort'), current_setting('enable_incremental_sort')")
        assert cursor.fetchone() == ("on", "on")
