"""When a job may run: a time, or a delta that counts from the enqueue on the database's clock."""

from datetime import UTC, date, datetime, timedelta
from datetime import timezone as fixed
from typing import Any

import pytest

from jobqueue import clock, compat, enqueue_job, enqueue_many
from jobqueue.exceptions import InvalidOption
from jobqueue.models import Job
from jobqueue.tasks.task import detached
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


OUT_OF_RANGE = {
    "a delta of 8,000 years": timedelta(days=365 * 8000),
    "the longest delta": timedelta.max,
    "the first time, ahead of UTC": datetime.min.replace(tzinfo=fixed(timedelta(hours=14))),
    "the last time, behind UTC": datetime.max.replace(tzinfo=fixed(-timedelta(hours=14))),
    "a time before 1970": datetime(1969, 12, 31, tzinfo=UTC),
    "a time beyond the year 9000": datetime(9000, 1, 2, tzinfo=UTC),
    "a date": date(2030, 1, 1),
    "a text": "2030-01-01",
    "a number": 60,
    "true": True,
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_a_time_that_no_row_can_hold_is_refused_with_value_and_rule(name: str) -> None:
    value: Any = OUT_OF_RANGE[name]
    with pytest.raises(InvalidOption, match=r"run_after is .*; it must .*\. Use "):
        samples.plain.using(run_after=value)
    with pytest.raises(InvalidOption, match="run_after is "):
        enqueue_job(samples.plain.module_path, run_after=value)
    assert not Job.objects.exists()


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_a_task_that_was_made_past_the_check_is_refused_at_its_enqueue(name: str) -> None:
    task = detached(samples.plain, run_after=OUT_OF_RANGE[name])
    with pytest.raises(InvalidOption, match="run_after is "):
        task.enqueue()
    with pytest.raises(InvalidOption, match="run_after is "):
        enqueue_many(task, [((1,), {})])
    assert not Job.objects.exists()


@pytest.mark.parametrize("value", [datetime(1970, 1, 1, tzinfo=UTC), datetime(8999, 12, 31, tzinfo=UTC), timedelta(days=365 * 900)])
def test_the_first_and_the_last_time_of_a_row_are_taken(value: Any) -> None:
    job = job_of(samples.plain.using(run_after=value).enqueue())
    assert (job.status, job.waiting_for) == ("PENDING", "time")
    assert job.run_at is not None
