"""The Immediate and the Dummy backend take what the database backend takes, and behave as a test wants it."""

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobqueue import JobResult, compat, enqueue_many, fixed, task
from jobqueue.core.masking import MASK
from jobqueue.testing import DummyBackend, ImmediateBackend
from jobqueue.testing import backends as module
from tests.tasks_layer import samples

HOUR = timedelta(hours=1)


def backend_called(alias: str) -> Any:
    backend = compat.task_backends()[alias]
    backend.clear()
    samples.calls.clear()
    return backend


@pytest.fixture
def immediate() -> Iterator[ImmediateBackend]:
    yield (backend := backend_called("immediate"))
    backend.clear()


@pytest.fixture
def dummy() -> Iterator[DummyBackend]:
    yield (backend := backend_called("dummy"))
    backend.clear()


def now(task: Any) -> Any:
    return task.using(backend="immediate")


def kept(task: Any) -> Any:
    return task.using(backend="dummy")


def test_a_task_with_every_option_runs_at_once(immediate: ImmediateBackend) -> None:
    result = now(samples.full).enqueue()
    assert isinstance(result, JobResult)
    assert (result.status, result.job_status, result.created) == ("SUCCESSFUL", "SUCCESS", True)
    assert immediate.results == [result]


def test_a_task_is_tried_again_at_once_until_it_succeeds(immediate: ImmediateBackend) -> None:
    began = time.monotonic()
    result = now(samples.flaky).enqueue(3)
    assert (result.return_value, result.attempts, len(result.errors)) == (3, 3, 2)
    assert time.monotonic() - began < 60  # its backoff is an hour


def test_a_task_is_tried_no_more_often_than_it_may(immediate: ImmediateBackend) -> None:
    result = now(samples.flaky).enqueue(9)
    assert (result.status, result.job_status, result.attempts) == ("FAILED", "ERROR", 3)
    assert [error.exception_class for error in result.errors] == [OSError] * 3
    assert now(samples.flaky).using(max_attempts=1).enqueue(99).attempts == 1


def test_a_backoff_that_is_wrong_ends_the_task_with_its_error(immediate: ImmediateBackend) -> None:
    broken = task(backend="immediate", max_attempts=3, backoff=lambda error, failures: None)(samples.spawns.func)  # type: ignore[arg-type, return-value]
    result = broken.enqueue()
    assert (result.status, result.attempts) == ("FAILED", 1)
    assert result.errors[0].exception_class_path == "jobqueue.exceptions.InvalidBackoff"


def test_a_context_has_progress_wait_and_metadata(immediate: ImmediateBackend) -> None:
    began = time.monotonic()
    result = now(samples.talks).enqueue()
    assert time.monotonic() - began < 60  # it waits for an hour
    assert result.return_value == {"attempt": 1, "job_id": result.job_id, "token": 1, "cancelled": False}
    one = immediate.kept[result.id]
    assert (one.progress, one.message, one.metadata) == (100, "halfway", '{"count":2}')


def test_a_coroutine_has_a_context_too(immediate: ImmediateBackend) -> None:
    result = now(samples.atalks).enqueue()
    assert (result.return_value, immediate.kept[result.id].progress) == ("RUNNING", 10)


@pytest.mark.parametrize("run_after", [HOUR, timezone.now() + HOUR])
def test_deferred_jobs_run_when_the_test_requests_it(immediate: ImmediateBackend, run_after: Any) -> None:
    result = now(samples.plain).using(run_after=run_after).enqueue(1)
    assert (result.status, result.job_status, samples.calls) == ("READY", "PENDING", [])
    assert immediate.run_deferred() == 1
    assert (result.return_value, samples.calls) == ([1], [(1,)])
    assert immediate.run_deferred() == 0


def test_deferred_tasks_run_in_the_order_of_their_times(immediate: ImmediateBackend) -> None:
    for hours in (3, 1, 2):
        now(samples.plain).using(run_after=hours * HOUR).enqueue(hours)
    assert immediate.run_deferred() == 3
    assert samples.calls == [(1,), (2,), (3,)]


def test_a_time_that_has_passed_means_at_once(immediate: ImmediateBackend) -> None:
    assert now(samples.plain).using(run_after=timezone.now() - HOUR).enqueue(1).return_value == [1]


def test_a_deferred_task_holds_its_unique_key_and_frees_it_at_its_end(immediate: ImmediateBackend) -> None:
    keyed = now(samples.plain).using(unique_key="once", run_after=HOUR)
    first, second = keyed.enqueue(1), keyed.enqueue(2)
    assert (first.created, second.created, second.id, second.args) == (True, False, first.id, [1])
    immediate.run_deferred()
    assert keyed.enqueue(3).created


def test_ctrl_c_reaches_the_caller(immediate: ImmediateBackend) -> None:
    interrupting = task(backend="immediate", max_attempts=3)(interrupt)
    with pytest.raises(KeyboardInterrupt):
        interrupting.enqueue()


def interrupt() -> None:
    raise KeyboardInterrupt


def test_the_oldest_that_have_ended_are_forgotten(immediate: ImmediateBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT", 3)
    waiting = now(samples.plain).using(run_after=HOUR).enqueue("waits")
    for number in range(5):
        now(samples.plain).enqueue(number)
    assert [result.args for result in immediate.results] == [waiting.args, [3], [4]]


def test_nothing_runs_on_the_dummy_backend(dummy: DummyBackend) -> None:
    result = kept(samples.plain).using(run_after=HOUR, max_attempts=3, priority=9).enqueue(1, named=[2])
    assert (result.status, samples.calls) == ("READY", [])
    (found,) = dummy.results
    assert (found.args, found.kwargs, found.task.priority, found.task.run_after) == ([1], {"named": [2]}, 9, HOUR)


def test_the_dummy_backend_finds_the_task_with_the_same_unique_key(dummy: DummyBackend) -> None:
    results = enqueue_many(kept(samples.keyed), [((number,), {}) for number in (1, 2, 1)])
    assert [result.created for result in results] == [True, True, False]
    assert len(dummy.results) == 2


def test_a_result_is_no_handle_on_what_the_dummy_backend_keeps(dummy: DummyBackend) -> None:
    result = kept(samples.plain).enqueue([1])
    result.args.append(2)
    assert dummy.results[0].args == [[1]]
    assert dummy.get_result(result.id).args == [[1]]


def test_clear_forgets_everything(dummy: DummyBackend) -> None:
    result = kept(samples.plain).enqueue()
    dummy.clear()
    assert dummy.results == []
    with pytest.raises(compat.TaskResultDoesNotExist):
        dummy.get_result(result.id)


def test_every_thread_has_its_own(dummy: DummyBackend) -> None:
    found: list[int] = []

    def other_thread() -> None:
        kept(samples.plain).enqueue()
        found.append(len(compat.task_backends()["dummy"].results))

    kept(samples.plain).enqueue()
    thread = threading.Thread(target=other_thread)
    thread.start()
    thread.join(10)
    assert (found, len(dummy.results)) == ([1], 1)


def test_a_declared_task_can_live_on_a_backend_for_tests(immediate: ImmediateBackend) -> None:
    declared = task(backend="immediate", max_attempts=2, backoff=fixed(1))(samples.undeclared)
    assert declared.enqueue().return_value == "undeclared"


def test_a_task_that_is_no_attribute_of_its_module_can_be_kept(dummy: DummyBackend) -> None:
    result = task(backend="dummy")(samples.undeclared).enqueue()
    assert result.task.func is samples.undeclared


def test_at_once_the_secrets_of_a_job_are_hidden_as_in_a_worker(immediate: ImmediateBackend) -> None:
    result = now(samples.discreet).enqueue("NL-4711-0815")
    assert immediate.kept[result.id].message == f"reads {MASK}"
    assert "NL-4711-0815" not in result.errors[0].traceback
    assert f"no such account: {MASK}" in result.errors[0].traceback
