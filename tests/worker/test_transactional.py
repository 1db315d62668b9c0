"""A transactional task: its work in the job database and the end of its job are one transaction."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import DatabaseError, IntegrityError, connection, transaction

from jobqueue import Retry, TaskContext, signals, task
from jobqueue.exceptions import InvalidOption, TransactionUndone
from jobqueue.lifecycle import control
from jobqueue.lifecycle.outcome import Kind, Outcome
from jobqueue.models import Job
from jobqueue.worker.running.executor import execute
from jobqueue.worker.running.run import Reason, Run
from tests.factories import JobFactory
from tests.rivals import Rival
from tests.worker.parts import run_of
from tests.worker.whole import connected, ended, until, working

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
def test_a_task_that_raises_leaves_no_writes_and_ends_like_any_other(error: BaseException) -> None:
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
def test_a_row_that_is_locked_is_waited_for(rival: Rival) -> None:
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


@pytest.mark.parametrize("error", [ZeroDivisionError("no"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_a_callback_that_fails_after_the_commit_is_logged_and_changes_nothing(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[bool] = []

    def fails() -> None:
        raise error

    def function() -> str:
        transaction.on_commit(fails)
        transaction.on_commit(lambda: called.append(made.committed is not None))
        return work()

    job, made = run(function)
    with ThreadPoolExecutor(1) as thread:  # in the main thread, Ctrl-C is meant for the process
        outcome = thread.submit(_execute, made).result()
    job.refresh_from_db()
    assert (outcome.kind, outcome.committed, job.status) == (Kind.SUCCESS, True, "SUCCESS")
    assert called == [True], "the other callbacks are called, and the end is known by then"
    records = [record for record in caplog.records if "one of its on_commit callbacks failed" in record.getMessage()]
    assert [record.exc_info and record.exc_info[1] for record in records] == [error]
    assert records[0].__dict__["job_id"] == job.pk


def test_what_a_callback_raises_is_logged_without_the_secrets_of_the_job(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise ValueError("the server refused open sesame")

    def function(password: str) -> str:
        transaction.on_commit(fails)
        return work()

    _, made = run(function)
    assert made.entry is not None
    made.job, made.entry = made.job._replace(args='["open sesame"]'), replace(made.entry, takes_context=False)
    assert execute(made).kind is Kind.SUCCESS
    [record] = [record for record in caplog.records if "one of its on_commit callbacks failed" in record.getMessage()]
    assert "the server refused ********" in record.getMessage()
    assert "open sesame" not in record.getMessage() + str(record.exc_text)
    assert "in fails" in str(record.exc_text)


def _execute(made: Run) -> Outcome:
    try:
        return execute(made)
    finally:
        connection.close()


@pytest.mark.long
def test_a_slow_callback_is_not_interrupted_and_the_signals_are_sent(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    settings.JOBQUEUE = {"HEARTBEAT_SECONDS": 0.05, "LEASE_SECONDS": 5}
    heard: list[tuple[str, str]] = []

    def receive(task_result: Any, **_: Any) -> None:
        heard.append((task_result.id, str(task_result.status)))

    with caplog.at_level(logging.WARNING, "jobqueue"), connected(signals.task_finished, receive), working():
        job = calls_back_slowly.enqueue()
        assert ended(job) == ["SUCCESS"]
        until(lambda: bool(heard))
    assert heard == [(job.id, "SUCCESSFUL")]
    assert [text.partition(" (")[0] for text in caplog.messages] == [f"Job {job.job_id}"], caplog.messages
    assert "one of its on_commit callbacks failed: ZeroDivisionError" in caplog.text


@pytest.mark.long
def test_a_slow_callback_keeps_no_transaction_open(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    settings.JOBQUEUE = {"HEARTBEAT_SECONDS": 0.2, "LEASE_SECONDS": 1}

    def is_quick() -> None:
        transaction.on_commit(lambda: time.sleep(0.6))

    def is_slow() -> None:
        time.sleep(0.6)

    for function, lines in ((is_quick, 0), (is_slow, int(Job.objects.database.one_writer))):
        caplog.clear()
        _, made = run(function)
        with caplog.at_level(logging.WARNING, "jobqueue"):
            assert execute(made).committed
        assert sum("kept its transaction open" in text for text in caplog.messages) == lines


@task(transactional=True)
def calls_back_slowly() -> None:
    transaction.on_commit(lambda: time.sleep(0.6))
    transaction.on_commit(lambda: 1 / 0)


def test_values_that_the_context_saves_are_written_with_the_success() -> None:
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


# What cannot be committed


def undone(function: Callable[..., Any], text: str, **columns: Any) -> None:
    """Execute, and check that nothing is written, that the job is reported as failed, and that the connection is clean."""
    outcome, job, made = execute_and_look(function, **columns)
    assert (outcome.kind, outcome.committed, job.status, made) == (Kind.ERROR, False, "RUNNING", [])
    assert outcome.failure is not None
    assert outcome.failure.path == "jobqueue.exceptions.TransactionUndone"
    assert text in outcome.failure.summary
    assert (connection.in_atomic_block, connection.savepoint_ids, connection.atomic_blocks) == (False, [], [])


@pytest.mark.parametrize("target", ["", "customer:7"])
def test_a_success_that_the_database_refuses_undoes_the_work(target: str) -> None:
    def function(context: TaskContext) -> str:
        context._control.own_progress().message = "a\ud800b"  # type: ignore[attr-defined]  # past what cleans it
        return work()

    undone(function, "The database refuses the job's result, message or metadata", target=target)


def test_the_refusal_of_a_success_is_the_cause_of_its_error() -> None:
    def function(context: TaskContext) -> str:
        context._control.own_progress().metadata = "no JSON"  # type: ignore[attr-defined]  # without the check of its value
        return work()

    outcome, _, _ = execute_and_look(function)
    assert outcome.failure is not None
    cause = "CHECK constraint failed" if connection.vendor == "sqlite" else "invalid input syntax for type json"
    assert cause in outcome.failure.traceback
    assert outcome.failure.path == "jobqueue.exceptions.TransactionUndone"


@pytest.mark.parametrize("durable", [False, True], ids=["savepoint", "no savepoint"])
@pytest.mark.parametrize("raises", [False, True])
def test_an_atomic_block_that_is_left_open_undoes_the_work(durable: bool, raises: bool) -> None:
    def function() -> None:
        work()
        transaction.atomic(savepoint=not durable).__enter__()
        transaction.atomic().__enter__()
        Group.objects.create(name="inside")
        if raises:
            raise TransactionUndone("of the task")

    undone(function, "of the task" if raises else "left an atomic block open")


def test_an_atomic_block_of_jobqueue_that_the_task_ends_is_no_success() -> None:
    def function() -> None:
        connection.atomic_blocks[-1].__exit__(ValueError, None, None)
        transaction.atomic().__enter__()

    undone(function, "ended an atomic block that it had not entered")


@pytest.mark.parametrize("again", [False, True])
def test_a_rollback_of_the_tasks_own_is_no_success(again: bool) -> None:
    def function() -> None:
        work()
        with connection.cursor() as cursor:
            cursor.execute("ROLLBACK")
            if again:  # on PostgreSQL the next statement begins a new transaction, which cannot be distinguished from the old one
                cursor.execute("SELECT 1")

    undone(function, "ended its transaction with its own COMMIT or ROLLBACK")


def test_a_commit_of_the_tasks_own_is_reported_although_its_writes_stay() -> None:
    def function() -> None:
        work()
        with connection.cursor() as cursor:
            cursor.execute("COMMIT")
            if connection.vendor == "postgresql":
                Group.objects.create(name="after")

    outcome, job, made = execute_and_look(function)
    assert (outcome.kind, outcome.committed, job.status, made) == (Kind.ERROR, False, "RUNNING", ["made"])
    assert outcome.failure is not None
    assert "COMMIT or ROLLBACK" in outcome.failure.summary


def test_an_error_that_the_task_swallows_around_a_bare_statement_is_no_success() -> None:
    def function() -> None:
        work()
        with contextlib.suppress(DatabaseError), connection.cursor() as cursor:
            cursor.execute("SELECT nothing FROM nowhere")
        if connection.vendor == "sqlite":  # there only the statement is undone
            transaction.set_rollback(True)

    undone(function, "marked for rollback")


@pytest.mark.postgresql
@pytest.mark.parametrize("statement", ["SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SET LOCAL search_path TO pg_catalog, public"])
def test_the_task_may_set_up_its_own_transaction(statement: str) -> None:
    def function() -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)
        work()

    outcome, _, made = execute_and_look(function)
    assert (outcome.committed, made) == (True, ["made"])
