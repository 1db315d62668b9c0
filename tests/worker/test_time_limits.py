"""Time limits within one process: when the error is raised, in which thread, and beside interrupts."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, ProgrammingError

from jobqueue.exceptions import Interrupted
from jobqueue.lifecycle.outcome import Kind
from jobqueue.worker.running import deadlines
from jobqueue.worker.running.deadlines import Deadlines
from jobqueue.worker.running.run import Reason, Run
from tests.worker.limited import LIMIT, TEXT, Scene, spin, until
from tests.worker.parts import PATIENCE_SECONDS, run_of

# The error in the task


def test_a_thread_gets_the_error_at_its_limit_and_the_run_fails_with_it(scene: Scene) -> None:
    began = time.monotonic()
    outcome = scene.come_to(spin)
    assert LIMIT <= time.monotonic() - began < LIMIT + 5
    assert outcome.kind is Kind.ERROR
    assert outcome.failure is not None
    assert (outcome.failure.path, outcome.failure.summary) == ("jobqueue.exceptions.TimeLimitExceeded", TEXT)
    assert "in spin" in outcome.failure.traceback


class Slow(logging.Handler):
    """A handler that is in the middle of a record until the end of the limit of a run, and for a while longer."""

    def __init__(self) -> None:
        super().__init__()
        self.run: Run | None = None
        self.written: list[str] = []
        self.entered = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.entered.set()
        try:
            until(lambda: self.run is None or self.run.expired or self.run.thrown)
            spin(0.02)
            self.written.append(record.getMessage())
        except Exception:  # noqa: BLE001 - as handlers do
            self.handleError(record)

    def is_free(self) -> bool:
        """Return whether another thread may write."""
        found: list[bool] = []

        def look() -> None:
            assert self.lock is not None
            if self.lock.acquire(timeout=0.5):
                self.lock.release()
                found.append(True)

        other = threading.Thread(target=look)
        other.start()
        other.join()
        return found == [True]


@pytest.fixture
def slow() -> Iterator[Slow]:
    handler = Slow()
    talker.addHandler(handler)
    yield handler
    talker.removeHandler(handler)


talker = logging.getLogger("tests.talker")
talker.propagate = False


@pytest.mark.parametrize("what", ["limit", "interrupt"])
def test_a_record_of_the_log_is_written_before_what_is_thrown_is_raised(scene: Scene, slow: Slow, what: str) -> None:
    after: list[str] = []

    def task() -> None:
        talker.warning("one")
        after.append("the line behind it")

    slow.run = run = scene.run(task, LIMIT if what == "limit" else None)
    scene.pool.resize(1)
    scene.submit(run)
    if what == "interrupt":
        assert slow.entered.wait(PATIENCE_SECONDS)
        run.interrupt(Reason.USER)
        run.throw()
    scene.outcomes.wait(1)
    kind = scene.outcomes.outcomes[0][1].kind
    assert (kind, slow.written, after) == (Kind.ERROR if what == "limit" else Kind.INTERRUPTED, ["one"], [])
    assert slow.is_free()
    slow.run = None
    scene.submit(scene.run(lambda: talker.warning("two"), None))
    scene.outcomes.wait(2)
    assert slow.written == ["one", "two"]


def test_a_record_that_is_written_while_a_call_of_the_context_is_protected_ends_no_protection(scene: Scene, slow: Slow) -> None:
    slow.run, seen = None, []

    def task(context: Any) -> None:
        with run.shield():
            until(lambda: run.expired)
            talker.warning("one")
            seen.append(run._shielded)

    run = scene.run(task, takes_context=True)
    scene.pool.resize(1)
    scene.submit(run)
    scene.outcomes.wait(1)
    assert (seen, slow.written) == ([True], ["one"])
    assert scene.outcomes.outcomes[0][1].kind is Kind.ERROR


@pytest.mark.parametrize(
    ("said", "path"),
    [
        (ProgrammingError("can't change 'autocommit' now"), "jobqueue.exceptions.TimeLimitExceeded"),
        (OperationalError("the connection is closed"), "jobqueue.exceptions.TimeLimitExceeded"),
        (IntegrityError("there is one of that name"), "django.db.utils.IntegrityError"),
        (RuntimeError("too late"), "builtins.RuntimeError"),
    ],
)
def test_the_error_of_a_connection_that_the_limit_has_closed_is_the_limits_error(scene: Scene, said: Exception, path: str) -> None:
    def task() -> None:
        try:
            spin()
        except TimeoutError:
            with contextlib.suppress(ValueError):  # one more error on the way
                raise ValueError  # noqa: B904
            raise said  # noqa: B904 - as the end of a transaction does

    failure = scene.come_to(task).failure
    assert failure is not None
    assert failure.path == path
    assert str(said) in failure.traceback
    assert (TEXT in failure.summary) == ("TimeLimit" in path)


def test_the_error_of_a_connection_that_an_interrupt_has_closed_is_the_interrupt(scene: Scene) -> None:
    def task() -> None:
        try:
            spin()
        except Interrupted:
            raise ProgrammingError("can't change 'autocommit' now")  # noqa: B904 - as the end of a transaction does

    run = scene.run(task, None)
    scene.pool.resize(1)
    scene.submit(run)
    until(lambda: run.thread_id)
    run.interrupt(Reason.USER)
    run.throw()
    scene.outcomes.wait(1)
    assert scene.outcomes.outcomes[0][1].kind is Kind.INTERRUPTED


def test_an_error_of_the_database_without_a_limit_is_that_error(scene: Scene) -> None:
    def task() -> None:
        raise ProgrammingError("no such thing")

    failure = scene.come_to(task).failure
    assert failure is not None
    assert failure.path == "django.db.utils.ProgrammingError"


def test_a_rest_on_the_context_ends_at_the_limit(scene: Scene) -> None:
    seen: list[str] = []

    def task(context: Any) -> None:
        try:
            context.wait(60)
        except TimeoutError as error:
            seen.append(str(error))
            raise

    began = time.monotonic()
    outcome = scene.come_to(task, takes_context=True)
    assert time.monotonic() - began < LIMIT + 5
    assert (outcome.kind, seen) == (Kind.ERROR, ["The time limit of 0.1 s was exceeded"])


def test_a_task_that_catches_it_may_clean_up_and_succeed(scene: Scene) -> None:
    rested: list[float] = []

    def task(context: Any) -> str:
        try:
            context.wait(60)
        except TimeoutError:
            began = time.monotonic()
            context.wait(0.05)
            rested.append(time.monotonic() - began)
            context.progress(50)
            assert not context.cancelled
        return "cleaned up"

    outcome = scene.come_to(task, takes_context=True)
    assert (outcome.kind, outcome.result, outcome.progress) == (Kind.SUCCESS, '"cleaned up"', 50)
    assert rested[0] >= 0.05, "the limit is reported once"


def test_a_task_that_turns_it_into_another_error_fails_with_that(scene: Scene) -> None:
    def task() -> None:
        try:
            spin()
        except TimeoutError as error:
            raise LookupError("the printer") from error

    outcome = scene.come_to(task)
    assert outcome.failure is not None
    assert outcome.failure.summary == "LookupError: the printer"


def test_it_is_a_failure_like_any_other_so_the_task_s_policy_says_whether_it_runs_again(scene: Scene) -> None:
    assert scene.come_to(spin, max_attempts=2).kind is Kind.RETRY
    assert scene.come_to(spin, max_attempts=2, failures=1).kind is Kind.ERROR


def test_a_coroutine_is_really_canceled_and_fails_with_the_error(scene: Scene) -> None:
    cleaned: list[str] = []

    async def task() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)
            cleaned.append("up")
            raise

    outcome = scene.come_to(task, is_async=True)
    assert (outcome.kind, cleaned) == (Kind.ERROR, ["up"])
    assert outcome.failure is not None
    assert outcome.failure.summary == TEXT
    assert "in task" in outcome.failure.traceback, "where it was canceled"
    assert scene.come_to(task, is_async=True, max_attempts=2).kind is Kind.RETRY


def test_a_coroutine_that_catches_its_cancellation_ends_as_it_ends(scene: Scene) -> None:
    async def task(ending: Callable[[], str]) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return ending()
        return "never"

    def fail() -> str:
        raise LookupError("mine")

    assert scene.come_to(lambda: task(lambda: "fine"), is_async=True).result == '"fine"'
    outcome = scene.come_to(lambda: task(fail), is_async=True)
    assert outcome.failure is not None
    assert outcome.failure.summary == "LookupError: mine"


def test_a_coroutine_without_a_limit_that_cancels_itself_has_not_exceeded_one(scene: Scene) -> None:
    async def task() -> None:
        raise asyncio.CancelledError

    outcome = scene.come_to(task, seconds=60, is_async=True)
    assert outcome.failure is not None
    assert outcome.failure.path == "asyncio.exceptions.CancelledError"


# Interrupts


@pytest.mark.parametrize("is_async", [False, True])
def test_an_interrupt_beats_a_limit_that_the_task_is_just_getting_over(scene: Scene, is_async: bool) -> None:
    cleaning = threading.Event()

    def task() -> None:
        try:
            spin()
        except TimeoutError:
            cleaning.set()
            spin()

    async def atask() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cleaning.set()
            await asyncio.sleep(60)

    scene.pool.resize(1)
    run = scene.run(atask if is_async else task, is_async=is_async)
    scene.submit(run)
    assert cleaning.wait(PATIENCE_SECONDS)
    scene.interrupter.interrupt(run, Reason.USER)
    run.throw()
    assert scene.outcomes.wait(1) == [Kind.INTERRUPTED]


def test_a_limit_reached_while_the_run_obeys_an_interrupt_is_not_reported(scene: Scene) -> None:
    def task(context: Any) -> None:
        with contextlib.suppress(Interrupted):
            context.wait(60)
        threading.Event().wait(2 * LIMIT)
        raise Interrupted

    scene.pool.resize(1)
    run = scene.run(task, takes_context=True)
    scene.submit(run)
    until(lambda: run.thread_id)
    scene.interrupter.interrupt(run, Reason.SHUTDOWN)
    assert scene.outcomes.wait(1) == [Kind.HANDED_BACK]
    assert not run.expired


@pytest.mark.long
def test_a_run_that_is_asked_to_stop_while_it_cleans_up_has_the_time_of_its_interrupt(scene: Scene) -> None:
    cleaning = threading.Event()

    def task() -> None:
        try:
            spin()
        except TimeoutError:
            cleaning.set()
            spin()

    scene.pool.resize(1)
    run = scene.run(task)
    scene.submit(run)
    assert cleaning.wait(PATIENCE_SECONDS)
    scene.interrupter.interrupt(run, Reason.USER)
    assert scene.outcomes.wait(1) == [Kind.INTERRUPTED]
    assert (scene.asked, run.abandoned) == ([], False)


@pytest.mark.long
def test_a_limit_that_passed_during_a_request_holds_once_the_request_is_withdrawn(scene: Scene) -> None:
    scene.pool.resize(1)
    run = scene.run(spin)
    scene.submit(run)
    until(lambda: run.thread_id)
    scene.interrupter.interrupt(run, Reason.USER)
    until(lambda: time.monotonic() > (run.began or 0) + 2 * LIMIT)
    run.withdraw()
    scene.outcomes.wait(1)
    failure = scene.outcomes.outcomes[0][1].failure
    assert failure is not None
    assert failure.summary == TEXT


# What is kept


def test_deadlines_come_in_the_order_of_their_times_and_of_ended_runs_never() -> None:
    kept = Deadlines()
    runs = [run_of(lambda: None, number=number) for number in range(4)]
    assert [kept.add(run, at) for run, at in zip(runs, (3.0, 1.0, 2.0, 0.5), strict=True)] == [True, True, False, True]
    runs[1].ended = 0.0
    assert kept.nearest == (0.5, 3)
    assert [kept.take(2.5), kept.take(2.5), kept.take(2.5), kept.nearest] == [runs[3], runs[2], None, (3.0, 0)]


def test_ended_runs_are_not_kept_for_their_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "MIN_TO_TIDY", 10)
    kept = Deadlines()
    kept._tidy_at = 10
    running = [run_of(lambda: None) for _ in range(8)]
    for run in running:
        kept.add(run, 60.0)
    for _ in range(1000):
        kept.add(run_of(lambda: None), 60.0)
    assert len(kept) <= 2 * 8 + 1
    assert {kept.take(60.0) for _ in range(30)} - {None} == set(running)
