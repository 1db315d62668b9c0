"""enqueue_many: one transaction for all, in order; enqueue_job: by a path that need not be imported here."""

from typing import Any

import pytest
from django.db import transaction

from jobqueue import InvalidOption, compat, enqueue_job, enqueue_many, signals
from jobqueue.models import Job
from jobqueue.testing import run_until_idle
from tests.tasks_layer import samples

pytestmark = pytest.mark.django_db
PATH = "tests.tasks_layer.samples.plain"


@pytest.mark.long
def test_two_thousand_jobs_keep_their_order_and_arguments() -> None:
    results = enqueue_many(samples.plain.using(priority=3), [((number, "tab\tand\\n\n"), {"name": None}) for number in range(2000)])
    assert len(results) == 2000
    ids = [result.job_id for result in results]
    assert ids == sorted(set(ids))
    rows = Job.objects.order_by("pk").values_list("pk", "args", "kwargs", "priority", "status", "task")
    expected = [(pk, [number, "tab\tand\\n\n"], {"name": None}, 3, "QUEUED", PATH) for number, pk in enumerate(ids)]
    assert list(rows) == expected
    assert all(result.created for result in results)


def test_results_can_be_sliced_counted_from_the_end_and_read_again() -> None:
    results = enqueue_many(samples.plain, [((number,), {}) for number in range(5)])
    assert [result.args for result in results[1:3]] == [[1], [2]]
    assert results[-1].args == [4]
    with pytest.raises(IndexError):
        results[5]
    assert run_until_idle() == 5
    results[0].refresh()
    assert samples.plain.get_result(results[4].id).return_value == [4]


def test_nothing_to_enqueue_makes_nothing() -> None:
    assert list(enqueue_many(samples.plain, [])) == []
    assert not Job.objects.exists()


def test_calls_may_come_from_a_generator() -> None:
    assert len(enqueue_many(samples.plain, (((number,), {}) for number in range(3)))) == 3


def test_one_bad_call_refuses_all() -> None:
    with transaction.atomic():
        with pytest.raises(TypeError):
            enqueue_many(samples.plain, [((1,), {}), ((object(),), {}), ((3,), {})])
        assert not Job.objects.exists()


def test_one_bad_unique_key_refuses_all() -> None:
    with transaction.atomic():
        with pytest.raises(InvalidOption, match="200"):
            enqueue_many(samples.keyed, [((1,), {}), ((1,), {"kind": "x" * 300})])
        assert not Job.objects.exists()


def test_unique_keys_hold_inside_of_the_bulk_and_against_what_is_there() -> None:
    before = samples.keyed.enqueue(1)
    results = enqueue_many(samples.keyed, [((number,), {}) for number in (1, 2, 3, 2)])
    assert [result.created for result in results] == [False, True, True, False]
    assert results[0].id == before.id
    assert results[1].id == results[3].id
    assert Job.objects.count() == 3


def test_a_rolled_back_bulk_never_existed() -> None:
    with transaction.atomic():
        enqueue_many(samples.plain, [((1,), {})] * 10)
        transaction.set_rollback(True)
    # The test's own transaction is around it.
    assert not Job.objects.exists()


def test_the_signal_of_the_enqueue_comes_for_each_job_that_was_made() -> None:
    heard: list[Any] = []

    def listen(sender: Any, task_result: Any, **more: Any) -> None:
        heard.append((sender, task_result.id))

    signals.task_enqueued.connect(listen)
    try:
        results = enqueue_many(samples.keyed, [((1,), {}), ((1,), {}), ((2,), {})])
    finally:
        signals.task_enqueued.disconnect(listen)
    backend = type(samples.keyed.get_backend())
    assert heard == [(backend, results[0].id), (backend, results[2].id)]


def test_a_receiver_of_an_enqueue_that_ends_its_process_undoes_no_enqueue() -> None:
    def leave(**_: Any) -> None:
        raise SystemExit(3)

    signals.task_enqueued.connect(leave)
    try:
        assert samples.keyed.enqueue(5).id
        assert len(enqueue_many(samples.keyed, [((6,), {}), ((7,), {})])) == 2
    finally:
        signals.task_enqueued.disconnect(leave)
    assert Job.objects.count() == 3


def test_a_backend_of_another_kind_is_named(settings: Any) -> None:
    settings.TASKS = {**settings.TASKS, "other": {"BACKEND": f"{compat.PACKAGE}.backends.dummy.DummyBackend"}}
    with pytest.raises(InvalidOption, match=r"'other' is a DummyBackend; this needs jobqueue\.backends\.DatabaseBackend"):
        enqueue_many(samples.plain.using(backend="other"), [])


@pytest.mark.parametrize("backend", ["immediate", "dummy"])
def test_the_backends_for_tests_take_many(backend: str) -> None:
    task = samples.plain.using(backend=backend)
    task.get_backend().clear()
    with pytest.raises(TypeError):
        enqueue_many(task, [((1,), {}), ((object(),), {})])
    assert task.get_backend().results == []
    assert [result.args for result in enqueue_many(task, [((1,), {}), ((2,), {})])] == [[1], [2]]


def test_a_job_is_made_by_the_path_of_its_task() -> None:
    result = enqueue_job(PATH, 1, 2, kwargs={"c": 3}, priority=4, queue_name="reports", unique_key="once")
    job = Job.objects.get(pk=result.job_id)
    assert (job.task, job.args, job.kwargs, job.priority, job.queue, job.unique_key) == (PATH, [1, 2], {"c": 3}, 4, "reports", "once")
    assert run_until_idle() == 1
    assert samples.plain.get_result(result.id).return_value == [1, 2, {"c": 3}]


def test_a_path_keeps_what_its_task_declares() -> None:
    job = Job.objects.get(pk=enqueue_job("tests.tasks_layer.samples.full").job_id)
    assert (job.max_attempts, job.queue, job.priority, job.unique_key) == (3, "reports", 5, "one")


def test_a_task_that_is_not_here_can_be_enqueued_and_its_result_read() -> None:
    result = enqueue_job("elsewhere.tasks.send", 7, max_attempts=2)
    job = Job.objects.get(pk=result.job_id)
    assert (job.task, job.args, job.max_attempts, job.status) == ("elsewhere.tasks.send", [7], 2, "QUEUED")
    result.refresh()
    assert result.status == "READY"
    assert result.task.module_path == "elsewhere.tasks.send"


def test_a_job_of_a_task_that_is_not_here_is_put_off_and_not_lost() -> None:
    result = enqueue_job("elsewhere.tasks.send")
    assert run_until_idle() == 1
    job = Job.objects.get(pk=result.job_id)
    assert (job.status, job.attempt, job.failures) == ("PENDING", 0, 0)
    assert "elsewhere.tasks.send" in job.message


def test_a_job_of_a_task_that_is_not_here_fails_on_the_immediate_backend() -> None:
    result = enqueue_job("elsewhere.tasks.send", backend="immediate")
    assert result.status == "FAILED"
    assert result.errors[0].exception_class_path == "jobqueue.exceptions.UnknownTask"


@pytest.mark.parametrize("path", ["", "send", "a..b", "a b.c", ".a", "a.", "1a.b", "a.b()", None, 7])
def test_an_invalid_path_is_refused(path: Any) -> None:
    with pytest.raises(InvalidOption, match="dotted path"):
        enqueue_job(path)
    assert not Job.objects.exists()


def test_a_path_longer_than_its_column_is_refused() -> None:
    with transaction.atomic():
        with pytest.raises((InvalidOption, ValueError)):
            enqueue_job("a." + "b" * 600)
        assert not Job.objects.exists()


def test_a_misspelt_option_is_refused() -> None:
    with pytest.raises(InvalidOption, match="did you mean 'priority'"):
        enqueue_job(PATH, prioritty=1)
