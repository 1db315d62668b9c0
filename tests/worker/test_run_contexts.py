"""The project's context managers around each run."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import sentry_sdk
from asgiref.sync import async_to_sync
from sentry_sdk.transport import Transport

from jobqueue import checks, task
from jobqueue.lifecycle.outcome import Kind, Outcome
from jobqueue.worker.running.executor import execute, execute_async
from tests.tasks import add
from tests.worker.parts import run_of
from tests.worker.whole import ended, working

steps: list[Any] = []
shared: contextvars.ContextVar[str] = contextvars.ContextVar("shared", default="")


@pytest.fixture(autouse=True)
def forget() -> None:
    steps.clear()


@contextlib.contextmanager
def outer(run: Any) -> Iterator[None]:
    steps.append(("enter outer", run.id, run.task, run.tenant, run.attempt, run.metadata))
    token = shared.set(f"of {run.id}")
    try:
        yield
    except BaseException as error:
        steps.append(("leave outer", error))
        raise
    else:
        steps.append(("leave outer", None))
    finally:
        shared.reset(token)


@contextlib.contextmanager
def inner(run: Any) -> Iterator[None]:
    steps.append("enter inner")
    try:
        yield
    finally:
        steps.append("leave inner")


@contextlib.contextmanager
def suppressing(run: Any) -> Iterator[None]:
    with contextlib.suppress(BaseException):
        yield


@contextlib.contextmanager
def not_entered(run: Any) -> Iterator[None]:
    raise LookupError("no tracker today")
    yield


@contextlib.contextmanager
def not_left(run: Any) -> Iterator[None]:
    yield
    raise LookupError("no tracker any more")


@contextlib.asynccontextmanager
async def asynchronous(run: Any) -> AsyncIterator[None]:
    await asyncio.sleep(0)
    steps.append("enter asynchronous")
    try:
        yield
    finally:
        await asyncio.sleep(0)
        steps.append("leave asynchronous")


def plainly(function: Callable[[], Any], **more: Any) -> Outcome:
    return execute(run_of(function, **more), hygienic=False)


def in_loop(function: Callable[[], Any], **more: Any) -> Outcome:
    async def call() -> Any:
        await asyncio.sleep(0)
        return function()

    done: Outcome = async_to_sync(execute_async)(run_of(call, is_async=True, **more))
    return done


BOTH = pytest.mark.parametrize("execute_it", [plainly, in_loop])


@BOTH
@pytest.mark.django_db
def test_they_are_entered_in_order_and_left_in_reverse_around_each_run(settings: Any, execute_it: Any) -> None:
    settings.JOBQUEUE = {"RUN_CONTEXTS": [f"{__name__}.outer", inner]}
    outcome = execute_it(lambda: steps.append(shared.get()), number=7, metadata='{"trace": "abc"}', tenant="")
    assert outcome.kind is Kind.SUCCESS
    assert steps == [
        ("enter outer", 7, "tests.function", "", 1, {"trace": "abc"}),
        "enter inner",
        "of 7",
        "leave inner",
        ("leave outer", None),
    ]


@BOTH
@pytest.mark.django_db
@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), GeneratorExit()])
def test_they_are_left_with_what_the_task_raised(settings: Any, execute_it: Any, error: BaseException) -> None:
    settings.JOBQUEUE = {"RUN_CONTEXTS": [outer, suppressing]}

    def fails() -> None:
        raise error

    outcome = execute_it(fails)
    assert (outcome.kind, outcome.error) == (Kind.ERROR, error), "none of them hides it"
    assert steps[-1] == ("leave outer", error)


@BOTH
@pytest.mark.django_db
@pytest.mark.parametrize("wrong", [not_entered, "no.such.path", lambda run: None, lambda run: 1 / 0])
def test_one_that_cannot_be_entered_fails_the_run_and_the_others_are_left(settings: Any, execute_it: Any, wrong: Any) -> None:
    settings.JOBQUEUE = {"RUN_CONTEXTS": [outer, wrong, inner]}
    outcome = execute_it(lambda: steps.append("the task"))
    assert outcome.kind is Kind.ERROR
    assert outcome.failure is not None
    assert outcome.failure.path in ("jobqueue.exceptions.RunContextFailed", "builtins.ModuleNotFoundError")
    assert [step if isinstance(step, str) else step[0] for step in steps] == ["enter outer", "leave outer"]
    if wrong is not_entered:
        assert f"{__name__}.not_entered (RUN_CONTEXTS) could not be entered: LookupError: no tracker today" in outcome.failure.summary


@BOTH
@pytest.mark.django_db
def test_one_that_cannot_be_left_is_logged_and_the_work_is_done(settings: Any, execute_it: Any, caplog: pytest.LogCaptureFixture) -> None:
    settings.JOBQUEUE = {"RUN_CONTEXTS": [outer, not_left]}
    assert execute_it(lambda: None).kind is Kind.SUCCESS
    assert steps[-1] == ("leave outer", None)
    records = [record for record in caplog.records if "could not be exited: LookupError: no tracker any more" in record.getMessage()]
    assert [record.levelno for record in records] == [logging.ERROR]


@pytest.mark.django_db
def test_an_asynchronous_one_is_for_coroutines(settings: Any) -> None:
    settings.JOBQUEUE = {"RUN_CONTEXTS": [asynchronous, inner]}
    assert in_loop(lambda: steps.append("the task")).kind is Kind.SUCCESS
    assert steps == ["enter asynchronous", "enter inner", "the task", "leave inner", "leave asynchronous"]
    outcome = plainly(lambda: None)
    assert outcome.failure is not None
    assert "(RUN_CONTEXTS) did not return a context manager for a plain function" in outcome.failure.summary


def test_a_path_that_leads_nowhere_is_found_by_the_check(settings: Any) -> None:
    settings.JOBQUEUE = {"RUN_CONTEXTS": [outer, "no.such.path", f"{__name__}.outer"]}
    found = checks.check_hooks()
    assert [(one.id, one.msg.partition(" is ")[0]) for one in found] == [("jobqueue.E009", "RUN_CONTEXTS[1]")]
    assert found[0].hint == "It must be a list of callables of one run that return a context manager, or their dotted paths."


hanging = threading.Event()


@contextlib.contextmanager
def hangs(run: Any) -> Iterator[None]:
    steps.append("entered")
    deadline = time.monotonic() + 20
    while not hanging.is_set() and time.monotonic() < deadline:
        time.sleep(0.01)
    yield


@task(timeout=0.3)
def limited() -> None:
    """Do nothing."""


@task
def set_variable() -> str:
    before = shared.get()
    shared.set("of another")
    return before


@task
async def aset_variable() -> str:
    before = shared.get()
    shared.set("of another")
    return before


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_one_that_hangs_meets_the_time_limit_of_its_job_and_delays_no_other(settings: Any) -> None:
    settings.JOBQUEUE = {"RUN_CONTEXTS": [hangs], "MAX_WORKERS": 4}
    hanging.clear()
    try:
        with working():
            job = limited.enqueue()
            assert ended(job) == ["ERROR"]
            hanging.set()
            other = add.enqueue(1)
            assert ended(other) == ["SUCCESS"]
    finally:
        hanging.set()
    job.refresh()
    assert job.errors[0].exception_class_path == "jobqueue.exceptions.TimeLimitExceeded"


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", [set_variable, aset_variable])
def test_a_variable_reaches_no_other_run(settings: Any, kind: Any) -> None:
    settings.JOBQUEUE = {"MAX_WORKERS": 1, "MIN_WORKERS": 1}
    with working():
        jobs = [kind.enqueue() for _ in range(5)]
        ended(*jobs)
    for job in jobs:
        job.refresh()
    assert [job.return_value for job in jobs] == [""] * 5


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_the_breadcrumbs_of_a_tracker_do_not_grow_from_job_to_job(settings: Any) -> None:
    settings.JOBQUEUE = {"MAX_WORKERS": 1, "MIN_WORKERS": 1}
    sentry_sdk.init(dsn="http://key@localhost/1", transport=Silent, auto_enabling_integrations=False)
    try:
        with working():
            jobs = [leaves_crumb.enqueue() for _ in range(4)]
            ended(*jobs)
    finally:
        sentry_sdk.get_client().close(timeout=0)
        sentry_sdk.get_global_scope().set_client(None)
    for job in jobs:
        job.refresh()
    assert [job.return_value for job in jobs] == [1] * 4


class Silent(Transport):
    """Send nothing."""

    def capture_envelope(self, envelope: Any) -> None:
        """Forget it."""


@task
def leaves_crumb() -> int:
    sentry_sdk.add_breadcrumb(message="one")
    return len([one for one in sentry_sdk.get_isolation_scope()._breadcrumbs if one.get("message") == "one"])


# The backend for tests


@task(target=lambda name: f"line {name}", max_attempts=2, retry_on=(OSError,), backoff=lambda error, failures: 0.0)
def in_test(name: str) -> str:
    steps.append(shared.get())
    if name == "fails":
        raise OSError("no")
    return name


@task(target=lambda name: f"line {name}", max_attempts=2, retry_on=(OSError,), backoff=lambda error, failures: 0.0)
async def ain_test(name: str) -> str:
    await asyncio.sleep(0)
    return in_test.func(name)


def at_once(kind: Any, name: str = "x") -> Any:
    return kind.using(backend="immediate", metadata={"trace": "abc"}).enqueue(name)


IN_TESTS = pytest.mark.parametrize("kind", [in_test, ain_test])


@IN_TESTS
def test_the_backend_for_tests_enters_them_as_a_worker_does(settings: Any, kind: Any) -> None:
    targets = []

    @contextlib.contextmanager
    def sees_target(run: Any) -> Iterator[None]:
        targets.append(run.target)
        yield

    settings.JOBQUEUE = {"RUN_CONTEXTS": [outer, sees_target, inner]}
    result = at_once(kind)
    assert (result.return_value, targets) == ("x", ["line x"])
    entered = ("enter outer", result.job_id, kind.module_path, "", 1, {"trace": "abc"})
    assert steps == [entered, "enter inner", f"of {result.job_id}", "leave inner", ("leave outer", None)]


@IN_TESTS
def test_the_backend_for_tests_leaves_them_with_the_error_of_each_attempt(settings: Any, kind: Any) -> None:
    settings.JOBQUEUE = {"RUN_CONTEXTS": [outer, suppressing]}
    result = at_once(kind, "fails")
    assert (result.job_status, [error.exception_class for error in result.errors]) == ("ERROR", [OSError, OSError])
    assert [step[0] if isinstance(step, tuple) else step for step in steps] == 2 * ["enter outer", f"of {result.job_id}", "leave outer"]
    assert all(isinstance(step[1], OSError) for step in steps if step[0] == "leave outer")


@IN_TESTS
@pytest.mark.parametrize("wrong", [not_entered, "no.such.path", lambda run: None, lambda run: 1 / 0])
def test_the_backend_for_tests_fails_a_run_that_cannot_enter_them(settings: Any, kind: Any, wrong: Any) -> None:
    settings.JOBQUEUE = {"RUN_CONTEXTS": [outer, wrong, inner]}
    result = at_once(kind)
    assert result.job_status == "ERROR"
    assert result.errors[-1].exception_class_path in ("jobqueue.exceptions.RunContextFailed", "builtins.ModuleNotFoundError")
    assert [step[0] for step in steps] == ["enter outer", "leave outer"]


@IN_TESTS
def test_the_backend_for_tests_logs_one_that_cannot_be_left(settings: Any, kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    settings.JOBQUEUE = {"RUN_CONTEXTS": [outer, not_left]}
    assert at_once(kind).return_value == "x"
    assert steps[-1] == ("leave outer", None)
    assert "could not be exited: LookupError: no tracker any more" in caplog.text


def test_the_backend_for_tests_enters_an_asynchronous_one_for_a_coroutine(settings: Any) -> None:
    settings.JOBQUEUE = {"RUN_CONTEXTS": [asynchronous, inner]}
    assert at_once(ain_test).return_value == "x"
    assert steps == ["enter asynchronous", "enter inner", "", "leave inner", "leave asynchronous"]
    assert "did not return a context manager for a plain function" in at_once(in_test).errors[0].traceback
