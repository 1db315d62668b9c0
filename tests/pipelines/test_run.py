"""Pipelines run phase by phase, each once, in spite of faults between phases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jobqueue import cancel, pause, resume
from jobqueue.models import Job, JobEvent, JobPhase
from jobqueue.testing import run_until_idle
from tests.pipelines import samples

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    samples.forget()
    yield
    samples.forget()


def row(result: Any) -> Job:
    return Job.objects.get(pk=result.job_id)


def phases(result: Any) -> list[tuple[str, str, int, int]]:
    return list(row(result).phases.values_list("name", "status", "progress", "attempts"))


def test_phases_are_there_before_the_job_starts() -> None:
    result = samples.publish.enqueue("a")
    assert phases(result) == [(name, "PENDING", 0, 0) for name in ("download", "process", "upload")]
    assert row(result).phase == "download"


def test_phases_run_in_order_and_the_last_result_is_the_jobs() -> None:
    result = samples.publish.enqueue("a")
    assert run_until_idle() == 1
    job = row(result)
    assert (job.status, job.result, job.progress, job.phase) == ("SUCCESS", "uploaded a", 100, "upload"), job.history
    assert phases(result) == [(name, "SUCCESS", 100, 1) for name in ("download", "process", "upload")]
    assert samples.seen["results"] == {"download": {"file": "a"}, "process": ["a", "a"]}
    assert dict(samples.ran) == {"download": 1, "process": 1, "upload": 1, "publish": 1}
    names = list(JobEvent.objects.filter(job=job, name__startswith="job.phase").values_list("name", "data__phase"))
    assert names == [(f"job.phase.{what}", name) for name in ("download", "process", "upload") for what in ("started", "completed")]
    told = list(JobEvent.objects.filter(job=job, name__in=["job.started", "job.phase.started"]).values_list("name", flat=True))
    assert told == ["job.started", *["job.phase.started"] * 3]
    assert job.first_started_at == job.started_at
    first = job.phases.first()
    assert first is not None
    assert first.message == "half"
    assert first.started_at <= first.finished_at


def test_a_pipelines_own_function_makes_the_result_where_it_returns_one() -> None:
    result = samples.publish_with_summary.enqueue("a")
    run_until_idle()
    assert row(result).result == {"number": 3, "url": "a"}


@pytest.mark.long
def test_a_finished_phase_is_not_run_again_by_a_retry() -> None:
    samples.fails["process"] = 1
    result = samples.publish.enqueue("a")
    assert run_until_idle(limit=1) == 1
    job = row(result)
    assert (job.status, job.progress, job.phase) == ("PENDING", 42, "process")
    assert phases(result) == [("download", "SUCCESS", 100, 1), ("process", "PENDING", 25, 1), ("upload", "PENDING", 0, 0)]
    run_until_idle(scheduled=True)
    assert row(result).status == "SUCCESS"
    assert dict(samples.ran) == {"download": 1, "process": 2, "upload": 1, "publish": 1}
    assert phases(result)[1] == ("process", "SUCCESS", 100, 2)


@pytest.mark.long
def test_the_phase_in_which_a_job_fails_shows_it_and_a_resume_continues_there() -> None:
    samples.fails["process"] = 1
    result = samples.publish_with_summary.enqueue("a")
    run_until_idle()
    assert row(result).status == "ERROR"
    assert [one[1] for one in phases(result)] == ["SUCCESS", "ERROR", "PENDING"]
    failed = row(result).phases.get(name="process")
    assert failed.message == "ValueError: process failed"
    assert failed.finished_at is not None
    resume(result.job_id)
    assert row(result).progress == 33
    assert [one[1] for one in phases(result)] == ["SUCCESS", "PENDING", "PENDING"]
    run_until_idle()
    assert row(result).status == "SUCCESS"
    assert dict(samples.ran) == {"download": 1, "process": 2, "upload": 1}


def test_a_canceled_job_that_never_began_has_only_canceled_phases() -> None:
    result = samples.publish.enqueue("a")
    cancel(result.job_id)
    assert [one[1] for one in phases(result)] == ["CANCELED"] * 3


def test_a_pause_before_the_start_changes_no_phase() -> None:
    result = samples.publish.enqueue("a")
    pause(result.job_id)
    assert [one[1] for one in phases(result)] == ["PENDING"] * 3
    resume(result.job_id)
    run_until_idle()
    assert row(result).status == "SUCCESS"


def test_coroutines_run_as_phases() -> None:
    result = samples.mirror.enqueue(4)
    run_until_idle()
    job = row(result)
    assert (job.status, job.result) == ("SUCCESS", 50), job.history
    assert job.phases.get(name="fetch").checkpoint == {"at": 4}


def test_a_phase_continues_from_its_checkpoint() -> None:
    samples.fails["half"] = 1
    result = samples.count_up.enqueue(10)
    run_until_idle(limit=1)
    assert row(result).phases.get().checkpoint == {"at": 5}
    run_until_idle(scheduled=True)
    assert row(result).result == 10
    assert samples.seen["began at"] == [0, 5]


def test_a_result_that_is_no_json_ends_the_job_whatever_attempts_are_left() -> None:
    result = samples.unstorable.enqueue()
    run_until_idle(scheduled=True)
    job = row(result)
    assert job.status == "ERROR"
    assert "Phase 'bad_result'" in job.message
    assert "object" in job.message
    assert samples.ran["bad"] == 1


@pytest.mark.long
def test_many_pipelines_made_at_once_all_have_their_phases() -> None:
    from jobqueue import enqueue_many

    results = enqueue_many(samples.publish, [((str(number),), {}) for number in range(50)])
    assert JobPhase.objects.count() == 150
    assert phases(results[49])[2][0] == "upload"
    assert run_until_idle() == 50
    assert Job.objects.filter(status="SUCCESS").count() == 50


def test_a_unique_key_makes_no_second_set_of_phases() -> None:
    made = [samples.publish.using(unique_key="k").enqueue("a") for _ in range(2)]
    assert made[0].job_id == made[1].job_id
    assert JobPhase.objects.count() == 3
