"""A lane runs no more coroutines at a time than it has slots."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobqueue.lifecycle.outcome import Kind
from jobqueue.worker.running.lanes import RATE_SECONDS, Lane, Lanes
from jobqueue.worker.running.loop import Loop
from jobqueue.worker.running.pool import Pool
from jobqueue.worker.running.run import Run
from tests.worker.parts import PATIENCE_SECONDS, Collector, run_of


class Scene:
    """An event loop, two lanes of two slots, and coroutines that run until they are released."""

    def __init__(self) -> None:
        self.outcomes = Collector()
        self.loop = Loop(self.outcomes.put)
        self.lanes = Lanes(lambda: Pool(self.outcomes.put))
        self.lanes.shared.pool.resize(2)
        self.lanes.set_slots({"acme": 2})
        self.running: dict[Lane, int] = {}
        self.most: dict[Lane, int] = {}
        self._changed = threading.Condition()
        self._let_go = asyncio.Event()
        self._number = 0

    def submit(self, lane: Lane, number: int) -> list[Run]:
        """Give the loop this number of coroutines of a lane."""
        return [self.coroutine(lane, lambda: self._work(lane)) for _ in range(number)]

    def coroutine(self, lane: Lane, function: Callable[[], Any]) -> Run:
        """Give the loop one coroutine of a lane."""
        run = self._run(lane, function, is_async=True)
        self.loop.submit(run)
        return run

    def function(self, lane: Lane, function: Callable[[], Any]) -> Run:
        """Give a lane one plain function."""
        run = self._run(lane, function, is_async=False)
        lane.pool.submit([run])
        return run

    def _run(self, lane: Lane, function: Callable[[], Any], *, is_async: bool) -> Run:
        self._number += 1
        plain = run_of(function, is_async=is_async, number=self._number)
        run = Run(plain.job, plain.flush, plain.read_result, lane)
        run.entry = plain.entry
        return run

    async def _work(self, lane: Lane) -> None:
        self._count(lane, 1)
        try:
            await self._let_go.wait()
        finally:
            self._count(lane, -1)

    def _count(self, lane: Lane, change: int) -> None:
        with self._changed:
            self.running[lane] = self.running.get(lane, 0) + change
            self.most[lane] = max(self.most.get(lane, 0), self.running[lane])
            self._changed.notify_all()

    def wait_for(self, lane: Lane, number: int) -> None:
        """Return when this number of coroutines of a lane run."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.running.get(lane, 0) == number, PATIENCE_SECONDS)

    def let_go(self) -> None:
        """End all of them."""
        self.loop._started().call_soon_threadsafe(self._let_go.set)

    def close(self) -> None:
        """End the threads."""
        self.let_go()
        self.loop.stop()
        self.lanes.close()
        assert self.loop.join(PATIENCE_SECONDS)
        assert self.lanes.join(time.monotonic() + PATIENCE_SECONDS)


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.close()


def test_as_many_run_as_there_are_slots_and_the_others_follow_in_order(scene: Scene) -> None:
    shared, own = scene.lanes.shared, scene.lanes.of("acme")
    flood = scene.submit(shared, 20)
    scene.wait_for(shared, 2)
    scene.submit(own, 3)
    scene.wait_for(own, 2)
    scene.let_go()
    assert scene.outcomes.wait(23) == [Kind.SUCCESS] * 23
    assert (scene.most[shared], scene.most[own]) == (2, 2)
    began = [run.began for run in flood]
    assert began == sorted(began, key=lambda at: at or 0.0)


def test_functions_and_coroutines_share_the_slots_and_neither_starves_the_other(scene: Scene) -> None:
    shared, let_go = scene.lanes.shared, threading.Event()

    def work() -> None:
        scene._count(shared, 1)
        let_go.wait(PATIENCE_SECONDS)
        threading.Event().wait(0.01)
        scene._count(shared, -1)

    def functions(number: int) -> list[Run]:
        return [scene.function(shared, work) for _ in range(number)]

    functions(1)
    late = scene.submit(shared, 3)
    flood = functions(30)
    scene.wait_for(shared, 2)
    threading.Event().wait(0.2)  # time to do wrong
    assert scene.most[shared] == 2
    let_go.set()
    scene.let_go()
    assert scene.outcomes.wait(34) == [Kind.SUCCESS] * 34
    assert scene.most[shared] == 2
    last = max(run.began or 0.0 for run in flood)
    assert all(run.began is not None and run.began < last for run in late), "no flood of functions makes a coroutine wait until its end"


def test_functions_that_wait_behind_coroutines_are_handed_back(scene: Scene) -> None:
    shared = scene.lanes.shared
    scene.submit(shared, 2)
    scene.wait_for(shared, 2)
    run = scene.function(shared, lambda: None)
    for _ in range(1000):
        if shared.pool.slots.held:
            break
        threading.Event().wait(0.01)
    assert shared.take_waiting(run.claimed_at) == []
    assert shared.take_waiting(time.monotonic() + 1) == [run]
    scene.let_go()
    assert scene.outcomes.wait(2) == [Kind.SUCCESS] * 2
    last = scene.function(shared, lambda: None)
    scene.outcomes.wait(3)
    assert scene.outcomes.outcomes[-1][0] is last


def test_functions_do_not_wait_for_coroutines_whose_loop_is_blocked(scene: Scene) -> None:
    shared, begun, unblock = scene.lanes.shared, threading.Event(), threading.Event()

    async def block() -> None:
        begun.set()
        unblock.wait(PATIENCE_SECONDS)

    scene.coroutine(shared, block)
    assert begun.wait(PATIENCE_SECONDS)
    scene.submit(shared, 3)
    for _ in range(20):
        scene.function(shared, lambda: None)
    since = time.monotonic()
    assert scene.outcomes.wait(20) == [Kind.SUCCESS] * 20
    assert time.monotonic() - since < 1.0, "one of them found out for all"
    unblock.set()
    scene.let_go()
    scene.outcomes.wait(24)


def test_waiting_runs_are_handed_back_and_never_start(scene: Scene) -> None:
    shared = scene.lanes.shared
    runs = scene.submit(shared, 5)
    scene.wait_for(shared, 2)
    assert scene.loop.take_waiting(runs[0].claimed_at) == []
    assert {run.job.id for run in scene.loop.take_waiting(time.monotonic() + 1)} == {3, 4, 5}
    scene.let_go()
    scene.outcomes.wait(2)
    last = scene.submit(shared, 1)
    scene.outcomes.wait(3)
    assert {run.job.id for run, _ in scene.outcomes.outcomes} == {1, 2, last[0].job.id}


def test_more_slots_are_used_by_the_next_that_comes_or_ends(scene: Scene) -> None:
    shared = scene.lanes.shared
    scene.submit(shared, 4)
    scene.wait_for(shared, 2)
    shared.pool.resize(4)
    scene.submit(shared, 1)
    scene.wait_for(shared, 4)


def test_one_that_was_given_up_on_takes_up_no_slot(scene: Scene) -> None:
    shared = scene.lanes.shared
    runs = scene.submit(shared, 2)
    scene.wait_for(shared, 2)
    scene.submit(shared, 1)
    assert runs[0].abandon()
    scene.loop.replace_if_blocked(runs[0])
    scene.wait_for(shared, 3)


def test_one_that_continues_keeps_its_slot_though_a_new_loop_is_asked_for(scene: Scene) -> None:
    shared = scene.lanes.shared
    runs = scene.submit(shared, 2)
    scene.wait_for(shared, 2)
    scene.submit(shared, 1)
    scene.loop.replace_if_blocked(runs[0])
    scene.loop.replace_if_blocked(runs[0])  # the loop has answered: what it was asked for before is done
    assert scene.most[shared] == 2


@pytest.mark.long
def test_if_the_loop_is_blocked_waiting_coroutines_get_the_slots_of_the_new_one(scene: Scene) -> None:
    shared, begun, unblock = scene.lanes.shared, threading.Event(), threading.Event()

    async def block() -> None:
        begun.set()
        unblock.wait(PATIENCE_SECONDS)

    plain = run_of(block, is_async=True, number=101)
    run = Run(plain.job, plain.flush, plain.read_result, shared)
    run.entry = plain.entry
    scene.loop.submit(run)
    assert begun.wait(PATIENCE_SECONDS)
    scene.submit(shared, 3)
    scene.loop.replace_if_blocked()
    scene.wait_for(shared, 2)
    shared.pool.resize(3)
    unblock.set()
    scene.outcomes.wait(1)  # and the coroutines that the old loop had got were checked
    scene.submit(shared, 1)
    scene.wait_for(shared, 3)
    assert scene.most[shared] == 3, "the old loop begins nothing more"
    scene.let_go()
    assert scene.outcomes.wait(5) == [Kind.SUCCESS] * 5
    assert scene.most[shared] == 3


def test_how_much_is_claimed_ahead_goes_by_coroutines_too(scene: Scene) -> None:
    async def nothing() -> None:
        pass

    lane = scene.lanes.of("acme")
    lane.last_claim = 1000
    for _ in range(2000):
        scene.coroutine(lane, nothing)
    scene.outcomes.wait(2000)
    threading.Event().wait(RATE_SECONDS)
    assert lane.wanted() > 10, "two slots alone would be 2"
