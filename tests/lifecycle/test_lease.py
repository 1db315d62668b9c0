"""Renew and mark: an owner's writes between claim and finish, fenced by the token."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from jobqueue import clock
from jobqueue.db import Lease, Mark, Renewed
from jobqueue.db import leases as leases_sql
from jobqueue.lifecycle.expire import expire_stale_running_jobs
from jobqueue.models import Job
from tests.factories import JobFactory
from tests.rivals import Rival


def row(job: Job) -> dict[str, Any]:
    return Job.objects.filter(pk=job.pk).values().get()


@pytest.mark.django_db
def test_a_renewal_gives_every_lease_its_full_time_again() -> None:
    jobs = JobFactory.create_batch(3, running=True, lease_expires_at=clock.now() + timedelta(seconds=1))
    found = Job.objects.renew([Lease(job.pk, 1) for job in jobs], 30)
    assert sorted(found) == [Renewed(job.pk, 1, False, "") for job in jobs]
    for job in jobs:
        job.refresh_from_db()
        assert job.lease_expires_at - clock.now() > timedelta(seconds=25)
        assert clock.now() - job.heartbeat_at < timedelta(seconds=5)


@pytest.mark.django_db
def test_a_renewal_returns_the_requests_to_stop() -> None:
    plain, pausing = JobFactory(running=True), JobFactory(pause_requested=True)
    canceling = JobFactory(cancel_requested_=True)
    found = Job.objects.renew([Lease(job.pk, 1) for job in (plain, pausing, canceling)], 30)
    assert sorted(found) == [
        Renewed(plain.pk, 1, False, ""),
        Renewed(pausing.pk, 1, True, "PAUSED"),
        Renewed(canceling.pk, 1, True, "CANCELED"),
    ]


@pytest.mark.django_db
@pytest.mark.parametrize("token", [1, 3])
def test_a_renewal_with_another_token_changes_nothing(token: int) -> None:
    job = JobFactory(running=True, lease_token=2)
    before = row(job)
    assert Job.objects.renew([Lease(job.pk, token)], 300) == []
    assert row(job) == before


@pytest.mark.django_db
@pytest.mark.parametrize("trait", ["queued", "waiting_for_retry", "paused", "error", "success", "canceled"])
def test_a_renewal_of_a_job_that_does_not_run_changes_nothing(trait: str) -> None:
    job = JobFactory(**{trait: True, "lease_token": 1})
    before = row(job)
    assert Job.objects.renew([Lease(job.pk, 1)], 300) == []
    assert row(job) == before


@pytest.mark.django_db
def test_a_lease_that_has_run_out_is_revived_if_no_worker_recovered_its_job() -> None:
    job = JobFactory(expired=True)
    assert len(Job.objects.renew([Lease(job.pk, 1)], 30)) == 1
    assert expire_stale_running_jobs() == []
    job.refresh_from_db()
    assert job.status == "RUNNING"


@pytest.mark.django_db
def test_a_lease_that_was_swept_is_gone_for_good() -> None:
    job = JobFactory(expired=True)
    expire_stale_running_jobs()
    before = row(job)
    assert Job.objects.renew([Lease(job.pk, 1)], 30) == []
    assert Job.objects.still_ours([Lease(job.pk, 1)]) == set()
    assert row(job) == before


@pytest.mark.django_db
def test_no_leases_need_no_statement(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert Job.objects.renew([], 30) == []


@pytest.mark.django_db
def test_all_leases_of_a_process_take_one_statement_on_postgresql(django_assert_max_num_queries: Any) -> None:
    jobs = JobFactory.create_batch(20, running=True)
    Job.objects.database.rows("SELECT 1")
    Job.objects.renew([Lease(jobs[0].pk, 1)], 30)  # whatever is asked once only
    from django.db import connection

    with django_assert_max_num_queries(1 if connection.vendor == "postgresql" else 22):
        assert len(Job.objects.renew([Lease(job.pk, 1) for job in jobs], 30)) == 20


@pytest.mark.postgresql
def test_one_locked_row_delays_no_other_lease(rival: Rival) -> None:
    locked, free = JobFactory(running=True), JobFactory(running=True)
    leases = [Lease(locked.pk, 1), Lease(free.pk, 1)]
    with rival.locking(locked):
        assert [found.job_id for found in Job.objects.renew(leases, 30)] == [free.pk]
        assert Job.objects.still_ours(leases) == set(leases)  # the lease is valid and the row locked: no reason to stop
    assert len(Job.objects.renew(leases, 30)) == 2


@pytest.mark.django_db
def test_still_ours_returns_the_workers_own_leases() -> None:
    ours, taken_over, ended = JobFactory(running=True), JobFactory(running=True, lease_token=2), JobFactory(success=True, lease_token=1)
    assert Job.objects.still_ours([Lease(ours.pk, 1), Lease(taken_over.pk, 1), Lease(ended.pk, 1), Lease(0, 1)]) == {Lease(ours.pk, 1)}


def mark(job: Job, token: int = 1, **fields: Any) -> list[Lease]:
    values: dict[str, Any] = {"began_ago": 2.0, "progress": None, "message": None, "metadata": None, **fields}
    return leases_sql.mark(Job.objects.database, [Mark(job.pk, token, **values)])


@pytest.mark.django_db
def test_a_mark_shows_that_the_run_began() -> None:
    job = JobFactory(running=True)
    assert mark(job) == [Lease(job.pk, 1)]
    job.refresh_from_db()
    assert not job.assigned
    assert job.started_at == job.first_started_at
    assert timedelta(seconds=1.5) < clock.now() - job.started_at < timedelta(seconds=7)


@pytest.mark.django_db
def test_a_second_mark_leaves_the_beginning_and_what_it_does_not_name() -> None:
    job = JobFactory(running=True)
    mark(job, progress=40, message="half", metadata='{"a": 1}')
    began = row(job)["started_at"]
    mark(job, began_ago=1.0)
    job.refresh_from_db()
    assert (job.started_at, job.progress, job.message, job.metadata) == (began, 40, "half", {"a": 1})


@pytest.mark.django_db
def test_the_first_beginning_of_a_job_stays_through_its_later_runs() -> None:
    long_ago = clock.now() - timedelta(days=1)
    job = JobFactory(running=True, attempt=2, first_started_at=long_ago)
    mark(job)
    job.refresh_from_db()
    assert job.first_started_at == long_ago
    assert job.started_at > long_ago


@pytest.mark.django_db
def test_many_marks_each_write_their_own_row() -> None:
    jobs = JobFactory.create_batch(3, running=True)
    marks = [Mark(job.pk, 1, 0.5, index * 10, f"step {index}", None) for index, job in enumerate(jobs)]
    assert sorted(leases_sql.mark(Job.objects.database, marks)) == [Lease(job.pk, 1) for job in jobs]
    assert [(row(job)["progress"], row(job)["message"]) for job in jobs] == [(0, "step 0"), (10, "step 1"), (20, "step 2")]


@pytest.mark.django_db
@pytest.mark.parametrize(("trait", "token"), [("running", 1), ("running", 3), ("queued", 2), ("success", 2), ("paused", 2)])
def test_a_mark_by_a_worker_that_is_not_the_owner_changes_nothing(trait: str, token: int) -> None:
    job = JobFactory(**{trait: True, "lease_token": 2})
    before = row(job)
    assert mark(job, token, progress=99, message="mine", metadata="{}") == []
    assert row(job) == before


@pytest.mark.postgresql
def test_a_mark_passes_over_a_locked_row(rival: Rival) -> None:
    locked, free = JobFactory(running=True), JobFactory(running=True)
    with rival.locking(locked):
        marks = [Mark(job.pk, 1, 0.5, 10, None, None) for job in (locked, free)]
        assert leases_sql.mark(Job.objects.database, marks) == [Lease(free.pk, 1)]
