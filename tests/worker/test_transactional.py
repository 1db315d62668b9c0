"""A transactional task: its work in the job database and the end of its job are one transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, connection, transaction

from jobqueue import Retry, TaskContext, task
from jobqueue.exceptions import InvalidOption
from jobqueue.lifecycle import control
from jobqueue.lifecycle.outcome import Kind, Outcome
from jobqueue.models import Job
from jobqueue.worker.executor import execute
from jobqueue.worker.run import Reason, Run
from tests.factories import JobFactory
from tests.rivals import Rival
from tests.worker.parts import run_of

pytestmark = pytest.mark.django_db(transaction=True)


def run(function: Callable[..., Any], **columns: Any) -> tuple[Job, Run]:
    job = JobFactory(running=True, **columns)
    takes_context = function.__code__.co_argcount > 0
    made = run_of(function, number=job.pk, lease_token=1, target=job.target, tenant=job.tenant, takes_context=takes_context)
    assert made.entry is not None
    made.entry = replace(made.entry, transactional=True)
    return job, made


def execute_and_look(function: Callable[..., Any], **columns: Any) -> tuple[Outcome, Job, list[str]]:
    job, made = run(function, **columns)
    outcome = execute(made)
    job.refresh_from_db()
    return outcome, job, list(Group.objects.values_list("name", flat=True))


def work() -> str:
    Group.objects.create(name="made")
    return "done"


def test_the_work_and_the_success_are_committed_together() -> None:
    outcome, job, made = execute_and_look(work)
    assert (outcome.kind, outcome.committed) == (Kind.SUCCESS, True)
    assert (job.status, job.result, job.lease_owner, job.progress, len(job.worker_ids)) == ("SUCCESS", "done", "", 100, 1)
    assert made == ["made"]


@pytest.mark.parametrize("error", [ValueError("no"), Retry(delay=3), SystemExit()])
def test_what_raises_leaves_nothing_and_ends_like_any_other(error: BaseException) -> None:
    def function() -> None:
        work()
        raise error

    outcome, job, made = execute_and_look(function)
    assert (outcome.kind, outcome.committed, job.status, made) == (Kind.ERROR, False, "RUNNING", [])


@pytest.mark.parametrize("change", [{"lease_token": 2, "lease_owner": "worker-2"}, {"status": "QUEUED"}])
def test_a_lost_lease_undoes_the_work(change: dict[str, Any]) -> None:
    lost = {"lease_owner": "", "lease_expires_at": None, "heartbeat_at": None} if "status" in change else {}

    def function() -> None:
        work()
        Job.objects.filter(pk=job.pk).update(**change, **lost)

    job, made = run(function)
    outcome = execute(made)
    job.refresh_from_db()
    assert (outcome.committed, Group.objects.count()) == (False, 0)
    assert outcome.failure is not None
    assert outcome.failure.path == "jobqueue.exceptions.LeaseLost"


def test_a_result_that_cannot_be_kept_undoes_the_work() -> None:
    def function() -> Any:
        work()
        return object()

    outcome, job, made = execute_and_look(function)
    assert (outcome.kind, job.status, made) == (Kind.ERROR, "RUNNING", [])


def test_a_transaction_that_is_marked_for_rollback_is_no_success() -> None:
    def function() -> None:
        work()
        transaction.set_rollback(True)

    outcome, job, made = execute_and_look(function)
    assert (outcome.kind, job.status, made) == (Kind.ERROR, "RUNNING", [])
    assert outcome.failure is not None
    assert "marked for rollback" in outcome.failure.summary


def test_a_swallowed_database_error_is_no_success() -> None:
    def function() -> None:
        work()
        with contextlib.suppress(IntegrityError), transaction.atomic(savepoint=False):
            Group.objects.create(name="made")

    outcome, job, made = execute_and_look(function)
    assert (outcome.kind, job.status, made) == (Kind.ERROR, "RUNNING", [])


def test_an_interrupt_undoes_the_work() -> None:
    def function(context: TaskContext) -> None:
        work()
        made.interrupt(Reason.USER)
        context.raise_if_cancelled()

    _, made = run(function)
    outcome = execute(made)
    assert (outcome.kind, outcome.committed, Group.objects.count()) == (Kind.INTERRUPTED, False, 0)


def test_a_request_to_stop_that_comes_too_late_is_noted() -> None:
    def function() -> str:
        control.cancel(job.pk) if connection.vendor == "sqlite" else rival.do(control.cancel, job.pk)
        return work()

    rival = Rival()
    job, made = run(function)
    outcome = execute(made)
    rival.close()
    job.refresh_from_db()
    assert (outcome.committed, job.status, job.message) == (True, "SUCCESS", "Job finished before the interrupt reached it")


def test_the_target_moves_on_in_the_same_transaction() -> None:
    behind = JobFactory(target="customer:7", waiting_for_target=True)
    outcome, job, _ = execute_and_look(work, target="customer:7")
    behind.refresh_from_db()
    assert (outcome.committed, job.status, job.holds_target, behind.status) == (True, "SUCCESS", False, "QUEUED")


@pytest.mark.postgresql
def test_a_row_that_somebody_has_locked_is_waited_for(rival: Rival) -> None:
    job, made = run(work)
    with rival.locking(job):
        other = Rival()
        ending = other.start(execute, made)
        while not made.value:
            assert not ending.done()
    assert ending.result(20).committed
    other.close()
    assert Group.objects.count() == 1


def test_callbacks_run_after_the_commit() -> None:
    seen: list[str] = []

    def function() -> None:
        transaction.on_commit(lambda: seen.append(Job.objects.get(pk=job.pk).status))

    job, made = run(function)
    execute(made)
    assert seen == ["SUCCESS"]


def test_what_the_context_saves_goes_with_the_success() -> None:
    def function(context: TaskContext) -> None:
        if connection.vendor == "sqlite":  # elsewhere it waits for the reporter, which no thread runs here
            context.metadata["cursor"] = 7
            context.save_metadata()

    outcome, job, _ = execute_and_look(function)
    assert outcome.committed
    assert job.metadata == ({"cursor": 7} if connection.vendor == "sqlite" else {})


def test_a_coroutine_is_refused() -> None:
    async def function() -> None: ...

    with pytest.raises(InvalidOption, match="coroutine"):
        task(transactional=True)(function)
