"""Limits: never more jobs with a live lease than allowed, in all and per queue, however many workers claim at the same time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from jobqueue.db import Lease, LeaseHolder, Scope
from jobqueue.lifecycle.claim import Claim, claim
from jobqueue.lifecycle.finish import finish
from jobqueue.lifecycle.limits import Limits
from jobqueue.lifecycle.outcome import Kind, Outcome
from jobqueue.lifecycle.queues import limit_queue
from jobqueue.models import Job
from tests.factories import JobFactory
from tests.rivals import Rival, together

pytestmark = pytest.mark.django_db
at_once = pytest.mark.django_db(transaction=True)
FULL = 2**31 - 1
MAIL, BOTH = ("mail",), ("mail", "reports")


def take(limit: int = 50, *, max_running: int | None = None, limited: dict[str, int] | None = None, **scope: Any) -> Claim:
    """Claim under limits, as a worker does that has read them a moment ago."""
    return claim(LeaseHolder("worker-2", 30.0), Scope(**scope), limit, limits=Limits(max_running, limited or {}))


def flood(number: int, **job: Any) -> None:
    Job.objects.bulk_create([Job(task="tests.tasks.add", args=[1], **job) for _ in range(number)])


def alive() -> Counter[str]:
    running = Job.objects.filter(status="RUNNING", lease_expires_at__gt=timezone.now())
    return Counter(running.values_list("queue", flat=True))


def end(job: Any) -> None:
    [settled] = finish([Outcome(Lease(job.id, job.lease_token), Kind.SUCCESS)])
    assert settled.status == "SUCCESS"


# In all


@pytest.mark.parametrize(("most", "running", "expected"), [(3, 0, 3), (3, 2, 1), (3, 3, 0), (2, 3, 0), (0, 0, 0), (99, 1, 10)])
def test_a_claim_takes_no_more_than_there_is_room_for(most: int, running: int, expected: int) -> None:
    JobFactory.create_batch(running, running=True, queue="other", tenant="acme")
    flood(10)
    assert len(take(max_running=most).jobs) == expected


def test_the_best_go_first_and_the_next_when_one_has_ended() -> None:
    low, high, middle = JobFactory(priority=1), JobFactory(priority=3), JobFactory(priority=2)
    taken = take(max_running=1).jobs
    assert [job.id for job in taken] == [high.pk]
    assert take(max_running=1).jobs == []
    end(taken[0])
    assert [job.id for job in take(max_running=2).jobs] == [middle.pk, low.pk]


def test_the_limit_is_one_for_all_tenants_and_queues() -> None:
    flood(2, tenant="acme", queue="mail")
    flood(2, tenant="globex", queue="reports")
    assert len(take(max_running=3, tenant="acme").jobs) == 2
    assert len(take(max_running=3, tenant="globex").jobs) == 1


def test_a_lowered_limit_stops_no_running_job_and_starts_none_until_there_is_room() -> None:
    flood(10)
    running = take(max_running=4).jobs
    begun = []
    for job in running:
        begun.append(len(take(max_running=2).jobs))
        end(job)
    assert begun == [0, 0, 0, 1]
    assert alive() == {"default": 1}


def test_jobs_with_a_target_count_and_what_is_only_parked_does_not() -> None:
    JobFactory.create_batch(3, target="customer:7")
    JobFactory.create_batch(3)
    first = take(max_running=3)
    assert (len(first.jobs), first.parked_or_released) == (1, 2)
    assert len(take(max_running=3).jobs) == 2
    assert take(max_running=3).jobs == []


# Per queue


def test_a_limited_queue_does_not_hold_up_the_others() -> None:
    limit_queue("mail", 2)
    flood(30, queue="mail", priority=9)
    flood(3, queue="reports")
    taken = take(10, queues=BOTH, limited={"mail": 2}).jobs
    assert Counter(job.queue for job in taken) == {"mail": 2, "reports": 3}
    assert take(10, queues=BOTH, limited={"mail": 2}).jobs == []


def test_two_queues_have_each_their_own_limit() -> None:
    limited = {"mail": 2, "reports": 3}
    for name, most in limited.items():
        limit_queue(name, most)
        flood(10, queue=name)
    flood(1, queue="other")
    taken = take(queues=(*BOTH, "other"), limited=limited).jobs
    assert Counter(job.queue for job in taken) == {"mail": 2, "reports": 3, "other": 1}
    end(next(job for job in taken if job.queue == "mail"))
    assert Counter(job.queue for job in take(queues=(*BOTH, "other"), limited=limited).jobs) == {"mail": 1}


def test_both_kinds_of_limits_hold_together() -> None:
    limit_queue("mail", 2)
    flood(10, queue="mail", priority=9)
    flood(10, queue="reports")
    taken = take(queues=BOTH, limited={"mail": 2}, max_running=5).jobs
    assert Counter(job.queue for job in taken) == {"mail": 2, "reports": 3}
    limit_queue("mail", 9)
    assert take(queues=BOTH, limited={"mail": 9}, max_running=5).jobs == []


def test_a_queue_with_a_limit_of_zero_gives_nothing() -> None:
    limit_queue("mail", 0)
    flood(3, queue="mail")
    other = JobFactory(queue="reports")
    assert take(queues=MAIL, limited={"mail": 0}).jobs == []
    assert [job.id for job in take(queues=BOTH, limited={"mail": 0}).jobs] == [other.pk]


@pytest.mark.parametrize(("now", "expected"), [(1, 1), (5, 5), (None, 8)])
def test_the_number_is_read_under_the_lock_since_a_worker_may_have_seen_another(now: int | None, expected: int) -> None:
    limit_queue("mail", 3)
    flood(8, queue="mail")
    limit_queue("mail", now)
    assert len(take(queues=MAIL, limited={"mail": 3}).jobs) == expected


# Leases that have run out


def test_expired_leases_do_not_count_and_are_recovered_in_the_same_transaction() -> None:
    gone = JobFactory(expired=True)
    JobFactory(running=True)
    flood(5, priority=9)
    found = take(max_running=2)
    assert len(found.jobs) == 1
    assert [(one.job_id, one.status) for one in found.lost] == [(gone.pk, "QUEUED")]
    gone.refresh_from_db()
    assert (gone.status, gone.crashes) == ("QUEUED", 1)


def test_a_job_that_was_just_recovered_may_be_what_is_claimed() -> None:
    gone = JobFactory(expired=True, queue="mail")
    limit_queue("mail", 1)
    assert [job.id for job in take(queues=MAIL, limited={"mail": 1}).jobs] == [gone.pk]


def test_without_free_room_recovered_jobs_are_reported_anyway() -> None:
    gone = JobFactory(expired=True, recovery="hold")
    JobFactory(running=True)
    flood(1)
    found = take(max_running=1)
    assert (found.jobs, [(one.job_id, one.status) for one in found.lost]) == ([], [(gone.pk, "ERROR")])


def test_a_claim_under_a_limit_of_one_queue_leaves_the_expired_of_others_alone() -> None:
    other, mine = JobFactory(expired=True, queue="other"), JobFactory(expired=True, queue="mail")
    limit_queue("mail", 1)
    assert [one.job_id for one in take(queues=MAIL, limited={"mail": 1}).lost] == [mine.pk]
    other.refresh_from_db()
    assert other.status == "RUNNING"


@at_once
@pytest.mark.postgresql
def test_an_expired_locked_job_counts_because_its_lease_can_be_renewed(rival: Rival) -> None:
    gone = JobFactory(expired=True)
    flood(3)
    with rival.locking(gone):
        found = take(max_running=1)
    assert (found.jobs, found.lost) == ([], [])
    assert len(take(max_running=1).jobs) == 1


@at_once
@pytest.mark.postgresql
def test_a_claim_waits_for_another_that_counts_under_the_same_limit(rival: Rival) -> None:
    flood(5)
    began, done = threading.Event(), threading.Event()

    def hold() -> int:
        from django.db import transaction

        with transaction.atomic():
            number = len(take(2, max_running=3).jobs)
            began.set()
            assert done.wait(20)
            return number

    holding = rival.start(hold)
    assert began.wait(20)
    other = Rival()
    try:
        waiting = other.start(lambda: len(take(max_running=3).jobs))
        assert len(claim(LeaseHolder("worker-3", 30.0), Scope("", ("nothing",)), 5).jobs) == 0, "a claim without a limit does not wait"
        assert not waiting.done()
        done.set()
        assert (holding.result(20), waiting.result(20)) == (2, 1)
    finally:
        done.set()
        other.close()


# Many at once


@pytest.mark.long
@at_once
def test_many_that_claim_at_once_never_take_more_than_the_limits_allow() -> None:
    limits = {"mail": 3, "reports": 4}
    for name, most in limits.items():
        limit_queue(name, most)
        flood(60, queue=name)
    flood(60, queue="other")
    most_seen: Counter[str] = Counter()
    lock = threading.Lock()

    def work() -> int:
        done = 0
        for _ in range(12):
            jobs = take(4, queues=(*BOTH, "other"), limited=limits, max_running=9).jobs
            with lock:
                seen = alive()  # one statement, and so one moment
                most_seen["all"] = max(most_seen["all"], sum(seen.values()))
                for name, number in seen.items():
                    most_seen[name] = max(most_seen[name], number)
            for job in jobs:
                end(job)
            done += len(jobs)
        return done

    threads = 8 if connection.vendor == "postgresql" else 3
    done = together(*[work] * threads)
    assert sum(done) >= 12, "they hold each other up, but not for good"
    assert most_seen["mail"] <= 3
    assert most_seen["reports"] <= 4
    assert most_seen["all"] <= 9
    assert Job.objects.filter(status="SUCCESS").count() == sum(done)
    assert alive() == {}


@at_once
@pytest.mark.postgresql
def test_a_bad_row_is_set_aside_under_a_limit_and_the_others_are_taken_within_it() -> None:
    JobFactory(running=True)
    bad, *good = JobFactory(attempt=FULL, priority=5), *JobFactory.create_batch(3)
    assert [job.id for job in take(max_running=3).jobs] == [good[0].pk, good[1].pk]
    bad.refresh_from_db()
    assert bad.status == "ERROR"


# What it costs


def test_without_a_limit_a_claim_has_no_additional_statement(django_assert_num_queries: Callable[[int], Any]) -> None:
    flood(10)
    each = 1 if connection.vendor == "postgresql" else 4  # on SQLite a query and a write, in a transaction
    for limits in (None, Limits(), Limits(None, {})):
        with django_assert_num_queries(each):
            assert len(claim(LeaseHolder("worker-2", 30.0), Scope(), 3, limits=limits).jobs) == 3


def test_an_expired_lease_costs_nothing_where_no_limit_is_set() -> None:
    gone = JobFactory(expired=True)
    flood(1)
    assert claim(LeaseHolder("worker-2", 30.0), Scope(), 3).lost == ()
    gone.refresh_from_db()
    assert gone.status == "RUNNING"


def test_a_limit_of_a_queue_that_is_not_served_has_no_effect() -> None:
    assert not Limits(None, {"mail": 0}).of(("reports",))
    assert Limits(None, {"mail": 0}).of(()) == Limits(None, {"mail": 0})
    assert Limits(5, {"mail": 0}).of(("reports",)) == Limits(5, {})
