"""Three ways to declare a task are equivalent: Django's decorator with or without jobqueue's options, and jobqueue's decorator."""

from typing import Any

import django
import pytest
from django.test import override_settings

from jobqueue import InvalidOption, JobTask, compat, fixed, task
from jobqueue.declared import registry
from jobqueue.models import Job
from jobqueue.testing import run_until_idle
from tests.tasks_layer import samples

django_task: Any = compat.module("").task
TAKES_OPTIONS = not (compat.PACKAGE == "django.tasks" and django.VERSION < (6, 1))
OPTIONS: dict[str, Any] = {
    "max_attempts": 4,
    "backoff": fixed(1),
    "retry_on": (OSError,),
    "recovery": "hold",
    "unique_key": "k",
    "metadata": {"a": 1},
}


def test_our_decorator_takes_every_option_on_every_django() -> None:
    declared = task(**OPTIONS, priority=3, queue_name="reports", takes_context=False)(samples.undeclared)
    assert isinstance(declared, JobTask)
    assert isinstance(declared, compat.Task)
    assert {name: getattr(declared, name) for name in OPTIONS} == OPTIONS
    assert (declared.priority, declared.queue_name, declared.func) == (3, "reports", samples.undeclared)


def test_djangos_decorator_without_options_makes_our_task() -> None:
    declared = django_task(samples.undeclared)
    assert declared == task(samples.undeclared)
    assert declared.using(max_attempts=2, unique_key="x").max_attempts == 2


def test_djangos_decorator_takes_our_options_where_django_hands_them_on() -> None:
    if TAKES_OPTIONS:
        assert django_task(**OPTIONS)(samples.undeclared) == task(**OPTIONS)(samples.undeclared)
    else:
        with pytest.raises(TypeError, match="unexpected keyword"):
            django_task(**OPTIONS)


def test_our_decorator_works_without_and_with_empty_brackets() -> None:
    assert task(samples.undeclared) == task()(samples.undeclared)


@pytest.mark.parametrize("wrong", ["reports", 5, {"priority": 5}])
def test_an_option_without_a_name_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="by name"):
        task(wrong)


def test_a_task_is_no_function_and_its_function_can_be_called() -> None:
    assert samples.plain.call(1, 2) == [1, 2]
    assert samples.plain.func(3) == [3]
    assert samples.plain.module_path == "tests.tasks_layer.samples.plain"


def test_the_decorator_makes_a_jobqueue_task_with_any_backend() -> None:
    with override_settings(TASKS={"default": {"BACKEND": f"{compat.PACKAGE}.backends.dummy.DummyBackend"}}):
        assert isinstance(task(max_attempts=3)(samples.undeclared), JobTask)
        assert samples.full.using(queue_name="default").enqueue().status == "READY"


@pytest.mark.django_db
def test_a_plain_task_object_can_be_enqueued_and_runs() -> None:
    with override_settings(TASKS={"default": {"BACKEND": f"{compat.PACKAGE}.backends.dummy.DummyBackend"}}):
        plain = django_task(samples.undeclared)
    assert type(plain) is compat.Task
    registry.register(plain)
    result = plain.enqueue()
    job = Job.objects.get(pk=result.job_id)
    assert (job.task, job.max_attempts, job.unique_key, job.metadata) == (plain.module_path, 1, "", {})
    assert run_until_idle() == 1
    result.refresh()
    assert result.return_value == "undeclared"


@pytest.mark.django_db
def test_every_option_of_a_job_is_in_its_row() -> None:
    job = Job.objects.get(pk=samples.full.enqueue().job_id)
    assert (job.priority, job.queue, job.max_attempts, job.recovery, job.unique_key, job.metadata) == (
        5,
        "reports",
        3,
        "hold",
        "one",
        {"who": "me"},
    )


@pytest.mark.django_db
@override_settings(JOBQUEUE={"DEFAULT_RECOVERY": "hold"})
def test_a_task_that_says_nothing_of_recovery_has_the_settings() -> None:
    assert Job.objects.get(pk=samples.plain.enqueue().job_id).recovery == "hold"
    assert Job.objects.get(pk=samples.plain.using(recovery="requeue").enqueue().job_id).recovery == "requeue"
