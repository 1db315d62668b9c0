"""run_until_idle does what a worker does, in the calling thread and its transaction."""

import contextlib
import contextvars
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.test import TestCase

from jobqueue import signals, task
from jobqueue.models import Job
from jobqueue.testing import run_until_idle
from tests.tasks_layer import samples


@task
def make_user(name: str) -> int:
    return User.objects.create(username=name).pk


@task
async def amake_user(name: str) -> int:
    return (await User.objects.acreate(username=name)).pk


@task
def break_transaction(name: str) -> str:
    try:
        User.objects.create(username=name)
    except IntegrityError:
        return "caught"
    return "made"


@task
def enqueue_again(left: int) -> int:
    if left:
        enqueue_again.enqueue(left - 1)
    return left


class TestRunUntilIdle(TestCase):
    def test_a_task_runs_in_the_transaction_of_the_test(self) -> None:
        User.objects.create(username="before")
        result = make_user.enqueue("made")
        assert run_until_idle() == 1
        result.refresh()
        assert User.objects.get(username="made").pk == result.return_value
        assert transaction.get_connection().in_atomic_block

    def test_a_coroutine_uses_the_transaction_of_the_test_too(self) -> None:
        result = amake_user.enqueue("made")
        assert run_until_idle() == 1
        result.refresh()
        assert User.objects.get(username="made").pk == result.return_value

    def test_a_task_that_breaks_the_transaction_does_not_break_the_test(self) -> None:
        User.objects.create(username="taken")
        results = [break_transaction.enqueue("taken"), make_user.enqueue("taken"), make_user.enqueue("free")]
        assert run_until_idle() == 3
        for result in results:
            result.refresh()
        assert [result.status for result in results] == ["SUCCESSFUL", "FAILED", "SUCCESSFUL"]
        assert results[1].errors[0].exception_class == IntegrityError

    def test_jobs_that_a_task_enqueues_run_too(self) -> None:
        enqueue_again.enqueue(3)
        assert run_until_idle() == 4

    def test_the_limit_is_a_number_of_runs(self) -> None:
        enqueue_again.enqueue(10)
        assert run_until_idle(limit=3) == 3
        assert run_until_idle(limit=0) == 0
        assert Job.objects.filter(status="SUCCESS").count() == 3

    def test_only_the_named_queues_are_served(self) -> None:
        samples.plain.using(queue_name="a").enqueue()
        samples.plain.using(queue_name="b").enqueue()
        assert run_until_idle(["a"]) == 1
        assert Job.objects.get(status="QUEUED").queue == "b"

    def test_the_best_job_runs_first(self) -> None:
        samples.calls.clear()
        for priority in (0, 9, -9):
            samples.plain.using(priority=priority).enqueue(priority)
        run_until_idle()
        assert samples.calls == [(9,), (0,), (-9,)]

    def test_scheduled_jobs_run_when_the_test_says_so(self) -> None:
        samples.calls.clear()
        for hours in (2, 1):
            samples.plain.using(run_after=timedelta(hours=hours)).enqueue(hours)
        assert run_until_idle() == 0
        assert run_until_idle(["other"], scheduled=True) == 0
        assert run_until_idle(scheduled=True) == 2

    def test_the_context_works_as_in_a_worker(self) -> None:
        result = samples.talks.enqueue()
        assert run_until_idle() == 1
        result.refresh()
        assert result.status == "SUCCESSFUL", result.errors
        job = Job.objects.get(pk=result.job_id)
        assert (job.metadata, job.progress, job.message) == ({"count": 2}, 100, "halfway")

    def test_the_end_of_each_run_is_reported_as_by_a_worker(self) -> None:
        told: list[tuple[Any, ...]] = []

        def listen(sender: Any, *, job_id: int, status: str, **more: Any) -> None:
            told.append((job_id, status))

        signals.job_settled.connect(listen)
        try:
            good, bad = samples.plain.enqueue(), samples.spawns.enqueue()
            run_until_idle(limit=2)
        finally:
            signals.job_settled.disconnect(listen)
        assert told == [(good.job_id, "SUCCESS"), (bad.job_id, "ERROR")]


CURRENT: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")


@contextlib.contextmanager
def by_variable(name: str) -> Iterator[None]:
    """Keep the tenant in a variable, as a project may."""
    token = CURRENT.set(name)
    yield
    CURRENT.reset(token)


@task
def tells_tenant() -> str:
    return CURRENT.get()


@task
async def atells_tenant() -> str:
    return CURRENT.get()


@pytest.mark.django_db
@pytest.mark.parametrize("tells", [tells_tenant, atells_tenant])
def test_a_tenants_variables_do_not_stay_with_the_caller(settings: Any, tells: Any) -> None:
    settings.JOBQUEUE = {"TENANT_CONTEXT": by_variable}
    tells.using(tenant="acme").enqueue()
    assert run_until_idle() == 1
    assert (Job.objects.get().result, CURRENT.get("nobody")) == ("acme", "nobody")


@task(transactional=True)
def leaves_open(name: str) -> None:
    User.objects.create(username=name)
    transaction.atomic().__enter__()


@task(transactional=True)
def books(name: str) -> str:
    User.objects.create(username=name)
    return name


@pytest.mark.django_db
def test_a_transactional_task_is_undone_alone_in_the_transaction_of_the_caller() -> None:
    books.enqueue("kept")
    leaves_open.enqueue("undone")
    books.enqueue("kept, too")
    assert run_until_idle() == 3
    assert list(Job.objects.order_by("pk").values_list("status", flat=True)) == ["SUCCESS", "ERROR", "SUCCESS"]
    assert list(User.objects.order_by("pk").values_list("username", flat=True)) == ["kept", "kept, too"]


@pytest.mark.django_db(transaction=True)
def test_outside_of_a_transaction_the_task_has_none() -> None:
    result = tells_transaction.enqueue()
    assert run_until_idle() == 1
    result.refresh()
    assert result.return_value is False


@task
def tells_transaction() -> bool:
    return transaction.get_connection().in_atomic_block
