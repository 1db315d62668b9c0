"""The one place that writes a status: it checks the move in the table, and its UPDATE is guarded by what the caller has read."""

from __future__ import annotations

from typing import Any

import pytest

from jobqueue.core import states
from jobqueue.models import Job
from tests.factories import JobFactory


def row(job: Job) -> dict[str, Any]:
    return Job.objects.filter(pk=job.pk).values().get()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("trait", "destination"),
    [
        ("success", states.QUEUED),
        ("canceled", states.QUEUED),
        ("queued", states.SUCCESS),
        ("paused", states.ERROR),
        ("scheduled", states.RUNNING),
    ],
)
def test_a_move_that_is_not_in_the_table_is_refused_and_changes_nothing(trait: str, destination: states.Place) -> None:
    job = JobFactory(**{trait: True})
    before = row(job)
    with pytest.raises(ValueError, match="A job cannot move from"):
        Job.objects.move(job, destination)
    assert row(job) == before


@pytest.mark.django_db
@pytest.mark.parametrize(
    "meanwhile",
    [{"lease_token": 2}, {"status": "PAUSED", "lease_owner": "", "lease_expires_at": None, "heartbeat_at": None}],
    ids=["claimed by another", "in another state"],
)
def test_a_move_of_a_running_job_that_has_moved_on_changes_nothing(meanwhile: dict[str, Any]) -> None:
    job = JobFactory(running=True)
    Job.objects.filter(pk=job.pk).update(**meanwhile)
    before = row(job)
    assert Job.objects.move(job, states.ERROR) == 0
    assert Job.objects.flag(job, "CANCELED") == 0
    assert row(job) == before


@pytest.mark.django_db
def test_a_move_of_a_waiting_job_that_waits_for_something_else_by_now_changes_nothing() -> None:
    job = JobFactory(scheduled=True)
    Job.objects.filter(pk=job.pk).update(waiting_for="target")
    before = row(job)
    assert Job.objects.move(job, states.CANCELED) == 0
    assert row(job) == before


@pytest.mark.django_db
def test_a_move_returns_how_many_rows_it_moved() -> None:
    assert Job.objects.move(JobFactory(), states.PAUSED) == 1
