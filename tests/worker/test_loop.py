import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from jobqueue.lifecycle.outcome import Kind
from jobqueue.worker.running.loop import Loop
from jobqueue.worker.running.run import Reason
from tests.worker.parts import PATIENCE_SECONDS, Collector, run_of


@pytest.fixture
def outcomes() -> Collector:
    return Collector()


@pytest.fixture
def loop(outcomes: Collector) -> Iterator[Loop]:
    made = Loop(outcomes.put)
    yield made
    made.stop()
    assert made.join(PATIENCE_SECONDS)


def test_coroutines_run_side_by_side(loop: Loop, outcomes: Collector) -> None:
    met = asyncio.Event()
    present: list[int] = []

    async def meet() -> None:
        present.append(1)
        if len(present) == 20:
            met.set()
        await met.wait()

    for number in range(20):
        loop.submit(run_of(meet, is_async=True, number=number))
    assert outcomes.wait(20) == [Kind.SUCCESS] * 20


def test_the_lag_is_how_late_the_loop_runs_a_callback(loop: Loop, outcomes: Collector) -> None:
    assert loop.lag_seconds() == 0.0, "no coroutine has run, so there is no loop"
    begun, released = threading.Event(), threading.Event()

    async def block() -> None:
        begun.set()
        released.wait(PATIENCE_SECONDS)

    loop.submit(run_of(block, is_async=True))
    assert begun.wait(PATIENCE_SECONDS)
    loop.lag_seconds()
    asked_at = time.monotonic()
    while loop.lag_seconds() < 0.2:
        assert time.monotonic() - asked_at < PATIENCE_SECONDS
        released.wait(0.01)
    released.set()
    outcomes.wait(1)
    while loop.lag_seconds() >= 0.2:  # that of the next callback
        assert time.monotonic() - asked_at < PATIENCE_SECONDS


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, ValueError])
def test_the_loop_continues_after_any_exception_of_a_coroutine(loop: Loop, outcomes: Collector, raised: type[BaseException]) -> None:
    async def task() -> None:
        raise raised

    async def fine() -> None:
        await asyncio.sleep(0)

    loop.submit(run_of(task, is_async=True, number=1))
    loop.submit(run_of(fine, is_async=True, number=2))
    assert set(outcomes.wait(2)) == {Kind.ERROR, Kind.SUCCESS}


def test_an_interrupt_cancels_the_coroutine_and_its_cleanup_runs(loop: Loop, outcomes: Collector) -> None:
    begun, cleaned = threading.Event(), threading.Event()

    async def task() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.set()

    run = run_of(task, is_async=True)
    loop.submit(run)
    begun.wait(PATIENCE_SECONDS)
    run.interrupt(Reason.USER)
    assert outcomes.wait(1) == [Kind.INTERRUPTED]
    assert cleaned.is_set()


def test_a_coroutine_that_was_asked_to_stop_before_it_started_never_starts(loop: Loop, outcomes: Collector) -> None:
    begun: list[int] = []

    async def task() -> None:
        begun.append(1)

    run = run_of(task, is_async=True)
    run.interrupt(Reason.USER)
    loop.submit(run)
    assert outcomes.wait(1) == [Kind.INTERRUPTED]
    assert begun == []


def test_a_blocked_loop_is_replaced_and_those_that_wait_in_it_run_once(
    loop: Loop, outcomes: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobqueue.worker.running.loop.RESPONSE_SECONDS", 0.05)
    blocked, end = threading.Event(), threading.Event()
    ran: list[int] = []

    async def block() -> None:
        blocked.set()
        end.wait(PATIENCE_SECONDS)

    async def wait_in_it() -> None:
        ran.append(1)

    loop.submit(run_of(block, is_async=True, number=1))
    blocked.wait(PATIENCE_SECONDS)
    old = loop._loop
    loop.submit(run_of(wait_in_it, is_async=True, number=2))
    loop.replace_if_blocked()
    outcomes.wait(1)
    assert [run.job.id for run, _ in outcomes.outcomes] == [2]
    loop.replace_if_blocked()
    assert loop._loop is not old, "the new one answers, and stays"
    assert loop.stuck == 1
    end.set()
    outcomes.wait(2)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while loop.stuck:
        assert time.monotonic() < deadline
    assert ran == [1]
    assert old is not None
    old.call_soon_threadsafe(old.stop)


def test_tasks_that_a_coroutine_leaves_behind_are_canceled_at_the_end(outcomes: Collector) -> None:
    loop = Loop(outcomes.put)
    canceled = threading.Event()

    async def left() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            canceled.set()

    async def task() -> None:
        asyncio.get_running_loop().create_task(left())
        await asyncio.sleep(0)

    loop.submit(run_of(task, is_async=True))
    outcomes.wait(1)
    loop.stop()
    assert loop.join(PATIENCE_SECONDS)
    assert canceled.is_set()


def test_a_coroutine_that_stops_the_loop_does_no_harm(loop: Loop, outcomes: Collector) -> None:
    async def stop() -> None:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)

    async def fine() -> None:
        await asyncio.sleep(0.01)

    for number in range(0, 30, 2):
        loop.submit(run_of(stop, is_async=True, number=number))
        loop.submit(run_of(fine, is_async=True, number=number + 1))
    assert outcomes.wait(30) == [Kind.SUCCESS] * 30


def test_a_coroutine_that_cancels_every_other_one_leaves_none_unsettled(loop: Loop, outcomes: Collector) -> None:
    async def cancel_all() -> str:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        return "mine counts"

    async def fine() -> None:
        await asyncio.sleep(30)

    async def quick() -> None: ...

    asyncio_run = [run_of(fine, is_async=True, number=number) for number in range(3)]
    for run in asyncio_run:
        loop.submit(run)
    while not all(run.began for run in asyncio_run):
        threading.Event().wait(0.001)
    holding, held = threading.Event(), threading.Event()

    async def hold() -> None:
        holding.set()
        held.wait(PATIENCE_SECONDS)  # so that the next two begin in one turn of the loop

    loop.submit(run_of(hold, is_async=True, number=10))
    assert holding.wait(PATIENCE_SECONDS)
    loop.submit(run_of(cancel_all, is_async=True, number=11))
    loop.submit(run_of(quick, is_async=True, number=12))
    held.set()
    outcomes.wait(6)
    kinds = {run.job.id: outcome.kind for run, outcome in outcomes.outcomes}
    assert kinds == {
        **dict.fromkeys(range(3), Kind.ERROR),
        10: Kind.SUCCESS,
        11: Kind.SUCCESS,
        12: Kind.HANDED_BACK,
    }, "what had not begun goes back, what had begun was canceled, and says so"
