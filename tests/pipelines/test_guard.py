"""What a run writes of its phases counts only while it holds the lease, and does not wait for locks; deployments between two runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from jobqueue import resume
from jobqueue.core.phases import PhaseState, declared
from jobqueue.db import Claimed, Lease
from jobqueue.declared import registry
from jobqueue.exceptions import LeaseLost
from jobqueue.insight.report import report
from jobqueue.lifecycle import phases
from jobqueue.lifecycle.expire import expire_owner
from jobqueue.lifecycle.guard import Locked
from jobqueue.lifecycle.outcome import FinishedPhase
from jobqueue.models import Job, JobPhase
from jobqueue.testing import run_until_idle
from tests.claiming import claim
from tests.pipelines import samples
from tests.rivals import Rival

NAMES = ("download", "process", "upload")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    samples.forget()
    yield
    samples.forget()


def begun(**options: Any) -> Claimed:
    """Return a claimed pipeline job whose first phase runs."""
    samples.publish.using(**options).enqueue("a")
    [job] = claim("worker-1", (), 1, 30.0)
    phases.open_phases(Lease(job.id, job.lease_token), NAMES)
    return job


def rows(job_id: int) -> list[tuple[str, str]]:
    return list(Job.objects.get(pk=job_id).phases.order_by("position").values_list("name", "status"))


@pytest.mark.django_db
def test_a_run_that_has_lost_its_lease_changes_no_phase() -> None:
    job = begun()
    before = list(Job.objects.get(pk=job.id).phases.values())
    stale = Lease(job.id, job.lease_token - 1)
    for write in (
        lambda: phases.advance(stale, FinishedPhase("download", 0), PhaseState("process"), 33),
        lambda: phases.keep_checkpoint(stale, "download", "1"),
        lambda: phases.open_phases(stale, NAMES),
    ):
        with pytest.raises(LeaseLost):
            write()
    assert list(Job.objects.get(pk=job.id).phases.values()) == before


@pytest.mark.django_db
def test_an_outcome_written_twice_after_a_lost_answer_counts_once() -> None:
    job = begun()
    lease, following = Lease(job.id, job.lease_token), PhaseState("process")
    for _ in range(2):
        phases.advance(lease, FinishedPhase("download", 0, "1"), following, 33)
    row = Job.objects.get(pk=job.id)
    assert list(row.phases.values_list("name", "status", "attempts"))[:2] == [("download", "SUCCESS", 1), ("process", "RUNNING", 1)]
    assert row.events.filter(name="job.phase.completed").count() == 1
    assert (row.phase, row.progress) == ("process", 33)


@pytest.mark.postgresql
def test_a_row_that_is_locked_is_not_waited_for(rival: Rival) -> None:
    job = begun()
    lease = Lease(job.id, job.lease_token)
    with rival.locking(Job.objects.get(pk=job.id)), pytest.raises(Locked):
        phases.keep_checkpoint(lease, "download", "1")
    phases.keep_checkpoint(lease, "download", "1")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("options", "flag", "status", "phase"),
    [
        ({}, "", "QUEUED", "PENDING"),
        ({"recovery": "hold"}, "", "ERROR", "ERROR"),
        ({}, "PAUSED", "PAUSED", "PENDING"),
        ({}, "CANCELED", "CANCELED", "CANCELED"),
    ],
)
def test_the_loss_of_a_worker_is_in_the_phases_too(options: Any, flag: str, status: str, phase: str) -> None:
    job = begun(**options)
    Job.objects.filter(pk=job.id).update(cancel_requested=bool(flag), cancel_outcome=flag)
    [lost] = expire_owner("worker-1")
    assert lost.status == status
    rest = "CANCELED" if status == "CANCELED" else "PENDING"
    assert rows(job.id) == [("download", phase), ("process", rest), ("upload", rest)]


def deploy(monkeypatch: pytest.MonkeyPatch, *functions: Any, **changes: Any) -> None:
    """Change the phases of the code, or another part of it."""
    entry = registry.find(samples.publish.module_path)
    assert entry is not None
    monkeypatch.setitem(registry._entries, entry.path, dataclasses.replace(entry, **(changes or {"phases": declared(functions)})))


def _failed_in_process() -> int:
    samples.fails["process"] = 3
    job_id = int(samples.publish.using(max_attempts=1).enqueue("a").job_id)
    run_until_idle()
    samples.fails["process"] = 0
    resume(job_id)
    return job_id


def extra(context: Any, url: str) -> str:
    samples.ran["extra"] += 1
    return "extra"


@pytest.mark.django_db
def test_a_phase_that_a_deployment_adds_runs_in_its_place_and_one_that_it_drops_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = _failed_in_process()
    deploy(monkeypatch, samples.download, samples.process, extra)
    run_until_idle()
    job = Job.objects.get(pk=job_id)
    assert (job.status, job.result) == ("SUCCESS", "extra"), job.history
    assert rows(job_id) == [("download", "SUCCESS"), ("process", "SUCCESS"), ("extra", "SUCCESS")]
    assert dict(samples.ran) == {"download": 1, "process": 2, "extra": 1, "publish": 1}


def looks(context: Any, url: str) -> str:
    context.progress(10)
    samples.seen["rows"] = rows(context.job_id)
    if samples.fails["looks"]:
        samples.fails["looks"] -= 1
        raise ValueError("appears to have failed")
    return "plain"


async def looks_in_loop(context: Any, url: str) -> str:
    return await sync_to_async(looks)(context, url)


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("transactional", [False, True])
def test_a_pipeline_that_becomes_a_plain_task_starts_again_and_leaves_no_open_phase(
    monkeypatch: pytest.MonkeyPatch, *, transactional: bool
) -> None:
    job_id = _failed_in_process()
    finished = [("download", "SUCCESS")]
    samples.fails["looks"] = 1
    deploy(monkeypatch, func=looks, phases=(), transactional=transactional)
    run_until_idle()
    job = Job.objects.get(pk=job_id)
    assert (job.status, job.phase, job.progress) == ("ERROR", "", 10), job.history
    assert (rows(job_id), samples.seen["rows"]) == (finished, finished)
    resume(job_id)
    run_until_idle()
    job.refresh_from_db()
    assert (job.status, job.result, job.phase, job.progress) == ("SUCCESS", "plain", "", 100)
    assert report(job)["phases"] == []


@pytest.mark.django_db(transaction=True)
def test_a_coroutine_that_was_a_pipeline_leaves_no_open_phase_either(monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = int(samples.publish.enqueue("a").job_id)
    deploy(monkeypatch, func=looks_in_loop, phases=(), is_async=True)
    run_until_idle()
    job = Job.objects.get(pk=job_id)
    assert (job.status, job.phase, samples.seen["rows"], rows(job_id)) == ("SUCCESS", "", [], []), job.history


@pytest.mark.long
@pytest.mark.django_db
def test_a_plain_task_that_a_deployment_makes_a_pipeline_has_all_its_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as before:
        deploy(before, func=looks, phases=())
        samples.fails["looks"] = 1
        job_id = int(samples.publish.using(max_attempts=1).enqueue("a").job_id)
        run_until_idle()
    JobPhase.objects.filter(job=job_id).delete()  # as of one that was enqueued as a plain task
    Job.objects.filter(pk=job_id).update(phase="")
    resume(job_id)
    run_until_idle()
    job = Job.objects.get(pk=job_id)
    assert (job.status, job.progress, job.phase) == ("SUCCESS", 100, "upload"), job.history
    assert rows(job_id) == [(name, "SUCCESS") for name in NAMES]


@pytest.mark.long
@pytest.mark.django_db
def test_a_phase_that_a_deployment_renames_after_it_has_finished_ends_the_job_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = _failed_in_process()
    Job.objects.filter(pk=job_id).update(max_attempts=9)
    deploy(monkeypatch, extra, samples.process, samples.upload)
    run_until_idle(scheduled=True)
    job = Job.objects.get(pk=job_id)
    assert job.status == "ERROR"
    assert """give it its old name, phase("download")(function), and resume the job""" in job.message
    assert samples.ran["extra"] == 0
    monkeypatch.undo()
    resume(job_id)
    run_until_idle()
    assert Job.objects.get(pk=job_id).status == "SUCCESS"
