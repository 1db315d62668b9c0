"""The events of pipelines in the log: first the start of the run, then its phases in order, then its one end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jobqueue import cancel
from jobqueue.models import JobEvent, JobPhase
from jobqueue.testing import run_until_idle
from tests.pipelines import samples

pytestmark = pytest.mark.django_db
PHASES = [f"job.phase.{what} {name}" for name in ("download", "process", "upload") for what in ("started", "completed")]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    samples.forget()
    yield
    samples.forget()


def told(result: Any) -> list[str]:
    rows = JobEvent.objects.filter(job_id=result.job_id).order_by("id").values_list("name", "data__phase")
    return [f"{name} {phase}" if phase else name for name, phase in rows]


def test_a_run_begins_before_its_phases_and_ends_once_behind_them() -> None:
    result = samples.publish.enqueue("a")
    run_until_idle()
    assert told(result) == ["job.enqueued", "job.started", *PHASES, "job.completed"]


def test_each_run_has_one_start_and_one_end() -> None:
    samples.fails["process"] = 1
    result = samples.publish.enqueue("a")
    run_until_idle(scheduled=True)
    again = ["job.retrying", "job.started"]
    assert told(result) == ["job.enqueued", "job.started", *PHASES[:3], *again, *PHASES[2:], "job.completed"]


def test_a_pipeline_that_sleeps_has_an_event() -> None:
    result = samples.nap.enqueue(3600)
    run_until_idle()
    assert [name.partition(" ")[0] for name in told(result)][-2:] == ["job.phase.completed", "job.sleeping"]


def test_a_pipeline_that_never_began_ends_with_its_phases_canceled() -> None:
    result = samples.publish.enqueue("a")
    assert cancel(result.job_id)
    assert set(JobPhase.objects.filter(job_id=result.job_id).values_list("status", flat=True)) == {"CANCELED"}
    assert told(result) == ["job.enqueued", "job.canceled"]
