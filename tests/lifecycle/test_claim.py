"""Claim: QUEUED jobs become RUNNING, in order, each with a lease of one owner."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from jobqueue import clock
from jobqueue.models import Job, Worker
from tests.claiming import claim
from tests.factories import JobFactory, WorkerFactory
from tests.rivals import Rival, together


def ids(jobs: Any) -> list[int]:
    return [job.id for job in jobs]


@pytest.mark.django_db
def test_a_claim_makes_the_job_running_under_a_lease_of_its_owner() -> None:
    job = JobFactory(lease_token=4, attempt=2, args=[1, "é"], kwargs={"b": None}, message="old")
    [claimed] = claim("worker-1", (), 10, 30)
    job.refresh_from_db()
    assert (job.status, job.lease_owner, job.lease_token, job.attempt, job.message) == ("RUNNING", "worker-1", 5, 3, "")
    assert timedelta(seconds=25) < job.lease_expires_at - clock.now() <= timedelta(seconds=30.5)
    assert abs(job.heartbeat_at - clock.now()) < timedelta(seconds=5)
    assert (claimed.id, claimed.lease_token, claimed.attempt, claimed.task) == (job.pk, 5, 3, "tests.tasks.add")
    assert (json.loads(claimed.args), json.loads(claimed.kwargs)) == ([1, "é"], {"b": None})


@pytest.mark.django_db
def test_a_claimed_job_that_has_not_begun_is_assigned() -> None:
    job = JobFactory(started_at=clock.now())
    claim("worker-1", (), 1, 30)
    job.refresh_from_db()
    assert job.started_at is None
    assert job.assigned


@pytest.mark.django_db
def test_an_old_request_to_stop_never_hits_the_new_run() -> None:
    job = JobFactory(cancel_requested=True, cancel_outcome="CANCELED")
    claim("worker-1", (), 1, 30)
    job.refresh_from_db()
    assert (job.cancel_requested, job.cancel_outcome) == (False, "")


@pytest.mark.django_db
@pytest.mark.parametrize("queues", [(), ("default",), ("default", "mail"), ("mail", "default", "nobody")])
def test_the_order_is_priority_and_then_creation(queues: tuple[str, ...]) -> None:
    low, first, second, high = (JobFactory(priority=priority) for priority in (-5, 0, 0, 7))
    assert ids(claim("worker-1", queues, 10, 30)) == [high.pk, first.pk, second.pk, low.pk]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("queues", "expected"),
    [
        ((), [3, 0, 1, 2]),
        (("mail",), [3, 1]),
        (("mail", "reports"), [3, 1, 2]),
        (("default", "reports"), [0, 2]),
        (("nobody",), []),
        (("m",), []),
    ],
)
def test_only_the_jobs_of_the_named_queues_are_taken(queues: tuple[str, ...], expected: list[int]) -> None:
    jobs = [JobFactory(queue="default"), JobFactory(queue="mail"), JobFactory(queue="reports"), JobFactory(queue="mail", priority=1)]
    assert ids(claim("worker-1", queues, 10, 30)) == [jobs[index].pk for index in expected]


@pytest.mark.django_db
@pytest.mark.parametrize("queues", [(), ("a",), ("a", "b")])
def test_no_more_than_the_limit_is_taken_and_the_best_of_all_queues_come_first(queues: tuple[str, ...]) -> None:
    jobs = [JobFactory(queue=queue, priority=priority) for queue in "ab" for priority in (1, 3, 2)]
    best = sorted((job for job in jobs if not queues or job.queue in queues), key=lambda job: (-job.priority, job.pk))
    assert ids(claim("worker-1", queues, 2, 30)) == ids(best[:2])
    assert ids(claim("worker-1", queues, 3, 30)) == ids(best[2:5])


@pytest.mark.django_db
@pytest.mark.parametrize("queues", [(), ("default",), ("default", "mail")])
def test_the_cursor_starts_behind_the_named_place(queues: tuple[str, ...]) -> None:
    before, at, behind, lower = (JobFactory(priority=priority) for priority in (5, 3, 3, 0))
    assert ids(claim("worker-1", queues, 10, 30, after=(-3, at.pk))) == [behind.pk, lower.pk]
    assert ids(claim("worker-1", queues, 10, 30)) == [before.pk, at.pk]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "trait",
    ["scheduled", "due", "waiting_for_children", "waiting_for_target", "running", "expired", "paused", "error", "success", "canceled"],
)
@pytest.mark.parametrize("queues", [(), ("default",), ("default", "mail")])
def test_nothing_but_queued_is_taken(trait: str, queues: tuple[str, ...]) -> None:
    job = JobFactory(**{trait: True})
    before = Job.objects.filter(pk=job.pk).values().get()
    assert claim("worker-2", queues, 10, 30) == []
    assert Job.objects.filter(pk=job.pk).values().get() == before


@pytest.mark.django_db
def test_a_job_with_a_target_holds_it_from_the_claim_on() -> None:
    targeted, plain = JobFactory(target="customer:7"), JobFactory()
    claim("worker-1", (), 10, 30)
    targeted.refresh_from_db()
    plain.refresh_from_db()
    assert (targeted.holds_target, plain.holds_target) == (True, False)


@pytest.mark.django_db
def test_the_workers_table_decides_nothing() -> None:
    JobFactory.create_batch(2)
    WorkerFactory(state=Worker.State.DRAINING)
    assert len(claim("a worker without a row", (), 10, 30)) == 2


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("queues", [(), ("default",), ("default", "mail")])
def test_claimers_at_the_same_moment_never_share_a_job(queues: tuple[str, ...]) -> None:
    JobFactory.create_batch(60)
    JobFactory.create_batch(20, queue="mail")

    def take_all(owner: str) -> list[int]:
        taken: list[int] = []
        misses = 0
        while misses < 5:
            more = ids(claim(owner, queues, 3, 30))
            taken += more
            misses = 0 if more else misses + 1
        return taken

    taken = together(*[lambda owner=owner: take_all(owner) for owner in ("worker-1", "worker-2", "worker-3", "worker-4")])
    everything = [job for one in taken for job in one]
    assert len(everything) == len(set(everything)) == (60 if queues == ("default",) else 80)
    for owner, mine in enumerate(taken, 1):
        assert set(Job.objects.filter(lease_owner=f"worker-{owner}").values_list("pk", flat=True)) == set(mine)
    assert set(Job.objects.exclude(status="QUEUED").values_list("lease_token", "attempt")) == {(1, 1)}


@pytest.mark.postgresql
@pytest.mark.parametrize("queues", [(), ("default",), ("default", "mail")])
def test_a_row_that_is_locked_is_passed_over_without_waiting(rival: Rival, queues: tuple[str, ...]) -> None:
    locked, free = JobFactory(priority=9), JobFactory()
    with rival.locking(locked):
        assert ids(claim("worker-1", queues, 1, 30)) == [free.pk]
    assert ids(claim("worker-1", queues, 1, 30)) == [locked.pk]


@pytest.mark.postgresql
def test_a_foreign_key_that_refers_to_the_row_hides_no_job(rival: Rival) -> None:
    job = JobFactory()
    with rival.transaction():
        rival.do(lambda: connection.cursor().execute("SELECT 1 FROM jobqueue_job WHERE id = %s FOR KEY SHARE", [job.pk]))
        assert ids(claim("worker-1", (), 1, 30)) == [job.pk]


# A row whose numbers have no room left: the claim that would count it up is refused.

FULL = 2**31 - 1


@pytest.fixture
def refusing(transactional_db: None) -> Iterator[None]:
    """Make SQLite, which has larger numbers, refuse what PostgreSQL refuses."""
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            condition = f"WHEN new.attempt > {FULL} BEGIN SELECT RAISE(ABORT, 'out of range'); END"
            cursor.execute(f"CREATE TRIGGER refuse_row BEFORE UPDATE ON jobqueue_job {condition}")
    yield
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER refuse_row")


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("target", ["", "customer:7"])
def test_a_row_that_the_database_refuses_is_set_aside_with_the_reason_and_blocks_no_other(target: str) -> None:
    bad, good, other = JobFactory(target=target, priority=5, attempt=FULL), JobFactory(), JobFactory(queue="mail", target="t")
    behind = JobFactory(target=target) if target else None
    assert ids(claim("worker-1", (), 10, 30)) == [good.pk, other.pk]
    bad.refresh_from_db()
    good.refresh_from_db()
    assert (bad.status, bad.attempt, bad.lease_token, bad.lease_owner, bad.holds_target) == ("ERROR", FULL, 0, "", False)
    assert bad.message.startswith("Set aside: it cannot be claimed: ")
    assert bad.finished_at is not None
    assert (good.status, good.lease_token, good.attempt) == ("RUNNING", 1, 1)
    assert claim("worker-1", (), 10, 30) == []
    if behind is not None:  # a row in ERROR blocks its target until a person decides
        bad.cancel()
        assert ids(claim("worker-1", (), 10, 30)) == [behind.pk]


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("target", ["", "customer:7"])
def test_jobs_that_are_claimed_one_by_one_have_the_same_values(target: str) -> None:
    JobFactory(attempt=FULL, target=target)
    job = JobFactory(
        args=[{"a": 1}], kwargs={"b": "c"}, priority=4, attempt=1, lease_token=3, failures=1, cancel_requested=True, cancel_outcome="PAUSED"
    )
    [claimed] = claim("worker-1", (), 10, 30)
    job.refresh_from_db()
    assert (
        (claimed.id, claimed.claim_rank, claimed.lease_token, claimed.attempt)
        == (job.pk, -4, 4, 2)
        == (job.pk, -4, job.lease_token, job.attempt)
    )
    assert (json.loads(claimed.args), json.loads(claimed.kwargs)) == ([{"a": 1}], {"b": "c"})
    assert (job.status, job.lease_owner, job.cancel_requested, job.cancel_outcome) == ("RUNNING", "worker-1", False, "")


@pytest.mark.usefixtures("refusing")
def test_if_rows_are_taken_one_by_one_limit_order_and_queues_still_apply() -> None:
    JobFactory(attempt=FULL, priority=9, queue="mail")
    JobFactory(priority=9)
    jobs = [JobFactory(priority=priority, queue="mail") for priority in (1, 2, 3)]
    assert ids(claim("worker-1", ("mail",), 3, 30)) == [jobs[2].pk, jobs[1].pk]
