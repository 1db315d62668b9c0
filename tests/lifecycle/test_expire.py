"""Expire: the recovery of jobs whose worker is lost, and promote: jobs that are due."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest

from jobqueue import clock
from jobqueue.core import states
from jobqueue.db import Lease
from jobqueue.duties.deliver_webhooks import DeliverWebhooks
from jobqueue.duties.promote_due_jobs import PromoteDueJobs
from jobqueue.lifecycle import expire
from jobqueue.lifecycle.expire import MAX_UNBLAMED, expire_owner, expire_stale_running_jobs
from jobqueue.models import Job, WebhookDelivery, Worker
from tests.claiming import claim
from tests.duties.asking import seconds_to_work
from tests.factories import DeliveryFactory, JobFactory, WorkerFactory
from tests.rivals import Rival, together
from tests.unchecked import unchecked, write


def row(job: Job) -> dict[str, Any]:
    return Job.objects.filter(pk=job.pk).values().get()


def sweep(job: Job) -> Job:
    assert [one.job_id for one in expire_stale_running_jobs()] == [job.pk]
    job.refresh_from_db()
    return job


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("crashes", "place", "wait"),
    [
        (0, states.QUEUED, None),
        (1, states.PENDING_TIME, 2),
        (2, states.PENDING_TIME, 4),
        (3, states.PENDING_TIME, 8),
        (4, states.ERROR, None),
    ],
)
def test_the_first_crash_is_free_later_ones_wait_longer_and_the_last_ends_in_error(
    settings: Any, crashes: int, place: states.Place, wait: int | None
) -> None:
    settings.JOBQUEUE = {"MAX_CRASHES": 5}
    job = sweep(JobFactory(expired=True, crashes=crashes, failures=1, attempt=crashes + 2, max_attempts=2))
    assert (job.place, job.crashes) == (place, crashes + 1)
    assert (job.failures, job.attempt) == (1, crashes + 2), "a crash costs no attempt of the task's own"
    if wait is not None:
        assert wait - 1 < (job.run_at - clock.now()).total_seconds() <= wait + 0.5
    assert job.message == f"worker lost {crashes + 1} time{'s' if crashes else ''}"
    assert (job.lease_owner, job.lease_expires_at, job.heartbeat_at) == ("", None, None)
    assert (job.finished_at is not None) == (place == states.ERROR)


@pytest.mark.django_db
def test_three_crashes_are_the_default_budget() -> None:
    job = sweep(JobFactory(expired=True, crashes=2))
    assert (job.status, job.message) == ("ERROR", "worker lost 3 times")


@pytest.mark.django_db
@pytest.mark.parametrize("crashes", [0, 1, 2])
def test_a_job_to_be_held_ends_in_error_at_once_and_waits_for_a_person(crashes: int) -> None:
    job = sweep(JobFactory(expired=True, recovery="hold", crashes=crashes))
    assert job.status == "ERROR"
    assert "held until an operator" in job.message
    assert job.resume().status == "QUEUED"


@pytest.mark.django_db
@pytest.mark.parametrize("recovery", states.Recovery.values)
@pytest.mark.parametrize("crashes", [0, 1, 2, 9])
@pytest.mark.parametrize("flag", ["PAUSED", "CANCELED"])
def test_a_standing_request_comes_before_recovery_and_budgets(flag: str, crashes: int, recovery: str) -> None:
    job = sweep(JobFactory(expired=True, cancel_requested=True, cancel_outcome=flag, crashes=crashes, recovery=recovery))
    assert (job.status, job.message) == (flag, "Job was interrupted by user")
    assert (job.cancel_requested, job.cancel_outcome) == (False, "")


@pytest.mark.django_db
@pytest.mark.parametrize("recovery", states.Recovery.values)
@pytest.mark.parametrize("crashes", [1, 2])
def test_a_job_that_has_crashed_before_and_had_not_begun_is_not_blamed(crashes: int, recovery: str) -> None:
    before = JobFactory(expired=True, started_at=None, crashes=crashes, attempt=4, recovery=recovery, worker_ids=["worker-0"])
    job = sweep(before)
    assert job.place == states.QUEUED
    assert (job.crashes, job.attempt, job.worker_ids, job.history) == (crashes, 3, ["worker-0"], before.history)
    assert job.message == "worker lost before the job had started"
    assert (job.lease_owner, job.lease_expires_at, job.finished_at) == ("", None, None)


@pytest.mark.django_db
def test_a_job_that_has_not_crashed_before_is_blamed_whether_its_start_is_known_or_not() -> None:
    job = sweep(JobFactory(expired=True, started_at=None, attempt=4))
    assert (job.place, job.crashes, job.attempt) == (states.QUEUED, 1, 4)


@pytest.mark.django_db
@pytest.mark.parametrize("flag", ["PAUSED", "CANCELED"])
def test_a_standing_request_stops_a_job_that_had_not_begun_too(flag: str) -> None:
    job = sweep(JobFactory(expired=True, started_at=None, crashes=1, attempt=2, cancel_requested=True, cancel_outcome=flag))
    assert (job.status, job.crashes, job.attempt, job.message) == (flag, 1, 1, "Job was interrupted by user")


def a_stopping_worker() -> str:
    return str(Worker.objects.create(pk=uuid.uuid4(), host="web-1", pid=7, state="DRAINING").pk)


@pytest.mark.django_db
@pytest.mark.parametrize("crashes", [0, 1, 2])
def test_a_job_of_a_worker_that_was_stopping_is_not_blamed(crashes: int) -> None:
    job = sweep(JobFactory(expired=True, crashes=crashes, attempt=2, lease_owner=a_stopping_worker()))
    assert (job.place, job.crashes, job.attempt) == (states.QUEUED, crashes, 2)
    assert job.message == "worker lost while it was stopping"
    assert job.last_error["message"].startswith("worker lost while it was stopping: ")


@pytest.mark.django_db
def test_a_job_that_is_lost_again_and_again_by_workers_that_stop_is_blamed_in_the_end() -> None:
    owner = a_stopping_worker()
    job = sweep(JobFactory(expired=True, lease_owner=owner))
    for _ in range(MAX_UNBLAMED - 1):
        Job.objects.filter(pk=job.pk).update(**columns_of_an_expired_job(owner))
        job = sweep(job)
        assert job.crashes == 0
    for crashes in (1, 2, 3):
        Job.objects.filter(pk=job.pk).update(**columns_of_an_expired_job(owner))
        job = sweep(job)
        assert job.crashes == crashes
    assert job.status == "ERROR"


def columns_of_an_expired_job(owner: str) -> dict[str, Any]:
    made = JobFactory.build(expired=True, lease_owner=owner)
    names = ("status", "waiting_for", "lease_owner", "lease_expires_at", "heartbeat_at", "started_at", "finished_at", "run_at")
    return {name: getattr(made, name) for name in names}


@pytest.mark.django_db
def test_the_job_that_ended_its_process_is_recovered_after_its_neighbors(monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as it is QUEUED it may hang the process that recovers, too; the next one must still know the neighbors from it."""
    owner = str(uuid.uuid4())
    culprit = JobFactory(expired=True, lease_owner=owner)
    neighbors = [JobFactory(expired=True, lease_owner=owner) for _ in range(2)]
    calls: list[str] = []

    def once(found: Any, *args: Any, **more: Any) -> list[expire.Expired]:
        calls.append("")
        if len(calls) == 2:
            raise KeyboardInterrupt
        return expire_jobs(found, *args, **more)

    expire_jobs = expire.expire_jobs
    monkeypatch.setattr(expire, "expire_jobs", once)
    with pytest.raises(KeyboardInterrupt):
        expire_owner(owner, culprit.pk)
    expire_owner(owner, culprit.pk)
    assert [Job.objects.get(pk=one.pk).crashes for one in (culprit, *neighbors)] == [1, 0, 0]


@pytest.mark.django_db
def test_a_job_to_be_held_is_held_though_its_worker_was_stopping() -> None:
    job = sweep(JobFactory(expired=True, recovery="hold", lease_owner=a_stopping_worker()))
    assert (job.status, job.crashes) == ("ERROR", 0)


@pytest.mark.django_db
def test_only_the_culprit_is_blamed_where_a_worker_was_ended_because_of_it() -> None:
    culprit, other = (JobFactory(running=True, lease_owner="worker-2") for _ in range(2))
    expire_owner("worker-2", culprit.pk)
    culprit.refresh_from_db()
    other.refresh_from_db()
    assert (culprit.crashes, other.crashes) == (1, 0)
    assert (other.place, other.message) == (states.QUEUED, "worker ended because of another job")


@pytest.mark.django_db
def test_a_claim_forgets_the_start_of_the_run_before() -> None:
    job = sweep(JobFactory(expired=True))
    assert job.started_at is not None
    (claimed,) = claim("worker-2", (), 10, 30)
    assert claimed.crashes == 1
    assert [one.job_id for one in expire_owner("worker-2")] == [job.pk]
    job.refresh_from_db()
    assert (job.place, job.crashes) == (states.QUEUED, 1)


@pytest.mark.django_db
def test_the_history_names_the_worker_that_was_lost() -> None:
    job = sweep(JobFactory(expired=True, attempt=2, worker_ids=["worker-0"]))
    entry = job.last_error
    assert (entry["attempt"], entry["worker"], entry["outcome"]) == (2, "worker-1", "LOST")
    assert "worker lost 1 time: worker-1" in entry["message"]
    assert job.worker_ids == ["worker-0", "worker-1"]


@pytest.mark.django_db
@pytest.mark.parametrize("trait", ["running", "queued", "scheduled", "due", "paused", "error", "success", "canceled"])
def test_nothing_but_running_jobs_with_a_lease_that_ran_out_is_touched(trait: str) -> None:
    job = JobFactory(**{trait: True})
    before = row(job)
    assert expire_stale_running_jobs() == []
    assert row(job) == before


@pytest.mark.django_db
@pytest.mark.parametrize("owner", ["no such worker", "'; --", "00000000-0000-0000-0000-000000000000"])
def test_expiry_is_judged_on_the_jobs_row_alone(owner: str) -> None:
    WorkerFactory(host="alive")
    job = JobFactory(expired=True, lease_owner=owner)
    Worker.objects.all().delete()
    assert sweep(job).place == states.QUEUED


@pytest.mark.django_db
def test_a_second_sweep_finds_nothing_more() -> None:
    job = sweep(JobFactory(expired=True))
    before = row(job)
    assert expire_stale_running_jobs() == []
    assert row(job) == before


@pytest.mark.django_db
def test_the_requeued_job_keeps_its_old_place_and_its_target() -> None:
    lost, later = JobFactory(expired=True, target="customer:7"), JobFactory()
    sweep(lost)
    assert lost.holds_target
    assert [job.id for job in claim("worker-2", (), 10, 30)] == [lost.pk, later.pk]


@pytest.mark.django_db
def test_a_crashed_job_that_waits_runs_after_the_others() -> None:
    lost, other = JobFactory(expired=True, crashes=1), JobFactory()
    sweep(lost)
    assert [job.id for job in claim("worker-2", (), 10, 30)] == [other.pk]


@pytest.mark.django_db
def test_a_cancel_frees_the_target_and_an_error_keeps_it() -> None:
    canceled = JobFactory(expired=True, target="a", cancel_requested=True, cancel_outcome="CANCELED")
    failed = JobFactory(expired=True, target="b", recovery="hold")
    expire_stale_running_jobs()
    assert [row(job)["holds_target"] for job in (canceled, failed)] == [False, True]


@pytest.mark.django_db
def test_a_job_whose_key_is_still_free_is_resumed_with_it() -> None:
    job = sweep(JobFactory(expired=True, unique_key="report:7"))
    assert (job.status, job.unique_key) == ("QUEUED", "report:7")


@pytest.mark.long
@pytest.mark.django_db
def test_a_limit_bounds_the_sweep_and_more_than_a_batch_is_swept_without() -> None:
    Job.objects.bulk_create([JobFactory.build(expired=True) for _ in range(130)])
    assert len(expire_stale_running_jobs(limit=7)) == 7
    assert len(expire_stale_running_jobs()) == 123
    assert set(Job.objects.values_list("status", "crashes")) == {("QUEUED", 1)}


@pytest.mark.django_db
def test_a_worker_that_is_known_to_be_dead_gives_its_jobs_back_before_their_leases_end() -> None:
    mine, others = JobFactory.create_batch(2, running=True), JobFactory(running=True, lease_owner="worker-2")
    before = row(others)
    assert sorted(one.job_id for one in expire_owner("worker-1")) == [job.pk for job in mine]
    assert [row(job)["status"] for job in mine] == ["QUEUED", "QUEUED"]
    assert row(others) == before


@pytest.mark.postgresql
def test_a_locked_row_is_recovered_later(rival: Rival) -> None:
    locked, free = JobFactory(expired=True), JobFactory(expired=True)
    with rival.locking(locked):
        assert [one.job_id for one in expire_stale_running_jobs()] == [free.pk]
    assert [one.job_id for one in expire_stale_running_jobs()] == [locked.pk]


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_sweeps_at_the_same_moment_blame_each_job_once() -> None:
    jobs = Job.objects.bulk_create([JobFactory.build(expired=True) for _ in range(150)])
    swept = [one.job_id for sweep in together(*[expire_stale_running_jobs] * 3) for one in sweep]
    swept += [one.job_id for one in expire_stale_running_jobs()]
    assert sorted(swept) == sorted(job.pk for job in jobs)
    assert set(Job.objects.values_list("status", "crashes", "lease_owner")) == {("QUEUED", 1, "")}


@pytest.mark.django_db(transaction=True)
def test_a_renewal_and_a_sweep_at_the_same_moment_have_one_winner() -> None:
    jobs = Job.objects.bulk_create([JobFactory.build(expired=True) for _ in range(60)])
    leases = [Lease(job.pk, 1) for job in jobs]
    renewed, swept = together(lambda: Job.objects.renew(leases, 30), expire_stale_running_jobs)
    assert not {one.job_id for one in renewed} & {one.job_id for one in swept}
    assert set(Job.objects.filter(status="RUNNING", lease_expires_at__gt=clock.now()).values_list("pk", flat=True)) == {
        one.job_id for one in renewed
    }


# Promote


@pytest.mark.django_db
def test_only_jobs_that_are_due_are_queued() -> None:
    due = [JobFactory(due=True, queue="mail"), JobFactory(waiting_for_retry=True, run_at=clock.now() - timedelta(seconds=1))]
    waiting = [
        JobFactory(scheduled=True),
        JobFactory(waiting_for_children=True),
        JobFactory(waiting_for_target=True),
        JobFactory(paused=True),
    ]
    past = clock.now() - timedelta(seconds=1)
    waiting += [JobFactory(waiting_for_children=True, run_at=past), JobFactory(waiting_for_target=True, run_at=past)]
    waiting += [JobFactory(paused=True, run_at=past), JobFactory(error=True, run_at=past)]
    before = [row(job) for job in waiting]
    assert sorted(Job.objects.promote_due(10)) == [("default", ""), ("mail", "")]
    assert [(row(job)["status"], row(job)["waiting_for"]) for job in due] == [("QUEUED", "")] * 2
    assert all(clock.now() - row(job)["enqueued_at"] < timedelta(seconds=5) for job in due)
    assert [row(job) for job in waiting] == before


@pytest.mark.django_db
def test_a_batch_is_bounded_and_takes_what_has_waited_longest() -> None:
    jobs = [JobFactory(due=True, run_at=clock.now() - timedelta(seconds=seconds)) for seconds in (1, 3, 2)]
    assert len(Job.objects.promote_due(2)) == 2
    assert [row(job)["status"] for job in jobs] == ["PENDING", "QUEUED", "QUEUED"]


@pytest.mark.django_db
def test_the_next_due_time_is_returned_in_seconds_of_the_databases_clock() -> None:
    duty = PromoteDueJobs()
    assert seconds_to_work(duty) is None
    JobFactory(scheduled=True)
    assert 3500 < (seconds_to_work(duty) or 0) <= 3600
    JobFactory(due=True)
    assert (seconds_to_work(duty) or 0) < 0


@pytest.mark.postgresql
def test_promotion_passes_over_a_locked_row(rival: Rival) -> None:
    locked, free = JobFactory(due=True), JobFactory(due=True)
    with rival.locking(locked):
        assert len(Job.objects.promote_due(10)) == 1
    assert (row(locked)["status"], row(free)["status"]) == ("PENDING", "QUEUED")


@pytest.mark.django_db(transaction=True)
def test_promoters_at_the_same_moment_promote_each_job_once() -> None:
    Job.objects.bulk_create([JobFactory.build(due=True) for _ in range(60)])
    promoted = together(*[lambda: [queue for _ in range(4) for queue in Job.objects.promote_due(10)]] * 3)
    rest = Job.objects.promote_due(100)
    assert sum(map(len, promoted)) + len(rest) == 60
    assert Job.objects.filter(status="QUEUED").count() == 60


@pytest.mark.django_db
@pytest.mark.parametrize("time", ["infinity", "-infinity", "0044-03-15 12:00:00 BC"])
def test_a_time_that_python_cannot_read_stops_no_duty(time: str) -> None:
    job, delivery = JobFactory(due=True), DeliveryFactory()
    with unchecked():
        write(Job, job.pk, "run_at", f"'{time}'")
        write(WebhookDelivery, delivery.pk, "next_attempt_at", f"'{time}'")
        assert None not in [seconds_to_work(duty) for duty in (PromoteDueJobs(), DeliverWebhooks())]


@pytest.mark.django_db
@pytest.mark.parametrize("lease", ["NULL", "'infinity'", "'2900-01-01 00:00:00'"])
def test_a_lease_that_no_worker_can_have_counts_as_expired(lease: str) -> None:
    job, good = JobFactory(expired=True), JobFactory(running=True)
    with unchecked():
        write(Job, job.pk, "lease_expires_at", lease)
        assert [one.job_id for one in expire_stale_running_jobs()] == [job.pk]
    job.refresh_from_db()
    good.refresh_from_db()
    assert (job.status, good.status) == ("QUEUED", "RUNNING")
