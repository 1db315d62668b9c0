"""A tenant's context around its runs: where it is entered and left, and contexts that fail."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import OperationalError, connection

from jobqueue.lifecycle.outcome import Kind, Outcome
from jobqueue.models import Job
from jobqueue.worker.running.executor import execute, execute_async
from jobqueue.worker.running.loop import Loop
from jobqueue.worker.running.run import Reason
from tests.worker.parts import PATIENCE_SECONDS, Collector, run_of
from tests.worker.places import Place, steps, tenant

pytestmark = pytest.mark.usefixtures("place")


class Schema(Place):
    """Set a schema on the connection, as the backend of django-tenants does."""

    def __enter__(self) -> None:
        super().__enter__()
        connection.schema_name = self.tenant  # type: ignore[attr-defined]

    def __exit__(self, *error: object) -> None:
        super().__exit__()
        connection.schema_name = "public"  # type: ignore[attr-defined]


@pytest.fixture
def schema(place: Any, settings: Any) -> Iterator[None]:
    settings.JOBQUEUE = {"TENANT_CONTEXT": Schema}
    yield
    if hasattr(connection, "schema_name"):
        del connection.schema_name


def run(task: Any, name: str = "acme") -> Outcome:
    return execute(run_of(task, tenant=name), hygienic=False)


def run_async(task: Any, name: str = "acme") -> Outcome:
    return async_to_sync(execute_async)(run_of(task, is_async=True, tenant=name))


async def where() -> list[Any]:
    return [tenant(), *await sync_to_async(lambda: (tenant(), threading.get_ident()))()]


# Around the run


def test_a_job_runs_in_the_context_of_its_tenant_which_is_left_afterwards() -> None:
    assert run(tenant).result == '"acme"'
    assert (steps(), tenant()) == (["enter acme", "leave acme"], "")


def test_a_job_without_a_tenant_and_a_project_without_a_context_enter_none(settings: Any) -> None:
    assert (run(tenant, "").result, run_async(where, "").kind, Place.told) == ('""', Kind.SUCCESS, [])
    settings.JOBQUEUE = {}
    assert (run(tenant).result, run_async(where).kind, Place.told) == ('""', Kind.SUCCESS, [])


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt()])
def test_the_context_is_left_whatever_the_task_raises(error: BaseException) -> None:
    def task() -> None:
        raise error

    async def coroutine() -> None:
        raise error

    assert (run(task).kind, tenant()) == (Kind.ERROR, "")
    assert (run_async(coroutine).kind, tenant()) == (Kind.ERROR, "")
    assert steps() == ["enter acme", "leave acme"] * 2


def test_the_context_of_a_coroutine_is_that_of_the_thread_of_its_synchronous_parts() -> None:
    outcomes = Collector()
    loop = Loop(outcomes.put)
    gate = threading.Event()

    async def task() -> list[Any]:
        await sync_to_async(gate.wait)(PATIENCE_SECONDS)
        return await where()

    for number, name in enumerate(("acme", "globex", "acme", "")):
        loop.submit(run_of(task, is_async=True, number=number, tenant=name))
    gate.set()
    outcomes.wait(4)
    for own, outcome in ((one.job.tenant, outcome) for one, outcome in outcomes.outcomes):
        in_loop, in_thread, thread = json.loads(outcome.result or "")
        assert (in_loop, in_thread) == ("", own), "side by side, each in its own place"
        entered = {ident for what, name, ident in Place.told if (what, name) == ("enter", own)}
        assert not own or thread in entered
    assert sorted(steps("leave")) == ["leave acme", "leave acme", "leave globex"]
    loop.stop()
    assert loop.join(PATIENCE_SECONDS)


@pytest.mark.parametrize("is_async", [False, True])
def test_no_interrupt_reaches_the_end_of_the_context(is_async: bool) -> None:
    async def nothing() -> None:
        pass

    one = run_of(nothing if is_async else (lambda: None), is_async=is_async, tenant="acme")
    asked: list[bool] = []
    Place.at_exit = lambda: asked.append(one.interrupt(Reason.USER))
    outcome = async_to_sync(execute_async)(one) if is_async else execute(one, hygienic=False)
    assert (asked, outcome.kind, steps("leave")) == ([False], Kind.SUCCESS, ["leave acme"])


def test_an_exception_raised_in_a_thread_at_the_last_moment_still_leaves_the_context() -> None:
    for _ in range(200):
        begun = threading.Event()
        one = run_of(begun.set, tenant="acme")
        outcomes: list[Outcome] = []
        thread = threading.Thread(target=lambda one=one, outcomes=outcomes: outcomes.append(execute(one, hygienic=False)))
        thread.start()
        assert begun.wait(PATIENCE_SECONDS)
        one.interrupt(Reason.USER)
        one.throw()
        thread.join(PATIENCE_SECONDS)
        assert outcomes[0].kind in (Kind.SUCCESS, Kind.INTERRUPTED)
    assert steps() == ["enter acme", "leave acme"] * 200


# Variables, and the text of an error


CURRENT: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")
SET_BY_TASK: contextvars.ContextVar[str] = contextvars.ContextVar("set_by_task", default="")


@contextlib.contextmanager
def by_variable(name: str) -> Iterator[None]:
    """Keep the tenant in a variable, as a project may."""
    token = CURRENT.set(name)
    try:
        yield
    finally:
        Place.told.append((f"leave {CURRENT.get()} {SET_BY_TASK.get()}".rstrip(), name, 0))
        CURRENT.reset(token)


@pytest.fixture
def variable(place: Any, settings: Any) -> None:
    settings.JOBQUEUE = {"TENANT_CONTEXT": by_variable}


class Telling(Exception):
    """Include the current context in its text."""

    def __str__(self) -> str:
        return f"[{CURRENT.get('nobody')}|{tenant()}|{SET_BY_TASK.get()}]"


async def aset_by_task() -> str:
    SET_BY_TASK.set("changed")
    return CURRENT.get()


@pytest.mark.usefixtures("variable")
def test_a_context_may_keep_the_tenant_in_a_variable(caplog: pytest.LogCaptureFixture) -> None:
    async def coroutine() -> list[str]:
        return [CURRENT.get(), await sync_to_async(CURRENT.get)(), await aset_by_task()]

    async def lasting() -> list[str]:
        CURRENT.set("other")  # its own affair: it is reset all the same
        return await coroutine()

    assert run(CURRENT.get).result == '"acme"'
    apart = contextvars.copy_context()
    assert apart.run(run_async, coroutine).result == '["acme","acme","acme"]'
    assert apart.run(run_async, lasting).result == '["other","other","other"]'
    assert [step for step, _, _ in Place.told] == ["leave acme", "leave acme changed", "leave other changed"]
    assert "could not be exited" not in caplog.text


@pytest.mark.usefixtures("variable")
def test_coroutines_side_by_side_have_each_its_own_variable() -> None:
    outcomes = Collector()
    loop = Loop(outcomes.put)
    gate = threading.Event()

    async def task() -> str:
        await sync_to_async(gate.wait)(PATIENCE_SECONDS)
        return CURRENT.get("nobody")

    for number, name in enumerate(("acme", "globex", "", "acme")):
        loop.submit(run_of(task, is_async=True, number=number, tenant=name))
    gate.set()
    outcomes.wait(4)
    assert {(one.job.tenant or "nobody") == json.loads(outcome.result) for one, outcome in outcomes.outcomes} == {True}
    assert sorted(step for step, _, _ in Place.told) == ["leave acme", "leave acme", "leave globex"]
    loop.stop()
    assert loop.join(PATIENCE_SECONDS)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("kind", ["thread", "variable"])
def test_the_text_of_an_error_is_made_where_the_task_ran(is_async: bool, kind: str, request: pytest.FixtureRequest) -> None:
    def task() -> None:
        SET_BY_TASK.set("changed")
        raise Telling

    async def coroutine() -> None:
        task()

    if kind == "variable":
        request.getfixturevalue("variable")
    one = run_of(coroutine if is_async else task, is_async=is_async, tenant="acme")
    outcome = contextvars.copy_context().run(async_to_sync(execute_async), one) if is_async else execute(one)
    assert outcome.failure is not None
    expected = "[acme||changed]" if kind == "variable" else "[nobody|acme|changed]"
    assert outcome.failure.summary.endswith(f"Telling: {expected}")
    assert expected in outcome.failure.traceback
    assert (one.raised, one.value, one.ended is None) == (None, None, False)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("name", ["", "acme"])
def test_the_text_of_an_error_may_query_the_database(is_async: bool, name: str) -> None:
    class Lazy(Exception):
        def __str__(self) -> str:
            return f"{Job.objects.count()} jobs"

    def task() -> None:
        raise Lazy

    async def coroutine() -> None:
        raise Lazy

    outcome = run_async(coroutine, name) if is_async else run(task, name)
    assert outcome.failure is not None
    assert outcome.failure.summary.endswith("Lazy: 0 jobs")


def test_a_backoff_is_asked_where_the_task_ran() -> None:
    asked: list[str] = []

    def task() -> None:
        raise ValueError("no")

    def backoff(error: BaseException, failures: int) -> float:
        asked.append(tenant())
        return 1.0

    async def coroutine() -> None:
        task()

    for function, is_async in ((task, False), (coroutine, True)):
        one = run_of(function, is_async=is_async, tenant="acme", max_attempts=2)
        assert one.entry is not None
        one.entry = dataclasses.replace(one.entry, backoff=backoff)
        outcome = async_to_sync(execute_async)(one) if is_async else execute(one, hygienic=False)
        assert (outcome.kind, outcome.delay_seconds) == (Kind.RETRY, 1.0)
    assert asked == ["acme", "acme"]


# A context that fails


@pytest.mark.parametrize(("what", "said"), [("make", "created"), ("enter", "entered")])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_context_that_cannot_be_entered_gives_an_error_that_names_the_tenant(what: str, said: str, is_async: bool) -> None:
    Place.fail_at[what, "acme"] = LookupError("no such tenant")
    called: list[int] = []

    async def coroutine() -> None:
        called.append(1)

    outcome = run_async(coroutine) if is_async else run(lambda: called.append(1))
    assert (outcome.kind, called, steps("leave")) == (Kind.ERROR, [], [])
    assert outcome.failure is not None
    assert outcome.failure.path == "jobqueue.exceptions.TenantContextFailed"
    assert f"The context of tenant 'acme' (TENANT_CONTEXT) could not be {said}: LookupError('no such tenant')" in outcome.failure.summary
    assert run(tenant, "globex").result == '"globex"'


@pytest.mark.parametrize(("what", "said"), [("make", "created"), ("enter", "entered")])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_context_that_ends_its_process_fails_like_any_other(what: str, said: str, is_async: bool) -> None:
    Place.fail_at[what, "acme"] = SystemExit(3)
    outcome = run_async(where) if is_async else run(tenant)
    assert outcome.failure is not None
    assert f"The context of tenant 'acme' (TENANT_CONTEXT) could not be {said}: SystemExit(3)" in outcome.failure.summary


@pytest.mark.parametrize("error", [ValueError("stuck"), SystemExit(3)])
def test_a_context_that_cannot_be_left_is_logged_and_leaves_the_work_done(caplog: pytest.LogCaptureFixture, error: BaseException) -> None:
    Place.fail_at["leave", "acme"] = error
    assert run(lambda: 7).result == "7"
    assert run_async(where).kind is Kind.SUCCESS
    texts = [record.getMessage() for record in caplog.records if "could not be exited" in record.getMessage()]
    assert texts == ["The context of tenant 'acme' could not be exited; this thread's connections are closed."] * 2


@pytest.mark.postgresql
@pytest.mark.django_db
@pytest.mark.usefixtures("schema")
def test_a_missing_schema_is_reported_before_the_task_starts_and_the_context_is_left() -> None:
    called: list[int] = []
    outcome = run(lambda: called.append(1))
    assert (outcome.kind, called, tenant(), connection.schema_name) == (Kind.ERROR, [], "", "public")  # type: ignore[attr-defined]
    assert outcome.failure is not None
    assert "Tenant 'acme' has no schema 'acme', so its job cannot run." in outcome.failure.summary
    assert run(tenant, "public").result == '"public"'


@pytest.mark.postgresql
@pytest.mark.django_db
@pytest.mark.usefixtures("schema")
@pytest.mark.parametrize("error", [OperationalError("the server is away"), ValueError("no")])
def test_a_check_of_the_schema_that_fails_leaves_the_context(error: Exception) -> None:
    def fail(*_: Any) -> Any:
        raise error

    with connection.execute_wrapper(fail):
        outcome = run(lambda: 7, "public")
    assert (outcome.kind, tenant(), steps("leave")) == (Kind.ERROR, "", ["leave public"])


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("schema")
def test_a_session_that_the_server_has_ended_meanwhile_is_no_fault_of_the_job() -> None:
    connection.ensure_connection()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid = cursor.fetchone()[0]
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    other.close()
    assert run(lambda: 7, "public").result == "7"
    assert steps() == ["enter public", "leave public"]


def test_a_run_knows_no_context_of_another() -> None:
    inner: list[str] = []

    def task() -> str:
        other = threading.Thread(target=lambda: inner.append(str(run(tenant, "globex").result)))
        other.start()
        other.join(PATIENCE_SECONDS)
        return tenant()

    assert run(task).result == '"acme"'
    assert inner == ['"globex"']
