"""A job with `expires=` that has not started in time is canceled, by a duty or by the worker that claims it; a started one is not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from jobqueue import InvalidOption, clock, enqueue_many, pause, task
from jobqueue.db import LeaseHolder, Scope
from jobqueue.duties.expire_stale_running_jobs import ExpireStaleRunningJobs
from jobqueue.lifecycle.claim import claim
from jobqueue.lifecycle.lapse import Lapses, cancel_lapsed
from jobqueue.lifecycle.outcome import EXPIRED
from jobqueue.models import Job, JobEvent
from jobqueue.testing import run_until_idle
from tests.factories import JobFactory
from tests.rivals import Rival
from tests.tasks_layer import samples

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


def past() -> Any:
    return clock.now() - timedelta(seconds=1)


def status(job: Any) -> tuple[str, str]:
    found: tuple[str, str] = Job.objects.values_list("status", "message").get(pk=getattr(job, "job_id", None) or job.pk)
    return found


@pytest.mark.parametrize("expires", [3600, HOUR, 3600.0])
@pytest.mark.parametrize("many", [True, False])
def test_a_time_from_the_enqueue_on_is_counted_by_the_databases_clock(expires: Any, many: bool) -> None:
    named = samples.plain.using(expires=expires)
    result = enqueue_many(named, [((1,), {}), ((2,), {})])[1] if many else named.enqueue(1)
    job = Job.objects.get(pk=result.job_id)
    assert job.expires_at - job.created_at == HOUR


def test_a_datetime_is_kept_and_nothing_means_never() -> None:
    noon = clock.now() + HOUR
    assert Job.objects.get(pk=samples.plain.using(expires=noon).enqueue().job_id).expires_at == noon
    assert Job.objects.get(pk=samples.plain.using(expires=noon, unique_key="k").enqueue().job_id).expires_at == noon
    assert Job.objects.get(pk=samples.plain.enqueue().job_id).expires_at is None


@pytest.mark.parametrize("wrong", [0, -1, timedelta(), True, "soon", float("nan"), 367 * 86400])
def test_an_invalid_time_is_refused_at_the_declaration(wrong: Any) -> None:
    for declare in (lambda: task(expires=wrong)(samples.undeclared), lambda: samples.plain.using(expires=wrong)):
        with pytest.raises(InvalidOption, match=r"expires is .*; it must be"):
            declare()


@pytest.mark.parametrize("trait", ["queued", "scheduled", "waiting_for_target", "queued_with_target"])
def test_a_waiting_job_is_canceled_with_the_reason_and_an_event(trait: str) -> None:
    values = {"queued": True, "target": "t"} if trait == "queued_with_target" else {trait: True}
    job, other = JobFactory(**values, expires_at=past()), JobFactory(queued=True, expires_at=clock.now() + HOUR)
    assert cancel_lapsed() == 1
    assert (status(job), status(other)) == (("CANCELED", EXPIRED), ("QUEUED", ""))
    assert JobEvent.objects.get(job=job, name="job.canceled").data == {"message": EXPIRED}


@pytest.mark.parametrize("trait", ["running", "paused", "error", "success", "canceled", "waiting_for_retry"])
def test_a_job_that_has_begun_or_is_stopped_is_left_alone(trait: str) -> None:
    job = JobFactory(**{trait: True}, expires_at=past(), first_started_at=None if trait in ("paused", "canceled") else past())
    before = Job.objects.values().get(pk=job.pk)
    assert cancel_lapsed() == 0
    assert Job.objects.values().get(pk=job.pk) == before


def test_the_next_job_of_the_target_runs() -> None:
    JobFactory(queued=True, target="t", expires_at=past())
    parked = JobFactory(waiting_for_target=True, target="t")
    assert cancel_lapsed() == 1
    assert status(parked)[0] == "QUEUED"


def test_a_claimed_job_that_has_expired_does_not_run_and_costs_no_attempt() -> None:
    samples.calls.clear()
    names = [samples.plain.using(expires=HOUR, target=target) for target in (None, "t")]
    jobs = [named.enqueue("late") for named in names]
    Job.objects.update(expires_at=past())
    claimed = [job for _ in jobs for job in claim(LeaseHolder("w", 30.0), Scope(), 5).jobs]
    assert [job.expired for job in claimed] == [True, True]
    Job.objects.update(status="QUEUED", lease_owner="", lease_expires_at=None, heartbeat_at=None, holds_target=False)
    import jobqueue.testing.worker as bench

    assert jobs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "cancel_lapsed", lambda: 0)  # the worker comes before the sweep
        assert run_until_idle() == 2
    assert [status(job) for job in jobs] == [("CANCELED", EXPIRED)] * 2
    assert samples.calls == []
    assert set(Job.objects.values_list("holds_target", flat=True)) == {False}
    assert set(Job.objects.values_list("first_started_at", flat=True)) == {None}


def test_a_paused_job_that_is_resumed_late_is_canceled_then() -> None:
    job = samples.plain.using(expires=HOUR).enqueue()
    pause(job.job_id)
    Job.objects.update(expires_at=past())
    assert cancel_lapsed() == 0
    Job.objects.get().resume()
    assert run_until_idle() == 0
    assert status(job) == ("CANCELED", EXPIRED)


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_locked_rows_and_targets_are_left_for_the_next_sweep(rival: Rival) -> None:
    locked, free = JobFactory(queued=True, expires_at=past()), JobFactory(queued=True, expires_at=past())
    behind = JobFactory(queued=True, target="t", expires_at=past())
    with rival.locking(locked), rival.holding(behind.tenant_target.key):
        assert Lapses().run().moved == 1
        assert status(free)[0] == "CANCELED"
    assert cancel_lapsed() == 2


def test_the_duty_that_polls_each_second_counts_them() -> None:
    JobFactory(queued=True, expires_at=past())
    duty = ExpireStaleRunningJobs(lambda: None, lambda found: None, lambda: 0.0)
    assert duty.run_once(clock.now()).items == 1
    assert duty.run_once(clock.now()).items == 0


def test_a_sweep_cancels_all_that_have_expired_at_once() -> None:
    expired = [*JobFactory.create_batch(2, queued=True, expires_at=past()), JobFactory(scheduled=True, expires_at=past())]
    kept = JobFactory(queued=True)

    assert cancel_lapsed() == 3
    assert set(Job.objects.filter(status="CANCELED").values_list("pk", flat=True)) == {job.pk for job in expired}
    assert Job.objects.get(pk=kept.pk).status == "QUEUED"
