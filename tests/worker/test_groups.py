"""What becomes of runs that raise groups of exceptions: from task groups of coroutines, and by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from django.db import OperationalError

from jobqueue.exceptions import Fatal, Interrupted, Retry, Suspended, TimeLimitExceeded
from jobqueue.lifecycle.outcome import Kind, Outcome
from jobqueue.worker import groups
from jobqueue.worker.executor import execute
from jobqueue.worker.loop import Loop
from jobqueue.worker.run import Reason
from tests.worker.parts import Collector, run_of


@pytest.fixture
def loop() -> Iterator[tuple[Loop, Collector]]:
    outcomes = Collector()
    made = Loop(outcomes.put)
    yield made, outcomes
    made.stop()


Come = Callable[..., Outcome]


@pytest.fixture(params=["coroutine", "by hand"])
def come_to(request: pytest.FixtureRequest, loop: tuple[Loop, Collector]) -> Come:
    """Return what runs a task that raises errors in a task group, or in a group of its own, nested in both."""

    def make(*errors: BaseException, retry_on: tuple[type[BaseException], ...] = (Exception,)) -> Outcome:
        async def fail(error: BaseException) -> None:
            await asyncio.sleep(0)
            raise error

        async def work() -> None:
            async with asyncio.TaskGroup() as outer:
                for error in errors:
                    outer.create_task(inner(error))

        async def inner(error: BaseException) -> None:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(fail(error))
            except asyncio.CancelledError:  # a sibling was first
                raise error from None

        def by_hand() -> None:
            raise BaseExceptionGroup("all", [BaseExceptionGroup("some", [one]) for one in errors])

        is_async = request.param == "coroutine"
        run = run_of(work if is_async else by_hand, is_async=is_async, max_attempts=5)
        assert run.entry is not None
        run.entry = replace(run.entry, retry_on=retry_on)
        if not is_async:
            return execute(run)
        made, outcomes = loop
        made.submit(run)
        outcomes.wait(1)
        return outcomes.outcomes[0][1]

    return make


def test_fatal_is_not_retried(come_to: Come) -> None:
    outcome = come_to(OSError("no"), Fatal("broken"), Retry("later", delay=7))
    assert (outcome.kind, outcome.failure.path, outcome.failure.summary) == (  # type: ignore[union-attr]
        Kind.ERROR,
        "jobqueue.exceptions.Fatal",
        "jobqueue.exceptions.Fatal: broken",
    )
    assert "OSError: no" in outcome.failure.traceback, "all of the group is shown"  # type: ignore[union-attr]


def test_retry_names_the_delay(come_to: Come) -> None:
    outcome = come_to(OSError("no"), Retry("later", delay=7))
    assert (outcome.kind, outcome.delay_seconds) == (Kind.RETRY, 7)


def test_retry_on_matches_if_it_matches_each_leaf(come_to: Come) -> None:
    assert come_to(OSError("a"), ConnectionError("b"), retry_on=(OSError,)).kind is Kind.RETRY


def test_retry_on_does_not_match_if_it_leaves_one_out(come_to: Come) -> None:
    outcome = come_to(OSError("a"), KeyError("b"), retry_on=(OSError,))
    assert (outcome.kind, outcome.failure.path) == (Kind.ERROR, "builtins.ExceptionGroup")  # type: ignore[union-attr]
    assert "KeyError: 'b'" in outcome.failure.traceback  # type: ignore[union-attr]
    assert "OSError: a" in outcome.failure.traceback  # type: ignore[union-attr]


def test_retry_on_may_name_the_group_itself(come_to: Come) -> None:
    assert come_to(KeyError("b"), retry_on=(ExceptionGroup,)).kind is Kind.RETRY


def test_an_interrupt_stops_the_run() -> None:
    for reason, kind in ((Reason.SHUTDOWN, Kind.HANDED_BACK), (Reason.USER, Kind.INTERRUPTED)):

        def work() -> None:
            run.reason = reason  # noqa: B023 - called in this turn of the loop
            raise BaseExceptionGroup("all", [OSError("no"), BaseExceptionGroup("some", [Fatal("x"), Interrupted("stop")])])

        run = run_of(work, max_attempts=5)
        assert execute(run).kind is kind


def test_the_strongest_leaf_acts() -> None:
    ordered: list[BaseException] = [Interrupted(), Suspended("sleep"), Fatal("f"), Retry("r"), TimeLimitExceeded(), OSError("o")]
    for place, strongest in enumerate(ordered[:-1]):
        group = BaseExceptionGroup("all", [BaseExceptionGroup("some", [one]) for one in reversed(ordered[place:])])
        assert groups.acting(group) is strongest
    plain = ExceptionGroup("all", [OSError("a"), ValueError("b")])
    assert groups.acting(plain) is plain
    assert groups.acting(ordered[-1]) is ordered[-1]
    broken = OperationalError("the connection is lost")
    broken.__context__ = ordered[0]
    assert groups.acting(ExceptionGroup("all", [ValueError("b"), broken])) is ordered[0], "what became of an interrupt"
    deep: BaseException = ordered[0]
    for _ in range(5000):
        deep = BaseExceptionGroup("one", [deep])
    assert groups.acting(deep) is ordered[0]
