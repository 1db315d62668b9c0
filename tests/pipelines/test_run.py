"""Pipelines run phase by phase, each once, whatever happens between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jobqueue import cancel, pause, resume
from jobqueue.models import Job, JobEvent
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
    first = job.phases.first()
    assert first is not None
    assert first.message == "half"
    assert first.started_at <= first.finished_at
