"""When a job may run: a time, or a delta that counts from the enqueue on the database's clock."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from jobqueue import clock, compat, enqueue_many
from jobqueue.models import Job
from jobqueue.testing import run_until_idle
from tests.tasks_layer import samples

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


def job_of(result: Any) -> Job:
    return Job.objects.get(pk=result.job_id)


def test_a_delta_is_kept_and_counts_from_each_enqueue() -> None:
    later = samples.plain.using(run_after=HOUR)
    assert later.run_after == HOUR
    for _ in range(2):
        job = job_of(later.enqueue())
        assert (job.status, job.waiting_for) == ("PENDING", "time")
        assert job.run_at is not None
        # Both times are the database's, taken in the one statement.
        assert job.run_at - job.created_at == HOUR


def test_a_delta_counts_from_the_enqueue_in_bulk_too() -> None:
    for result in enqueue_many(samples.plain.using(run_after=HOUR), [((1,), {}), ((2,), {})]):
        job = job_of(result)
        assert job.run_at is not None
        assert job.run_at - job.created_at == HOUR


@pytest.mark.parametrize("delta", [timedelta(), timedelta(seconds=-5)])
def test_a_delta_that_is_not_ahead_means_at_once(delta: timedelta) -> None:
    result = samples.plain.using(run_after=delta).enqueue()
    assert (job_of(result).status, result.job_status) == ("QUEUED", "QUEUED")
    assert run_until_idle() == 1


def test_a_time_is_stored_as_it_is() -> None:
    moment = clock.now() + HOUR
    result = samples.plain.using(run_after=moment).enqueue()
    job = job_of(result)
    assert (job.run_at, job.status, result.job_status) == (moment, "PENDING", "PENDING")
    assert run_until_idle() == 0


def test_a_time_that_has_passed_runs_with_the_next_promotion() -> None:
    result = samples.plain.using(run_after=clock.now() - HOUR).enqueue(4)
    assert run_until_idle() == 1
    result.refresh()
    assert result.return_value == [4]


def test_a_naive_time_is_refused(settings: Any) -> None:
    settings.USE_TZ = True
    with pytest.raises(compat.InvalidTask, match="aware"):
        samples.plain.using(run_after=datetime(2030, 1, 1))  # noqa: DTZ001


def test_a_delta_becomes_a_time_for_a_backend_that_knows_no_deltas(settings: Any) -> None:
    settings.TASKS = {**settings.TASKS, "django": {"BACKEND": f"{compat.PACKAGE}.backends.dummy.DummyBackend"}}
    before = clock.now()
    moved = samples.plain.using(run_after=HOUR, backend="django")
    assert isinstance(moved.run_after, datetime)
    assert before + HOUR <= clock.aware(moved.run_after) <= clock.now() + HOUR
    assert moved.enqueue().status == "READY"
