"""A job as a result of django.tasks, in each state of the job, its task and its queue."""

from typing import Any

import pytest
from django.db.models import JSONField, Value
from django.test import override_settings

from jobqueue import cancel, compat
from jobqueue.core import states
from jobqueue.declared import registry
from jobqueue.exceptions import JobCanceled, JobQueueError, UnknownTask
from jobqueue.models import Job
from jobqueue.public_ids import public_id
from jobqueue.testing import run_until_idle
from tests.factories import JobFactory
from tests.tasks_layer import samples

pytestmark = pytest.mark.django_db

STATUS_OF = {
    "scheduled": "READY",
    "waiting_for_children": "READY",
    "waiting_for_target": "READY",
    "queued": "READY",
    "paused": "READY",
    "running": "RUNNING",
    "success": "SUCCESSFUL",
    "error": "FAILED",
    "canceled": "FAILED",
}


def result_of(job: Job) -> Any:
    return samples.plain.get_backend().get_result(public_id(job.pk))


@pytest.mark.parametrize(("trait", "status"), STATUS_OF.items())
def test_every_status_has_its_counterpart(trait: str, status: str) -> None:
    job = JobFactory(**{trait: True})
    result = result_of(job)
    assert (result.status, result.job_status) == (status, job.status)
    assert result.is_finished == (status in ("SUCCESSFUL", "FAILED"))


def test_the_table_above_has_every_status() -> None:
    assert {JobFactory.build(**{trait: True}).status for trait in STATUS_OF} == set(states.Status.values)


def test_a_canceled_job_has_an_error_of_a_class_that_can_be_imported() -> None:
    result = samples.plain.enqueue()
    assert cancel(result.job_id)
    result.refresh()
    assert [error.exception_class for error in result.errors] == [JobCanceled]
    assert "canceled" in result.errors[0].traceback
    assert result.finished_at is not None
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value


def test_an_ended_job_without_a_history_still_has_an_error() -> None:
    result = result_of(JobFactory(error=True, history=[], message="set aside"))
    assert [(error.exception_class, error.traceback) for error in result.errors] == [(JobQueueError, "set aside")]


def test_every_run_is_an_attempt_and_every_failure_an_error(django_assert_max_num_queries: Any) -> None:
    samples.calls.clear()
    result = samples.flaky.enqueue(3)
    assert run_until_idle() == 1
    assert run_until_idle() == 0  # it waits for its retry
    assert run_until_idle(scheduled=True) == 2
    with django_assert_max_num_queries(1):
        result.refresh()
    assert (result.status, result.return_value) == ("SUCCESSFUL", 3)
    assert result.attempts == len(result.worker_ids) == 3
    assert [error.exception_class for error in result.errors] == [OSError, OSError]
    assert "try 1" in result.errors[0].traceback
    assert result.enqueued_at < result.started_at <= result.last_attempted_at <= result.finished_at


def test_a_running_job_counts_the_present_attempt() -> None:
    result = result_of(JobFactory(running=True, attempt=2, worker_ids=["worker-0"], lease_owner="worker-1"))
    assert (result.attempts, result.worker_ids) == (2, ["worker-0", "worker-1"])


def test_the_result_of_a_task_that_is_gone_can_be_read() -> None:
    result = result_of(JobFactory(success=True, task="gone.tasks.old", args=[1], kwargs={"a": 2}, result={"kept": True}))
    assert (result.return_value, result.args, result.kwargs) == ({"kept": True}, [1], {"a": 2})
    assert (result.task.module_path, result.task.name) == ("gone.tasks.old", "old")
    with pytest.raises(UnknownTask, match=r"gone\.tasks\.old"):
        result.task.call()
    assert "gone.tasks.old" not in registry.paths()


def test_the_result_in_a_queue_that_is_gone_can_be_read() -> None:
    result = samples.plain.using(queue_name="old", priority=3).enqueue(5)
    run_until_idle()
    with override_settings(TASKS={"default": {"BACKEND": "jobqueue.backends.DatabaseBackend", "QUEUES": ["new"]}}):
        found = samples.plain.get_result(result.id)
        assert (found.return_value, found.task.queue_name, found.task.priority) == ([5], "old", 3)
        found.refresh()
        with pytest.raises(compat.InvalidTask):
            samples.plain.using(queue_name="old")


@pytest.mark.parametrize("columns", [{"args": None}, {"args": {"a": 1}}, {"kwargs": None}, {"kwargs": [1]}])
def test_a_row_that_was_edited_by_hand_can_be_read_and_ends_with_a_clear_error(columns: dict[str, Any]) -> None:
    job = JobFactory(task=samples.plain.module_path)
    # A plain None would be SQL's NULL, which the column refuses.
    Job.objects.filter(pk=job.pk).update(**{name: Value(value, JSONField()) for name, value in columns.items()})
    assert isinstance(result_of(job).args, list)
    assert run_until_idle() == 1
    result = result_of(job)
    assert result.status == "FAILED"
    assert "must be a JSON list and a JSON object" in result.errors[0].traceback


@pytest.mark.parametrize("wrong", ["", "x", "-1", "0", "1.0", "9" * 30, "1; drop", None, "１", " 1", "+1", "1_0"])  # noqa: RUF001
def test_an_invalid_id_has_no_result(wrong: Any) -> None:
    JobFactory(pk=1)
    JobFactory(pk=10)
    with pytest.raises(compat.TaskResultDoesNotExist):
        samples.plain.get_backend().get_result(wrong)


def test_a_result_carries_the_options_of_its_job_and_not_those_of_the_declaration() -> None:
    result = samples.full.using(priority=-7, queue_name="slow").enqueue()
    found = samples.full.get_result(result.id)
    assert (found.task.priority, found.task.queue_name, found.task.func) == (-7, "slow", samples.full.func)
    assert found.task.max_attempts == 3
