"""Runs that raise groups of exceptions: from task groups of coroutines, and explicitly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from django.db import OperationalError

from jobqueue.exceptions import Fatal, Interrupted, Retry, Suspended, TimeLimitExceeded
from jobqueue.lifecycle.outcome import Kind, Outcome
from jobqueue.worker.running import groups
from jobqueue.worker.running.executor import execute
from jobqueue.worker.running.loop import Loop
from jobqueue.worker.running.run import Reason
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
        assert groups.decisive(group).error is strongest
    plain = ExceptionGroup("all", [OSError("a"), ValueError("b")])
    assert groups.decisive(plain) == (plain, plain)
    assert groups.decisive(ordered[-1]).error is ordered[-1]
    broken = OperationalError("the connection is lost")
    broken.__context__ = ordered[0]
    assert groups.decisive(ExceptionGroup("all", [ValueError("b"), broken])).error is ordered[0], "what became of an interrupt"
    deep: BaseException = ordered[0]
    for _ in range(5000):
        deep = BaseExceptionGroup("one", [deep])
    assert groups.decisive(deep).error is ordered[0]


# Raised from other exceptions


def raised_from(error: BaseException, *causes: BaseException) -> BaseException:
    """Return an error as ``raise … from`` makes it, through each of the causes."""
    one = error
    for cause in causes:
        one.__cause__ = cause
        one = cause
    return error


def came_to(error: BaseException, reason: Reason | None = None, **job: object) -> Outcome:
    def work() -> None:
        run.reason = reason
        raise error

    run = run_of(work, max_attempts=5, **job)
    return execute(run)


class LibraryError(Exception):
    """What a library makes of all that goes wrong in what it calls."""


WRAPPED = {
    "once": lambda error: raised_from(LibraryError("no"), error),
    "twice": lambda error: raised_from(LibraryError("no"), KeyError("k"), error),
    "in a group": lambda error: ExceptionGroup("g", [OSError("o"), raised_from(LibraryError("no"), error)]),
    "as a group": lambda error: raised_from(LibraryError("no"), BaseExceptionGroup("g", [OSError("o"), BaseExceptionGroup("h", [error])])),
    "by a group": lambda error: raised_from(ExceptionGroup("g", [LibraryError("no")]), error),
}
IN_ALL_WAYS = pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
Wrap = Callable[[BaseException], BaseException]


@IN_ALL_WAYS
def test_an_exception_raised_from_fatal_is_not_retried(wrap: Wrap) -> None:
    outcome = came_to(wrap(Fatal("broken")))
    assert outcome.kind is Kind.ERROR
    assert outcome.failure is not None
    assert outcome.failure.path.endswith(("LibraryError", "ExceptionGroup")), "it is shown as what was raised"
    assert "jobqueue.exceptions.Fatal: broken" in outcome.failure.traceback


@IN_ALL_WAYS
def test_an_exception_raised_from_retry_has_its_delay(wrap: Wrap) -> None:
    outcome = came_to(wrap(Retry("later", delay=7)))
    assert (outcome.kind, outcome.delay_seconds) == (Kind.RETRY, 7)


@IN_ALL_WAYS
def test_an_exception_raised_from_an_interrupt_obeys_it(wrap: Wrap) -> None:
    for error in (Interrupted("stop"), asyncio.CancelledError()):
        assert came_to(wrap(error), Reason.SHUTDOWN).kind is Kind.HANDED_BACK
        assert came_to(wrap(error), Reason.USER).kind is Kind.INTERRUPTED


@pytest.mark.parametrize("cause", [None, OSError("o")])
def test_an_error_that_is_raised_while_another_is_handled_is_itself(cause: BaseException | None) -> None:
    def handles() -> None:
        try:
            raise Fatal("handled")
        except Fatal:
            raise LibraryError("another") from cause

    def does_not_say() -> None:
        try:
            raise Fatal("handled")
        except Fatal:
            raise LibraryError("another")  # noqa: B904 - the case

    for function in (handles, does_not_say):
        with pytest.raises(LibraryError) as raised:
            function()
        assert groups.decisive(raised.value) == (raised.value, raised.value)
        assert came_to(raised.value).kind is Kind.RETRY


def test_an_error_that_a_library_raises_from_a_limit_or_its_own_cancellation_is_its_error() -> None:
    for cause in (TimeLimitExceeded(), asyncio.CancelledError()):
        error = raised_from(LibraryError("too slow"), cause)
        assert groups.decisive(error) == (error, error)
        assert came_to(error).kind is Kind.RETRY

    async def work() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(5)

    with pytest.raises(TimeoutError) as raised:
        asyncio.run(work())
    assert groups.decisive(raised.value).error is raised.value


def test_the_nearest_of_a_chain_acts() -> None:
    assert came_to(raised_from(Retry("again", delay=3), Fatal("broken"))).kind is Kind.RETRY
    assert came_to(raised_from(LibraryError("no"), Fatal("broken"), Retry("again"))).kind is Kind.ERROR
    ring = LibraryError("ring")
    ring.__cause__ = KeyError("k")
    ring.__cause__.__cause__ = ring
    assert groups.decisive(ring).error is ring
