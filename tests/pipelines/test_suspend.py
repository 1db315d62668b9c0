"""Jobs that sleep and jobs that wait for children: their slot is free, their target is kept, and they continue with the next phase."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import transaction

from jobqueue import InvalidOption, TaskContext, cancel, clock, pause, resume, run_now, why_waiting
from jobqueue.models import Job, JobDependency, JobEvent
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


def names(job: Job) -> list[str]:
    return list(JobEvent.objects.filter(job=job).values_list("name", flat=True))


def test_a_job_that_sleeps_ends_its_phase_and_its_run() -> None:
    result = samples.nap.using(target="bed").enqueue(3600)
    assert run_until_idle() == 1
    job = row(result)
    assert (job.place, job.phase, job.progress) == (("PENDING", "time"), "rise", 50)
    assert (job.attempt, job.failures, job.worker_ids, job.history) == (0, 0, [], [])
    assert job.holds_target
    assert 3590 < (job.run_at - clock.now()).total_seconds() <= 3600
    assert list(job.phases.values_list("status", "result")) == [("SUCCESS", "slept"), ("PENDING", None)]
    assert "job.sleeping" in names(job)
    why = why_waiting(job)
    assert why is not None
    assert why.text.startswith("It sleeps until ")
    assert run_until_idle(scheduled=True) == 1
    job = row(result)
    assert (job.status, job.result, job.attempt, job.options) == ("SUCCESS", "slept", 1, {})
    assert dict(samples.ran) == {"rest": 1, "rise": 1}


@pytest.mark.parametrize("until", [0, timedelta(0), 0.5])
def test_a_sleep_may_be_short(until: Any) -> None:
    seconds = until.total_seconds() if isinstance(until, timedelta) else until
    result = samples.nap.enqueue(seconds)
    run_until_idle(scheduled=True)
    assert row(result).status == "SUCCESS"


def test_a_sleeping_job_that_is_paused_sleeps_on_when_it_is_resumed() -> None:
    result = samples.nap.enqueue(3600)
    run_until_idle()
    before = row(result).run_at
    pause(result.job_id)
    assert row(result).status == "PAUSED"
    resume(result.job_id)
    job = row(result)
    assert (job.place, job.run_at, job.progress) == (("PENDING", "time"), before, 50)
    run_now(result.job_id)
    run_until_idle()
    assert row(result).status == "SUCCESS"


def test_a_sleeping_job_that_is_canceled_has_canceled_phases() -> None:
    result = samples.nap.using(target="bed").enqueue(3600)
    run_until_idle()
    cancel(result.job_id)
    job = row(result)
    assert (job.status, job.holds_target) == ("CANCELED", False)
    assert list(job.phases.values_list("status", flat=True)) == ["SUCCESS", "CANCELED"]


def test_a_parent_continues_when_all_children_have_ended_and_sees_what_became_of_them() -> None:
    result = samples.family.enqueue([1, 2, -3])
    assert run_until_idle(limit=1) == 1
    job = row(result)
    assert (job.place, job.phase, job.attempt) == (("PENDING", "children"), "gather", 0)
    assert "job.waiting" in names(job)
    why = why_waiting(job)
    assert why is not None
    first = job.children.order_by("child_id").first()
    assert first is not None
    assert why.job_id == first.child_id
    assert "3 of 3" in why.text
    cancel(job.children.order_by("child_id")[1].child_id)
    run_until_idle()
    job = row(result)
    assert job.status == "SUCCESS", job.history
    assert [one[0] for one in job.result] == ["SUCCESS", "CANCELED", "ERROR"]
    assert job.result[0][1] == 1
    assert "negative" in job.result[2][2]
    assert dict(samples.ran) == {"spread": 1, "gather": 1}


def test_a_child_that_was_deleted_counts_as_ended() -> None:
    result = samples.family.enqueue([1])
    run_until_idle(limit=1)
    Job.objects.get(pk=row(result).children.get().child_id).delete()
    run_until_idle()
    assert row(result).result == [["", None, ""]]


def test_a_waiting_parent_that_is_paused_waits_on_when_it_is_resumed() -> None:
    result = samples.family.enqueue([1])
    run_until_idle(limit=1)
    pause(result.job_id)
    resume(result.job_id)
    assert row(result).place == ("PENDING", "children")
    pause(result.job_id)
    run_until_idle()
    assert row(result).status == "PAUSED"
    resume(result.job_id)
    assert row(result).place == ("QUEUED", "")
    run_until_idle()
    assert row(result).status == "SUCCESS"


def _all_end(result: Any) -> Job:
    """End the children of a family: one in SUCCESS, one CANCELED, one in ERROR; return their parent."""
    cancel(row(result).children.order_by("child_id")[1].child_id)
    run_until_idle()
    return row(result)


def _sees_all(result: Any) -> None:
    run_until_idle()
    job = row(result)
    assert job.status == "SUCCESS", job.history
    assert [one[0] for one in job.result] == ["SUCCESS", "CANCELED", "ERROR"]
    assert JobDependency.objects.filter(parent=job, ended=True).count() == 3


def test_a_parent_that_was_paused_while_its_children_ended_sees_them_all() -> None:
    result = samples.family.enqueue([1, 2, -3])
    run_until_idle(limit=1)
    pause(result.job_id)
    assert _all_end(result).status == "PAUSED"
    resume(result.job_id)
    pause(result.job_id)
    resume(result.job_id)
    _sees_all(result)


def test_a_parent_that_fails_behind_its_children_sees_them_all_when_it_is_resumed() -> None:
    samples.fails["gather"] = 1
    result = samples.family.enqueue([1, 2, -3])
    run_until_idle(limit=1)
    pause(result.job_id)
    _all_end(result)
    resume(result.job_id)
    run_until_idle()
    assert row(result).status == "ERROR"
    resume(result.job_id)
    _sees_all(result)


def test_a_parent_that_raw_sql_resumes_sees_the_ended_children() -> None:
    result = samples.family.enqueue([1, 2, -3])
    run_until_idle(limit=1)
    pause(result.job_id)
    _all_end(result)
    Job.objects.filter(pk=result.job_id).update(status="QUEUED")
    _sees_all(result)


def test_a_parent_that_raw_sql_resumes_does_not_wait_for_live_children() -> None:
    result = samples.family.enqueue([1])
    run_until_idle(limit=1)
    Job.objects.filter(pk=result.job_id).update(status="QUEUED", waiting_for="")
    run_until_idle()
    assert (row(result).status, row(result).result) == ("SUCCESS", [])


def test_a_canceled_parent_waits_for_no_child() -> None:
    result = samples.family.enqueue([1])
    run_until_idle(limit=1)
    cancel(result.job_id)
    assert not JobDependency.objects.exists()
    run_until_idle()
    assert row(result).status == "CANCELED"


def test_a_job_without_children_continues_at_once() -> None:
    result = samples.follow.enqueue([])
    run_until_idle()
    assert row(result).result == 0


def error_of(result: Any) -> str:
    job = row(result)
    assert job.status == "ERROR"
    assert not JobDependency.objects.filter(parent=job).exists()
    return job.message


def test_a_job_cannot_wait_for_itself() -> None:
    result = samples.follow.enqueue([])
    Job.objects.filter(pk=result.job_id).update(args=[[result.job_id]])
    run_until_idle()
    assert "cannot wait for itself" in error_of(result)


def test_a_circle_of_waiting_jobs_is_refused_to_the_one_that_would_close_it() -> None:
    made = [samples.follow.enqueue([]) for _ in range(3)]
    for one, other in zip(made, [*made[1:], made[0]], strict=True):
        Job.objects.filter(pk=one.job_id).update(args=[[other.job_id]])
    run_until_idle()
    errors = [row(one) for one in made if row(one).status == "ERROR"]
    assert len(errors) == 1
    assert "through other jobs" in errors[0].message
    assert [row(one).status for one in made].count("SUCCESS") == 2


def test_a_child_with_the_parents_own_target_is_refused() -> None:
    child = samples.child.using(target="t", queue_name="later").enqueue(1)
    result = samples.follow.using(target="t", priority=1).enqueue([child.job_id])  # it is claimed before the child
    cancel(samples.child.using(target="t").enqueue(1).job_id)
    Job.objects.filter(pk=child.job_id).update(status="PENDING", waiting_for="target")
    run_until_idle(["default"])
    assert "needs the target 't', which it keeps" in error_of(result)


def test_a_grandchild_with_the_target_of_one_that_waits_is_refused() -> None:
    grandchild = samples.child.using(target="t", queue_name="later").enqueue(1)
    grandparent = samples.follow.using(target="t", priority=5).enqueue([])
    parent = samples.follow.enqueue([grandchild.job_id])
    Job.objects.filter(pk=grandparent.job_id).update(args=[[parent.job_id]])
    run_until_idle(["default"])
    assert f"which job {grandparent.job_id} keeps" in error_of(parent)
    assert row(grandparent).status == "SUCCESS"


def test_a_job_that_waits_already_for_the_target_of_its_parent_is_refused_too() -> None:
    grandchild = samples.child.using(target="t", queue_name="later").enqueue(1)
    parent = samples.follow.using(priority=5).enqueue([grandchild.job_id])
    grandparent = samples.follow.using(target="t", priority=1).enqueue([parent.job_id])  # it is claimed before the grandchild
    run_until_idle(["default"], limit=1)
    Job.objects.filter(pk=grandchild.job_id).update(status="PENDING", waiting_for="target")
    run_until_idle(["default"])
    assert f"cannot wait for job {grandchild.job_id}" in error_of(grandparent)
    assert row(parent).place == ("PENDING", "children")


def _crossed(*targets: str) -> list[Any]:
    """Make each job keep a target and wait for a child that needs the next job's target, in a ring; return them in creation order."""
    made = [samples.follow.using(target=one, priority=5).enqueue([]) for one in targets]
    for one, following in zip(made, [*targets[1:], targets[0]], strict=True):
        child = samples.child.using(target=following, queue_name="later").enqueue(1)
        Job.objects.filter(pk=one.job_id).update(args=[[child.job_id]])
    return made


@pytest.mark.long
@pytest.mark.parametrize("targets", ["xy", "wxyz"])
def test_jobs_whose_children_wait_for_one_another_form_no_circle_because_the_last_is_refused(targets: str) -> None:
    *others, last = _crossed(*targets)
    run_until_idle(["default"])
    assert "in line behind job" in error_of(last)
    assert [row(one).place for one in others] == [("PENDING", "children")] * len(others)
    cancel(last.job_id)
    run_until_idle()
    assert [row(one).status for one in others] == ["SUCCESS"] * len(others)


def test_a_holder_that_is_paused_while_it_waits_is_part_of_a_circle_too() -> None:
    first, last = _crossed("x", "y")
    run_until_idle(["default"], limit=1)
    pause(first.job_id)
    run_until_idle(["default"])
    assert f"behind job {first.job_id}" in error_of(last)


@pytest.mark.long
def test_a_child_behind_a_holder_that_waits_for_something_else_is_no_circle() -> None:
    first, last = _crossed("x", "y")
    Job.objects.filter(pk=first.job_id).update(args=[[samples.child.enqueue(1).job_id]])
    run_until_idle(["default", "later"])
    assert [row(one).status for one in (first, last)] == ["SUCCESS", "SUCCESS"]


def test_a_task_that_raises_suspended_by_itself_ends_in_error() -> None:
    result = samples.impostor.enqueue()
    run_until_idle(scheduled=True)
    assert "Suspended" in error_of(result)


@pytest.mark.long
def test_a_sleep_may_be_until_a_time_and_has_an_end() -> None:
    when = clock.now() + timedelta(hours=2)
    year = 366 * 24 * 3600
    seconds = [samples.nap.enqueue(60), samples.nap.enqueue(year)]
    run_until_idle()
    assert abs((row(seconds[1]).run_at - clock.now()).total_seconds() - year) < 60
    result = samples.sleep_until.enqueue(when.isoformat())
    run_until_idle()
    assert abs((row(result).run_at - when).total_seconds()) < 0.01
    assert run_until_idle(scheduled=True) == 3


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York", "UTC"])
def test_a_sleep_until_a_time_in_any_zone_continues_after_a_pause(zone: str) -> None:
    when = (clock.now() + timedelta(hours=2)).astimezone(ZoneInfo(zone))
    result = samples.sleep_until.enqueue(when.isoformat())
    run_until_idle()
    pause(result.job_id)
    resume(result.job_id)
    job = row(result)
    assert (job.place, job.run_at) == (("PENDING", "time"), when)
    why = why_waiting(job)
    assert why is not None
    assert (why.gate, why.text[:16]) == ("sleeping", "It sleeps until ")


def test_a_sleep_that_was_stored_in_another_zone_is_still_a_sleep() -> None:
    result = samples.sleep_until.enqueue((clock.now() + timedelta(hours=2)).isoformat())
    run_until_idle()
    job = row(result)
    assert job.run_at is not None
    Job.objects.filter(pk=job.pk).update(options={"sleeps_until": job.run_at.astimezone(ZoneInfo("Asia/Tokyo")).isoformat()})
    pause(result.job_id)
    resume(result.job_id)
    assert row(result).place == ("PENDING", "time")


@pytest.mark.parametrize("far", [timedelta(days=800), 367 * 24 * 3600, 10**400, clock.now() + timedelta(days=367)])
def test_a_sleep_that_is_too_long_is_refused_rather_than_cut(far: Any) -> None:
    steps: Any = type("Steps", (), {"current": "rest", "suspend": None, "open_blocks": list, "ended": None})()
    context = TaskContext(None, type("Control", (), {"interruption": lambda self: None})(), steps)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="a job can sleep for at most 366 days"):
        context.sleep(far)


@pytest.mark.parametrize("wrong", [-1, float("nan"), "soon", True, None])
def test_a_wrong_time_to_sleep_is_refused(wrong: Any) -> None:
    steps: Any = type("Steps", (), {"current": "rest", "suspend": None, "open_blocks": list, "ended": None})()
    context = TaskContext(None, type("Control", (), {"interruption": lambda self: None})(), steps)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="until is"):
        context.sleep(wrong)


@pytest.mark.parametrize("name", ["sleep", "wait_for", "checkpoint", "phase_result", "children"])
def test_a_task_without_phases_is_refused_what_is_for_phases(name: str) -> None:
    result = samples.plain.enqueue(name)
    run_until_idle(scheduled=True)
    assert f"context.{name} is for pipelines, and this task has no phases" in error_of(result)


@pytest.mark.parametrize("name", ["sleep", "wait_for", "checkpoint"])
def test_after_the_last_phase_a_job_can_neither_sleep_nor_wait(name: str) -> None:
    result = samples.late.enqueue(name)
    run_until_idle(scheduled=True)
    assert f"context.{name} is for phases, and all of them have finished" in error_of(result)


def test_a_sleep_whose_exception_is_caught_is_still_a_sleep() -> None:
    result = samples.swallowing.enqueue()
    run_until_idle()
    assert row(result).place == ("PENDING", "time")
    assert row(result).phases.get().result == "slept"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["hasty", "ahasty"])
@pytest.mark.parametrize("name", ["sleep", "wait_for"])
def test_a_phase_that_would_roll_back_its_own_work_as_it_suspends_is_refused(kind: str, name: str) -> None:
    result = getattr(samples, kind).enqueue(name)
    run_until_idle(scheduled=True)
    assert f"context.{name} was called inside of transaction.atomic() of database 'default'" in error_of(result)
    assert list(row(result).phases.values_list("status", flat=True)) == ["ERROR"]


@pytest.mark.long
@pytest.mark.parametrize("name", ["sleep", "wait_for"])
def test_a_test_case_that_is_itself_a_transaction_sees_the_refusal_too(name: str) -> None:
    refused, patient = samples.hasty.enqueue(name), samples.patient.enqueue()
    with transaction.atomic():  # of the caller that runs the jobs, not of a phase
        run_until_idle(scheduled=True)
    assert f"context.{name} was called inside of transaction.atomic()" in error_of(refused)
    assert row(patient).status == "SUCCESS", row(patient).message


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_behind_a_transaction_a_phase_suspends() -> None:
    result = samples.patient.enqueue()
    run_until_idle()
    assert row(result).status == "SUCCESS", row(result).message


def test_the_log_says_when_a_job_continues(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="jobqueue"):
        samples.nap.enqueue(3600)
        samples.family.enqueue([1])
        run_until_idle(limit=2)
    said = " ".join(caplog.messages)
    assert "nap PENDING in" in said
    assert ", next run in 3600.0 s" in said
    assert ", next run when the jobs for which it waits have ended" in said


@pytest.mark.long
def test_a_sleep_inside_of_a_task_group_is_a_sleep() -> None:
    result = samples.siesta.enqueue(3600)
    assert run_until_idle() == 1
    job = row(result)
    assert (job.place, job.phase, job.history) == (("PENDING", "time"), "wake", [])
    assert run_until_idle(scheduled=True) == 1
    assert (row(result).status, row(result).result) == ("SUCCESS", "dozed")


def test_an_exception_raised_from_a_sleep_is_a_sleep() -> None:
    result = samples.slumber.enqueue(3600)
    assert run_until_idle() == 1
    job = row(result)
    assert (job.place, job.history) == (("PENDING", "time"), [])
    assert run_until_idle(scheduled=True) == 1
    assert (row(result).status, row(result).result) == ("SUCCESS", "dozed")
