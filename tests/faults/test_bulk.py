"""A bulk action whose leader is killed again and again, while workers run the jobs that it resumes."""

from __future__ import annotations

import os
from typing import Any

import pytest
from django.db.models import Count

from jobqueue import clock
from jobqueue.bulk.actions import create
from jobqueue.core.event_names import RESUMED
from jobqueue.models import BackgroundJobLease, BulkAction, Job, JobEvent
from tests.faults.harness import WorkerProcess, Workers, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.django_db]
JOBS = int(os.environ.get("BULK_JOBS", "10000"))
SECONDS = max(120.0, JOBS / 50)


def failed(number: int) -> Job:
    """Return a job in ERROR; every tenth fails again, so that a second resume would be possible."""
    values: dict[str, Any] = {"attempt": 1, "failures": 1, "max_attempts": 1, "finished_at": clock.now(), "message": "OSError: gone"}
    if number % 10 == 0:
        return Job(status="ERROR", task="tests.tasks.fail", **values)
    return Job(status="ERROR", task="tests.tasks.add", args=[number], target="" if number % 7 else f"t{number}", **values)


def test_each_job_is_resumed_once_though_the_leader_is_killed_three_times(workers: Workers) -> None:
    Job.objects.bulk_create((failed(number) for number in range(JOBS)), batch_size=2000)
    options = {"MIN_WORKERS": 4, "MAX_WORKERS": 4}
    alive = [workers.start(**options).ready() for _ in range(2)]
    action = create("resume", "status:ERROR", actor="operator anna", source="command")

    def leader() -> WorkerProcess | None:
        held = BackgroundJobLease.objects.values_list("held_by_worker_id", flat=True).filter(pk="run_bulk_actions").first()
        return next((one for one in alive if held and one.worker_id == held), None)

    def done() -> int:
        return BulkAction.objects.values_list("done", flat=True).get(pk=action.pk)

    for part in (1, 2, 3):
        wait_until(lambda: done() >= part * JOBS // 5, f"{part} of 5 parts are resumed", SECONDS)  # noqa: B023 - called at once
        victim = wait_until(leader, "a worker leads the duty", 30)
        victim.kill()
        alive.remove(victim)
        assert done() < JOBS
        alive.append(workers.start(**options).ready())
    wait_until(lambda: BulkAction.objects.get(pk=action.pk).state == "DONE", "the action is done", SECONDS)
    resumed = JobEvent.objects.filter(name=RESUMED).values("job_id").annotate(number=Count("pk"))
    assert {one["number"] for one in resumed} == {1}
    assert (len(resumed), done(), BulkAction.objects.get(pk=action.pk).refused) == (JOBS, JOBS, 0)
    wait_until(lambda: not Job.objects.filter(status__in=["QUEUED", "RUNNING", "PENDING"]).exists(), "all jobs have run", SECONDS)
    assert Job.objects.filter(status="SUCCESS").count() == JOBS - JOBS // 10
    assert [one.stop() for one in alive] == [0] * len(alive)
