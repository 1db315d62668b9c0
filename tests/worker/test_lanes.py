"""Lanes: slots of their own for some tenants, added, changed and removed while jobs run; real pools, no database."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from jobqueue.lifecycle.outcome import Kind
from jobqueue.worker.running.lanes import RATE_SECONDS, Lane, Lanes
from jobqueue.worker.running.pool import Pool
from jobqueue.worker.running.run import Run, Runs
from tests.worker.parts import PATIENCE_SECONDS, Collector, run_of


class Scene:
    """The lanes of a process, and jobs that run until they are released."""

    def __init__(self) -> None:
        self.runs, self.outcomes, self._number = Runs(), Collector(), 0
        self.lanes = Lanes(lambda: Pool(self._put))
        self.lanes.shared.pool.resize(2)
        self.let_go = threading.Event()
        self._alive: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self._changed = threading.Condition()

    def _put(self, run: Run, outcome: Any) -> None:
        self.runs.remove([run.lease])
        self.outcomes.put(run, outcome)

    def submit(self, tenant: str, number: int, *, lane: Lane | None = None) -> Lane:
        """Start this number of jobs of a tenant in its lane."""
        lane = lane or self.lanes.of(tenant)
        for _ in range(number):
            self._number += 1
            plain = run_of(lambda: self._work(tenant), number=self._number, tenant=tenant)
            run = Run(plain.job, plain.flush, plain.read_result, lane)
            run.entry = plain.entry
            self.runs.add([run])
            lane.pool.submit([run])
        return lane

    def _work(self, tenant: str) -> None:
        with self._changed:
            self._alive[tenant] += 1
            self.most[tenant] = max(self.most[tenant], self._alive[tenant])
            self._changed.notify_all()
        assert self.let_go.wait(PATIENCE_SECONDS)
        with self._changed:
            self._alive[tenant] -= 1

    def wait_for_alive(self, **alive: int) -> None:
        """Return when this number of jobs of each tenant run."""
        with self._changed:
            assert self._changed.wait_for(lambda: all(self._alive[name] == count for name, count in alive.items()), PATIENCE_SECONDS)

    def close(self) -> None:
        """End the threads."""
        self.let_go.set()
        self.lanes.close()
        assert self.lanes.join(time.monotonic() + PATIENCE_SECONDS)


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.close()


def test_a_tenant_with_a_number_has_a_lane_and_all_others_share_one(scene: Scene) -> None:
    scene.lanes.set_slots({"acme": 3, "globex": 1})
    assert [(lane.tenant, lane.pool.size) for lane in scene.lanes] == [("acme", 3), ("globex", 1), (None, 2)]
    assert (scene.lanes.of("acme").tenant, scene.lanes.of("globex").tenant) == ("acme", "globex")
    assert scene.lanes.of("") is scene.lanes.of("other") is scene.lanes.shared
    assert (scene.lanes.own, scene.lanes.slots) == (["acme", "globex"], 6)


def test_a_flood_runs_in_its_own_slots_alone_and_leaves_all_others_free(scene: Scene) -> None:
    scene.lanes.set_slots({"acme": 3, "globex": 1})
    scene.submit("acme", 50)
    scene.submit("other", 20)
    scene.wait_for_alive(acme=3, other=2)
    scene.submit("globex", 1)
    scene.wait_for_alive(globex=1)
    assert (scene.lanes.of("acme").free, scene.lanes.of("globex").free, scene.lanes.shared.free) == (-47, 0, -18)
    scene.let_go.set()
    assert scene.outcomes.wait(71) == [Kind.SUCCESS] * 71
    assert dict(scene.most) == {"acme": 3, "other": 2, "globex": 1}
    assert [lane.free for lane in scene.lanes] == [3, 1, 2]


def test_a_full_lane_claims_nothing_and_a_free_one_its_slots(scene: Scene) -> None:
    scene.lanes.set_slots({"acme": 3})
    assert scene.lanes.of("acme").wanted() == 3
    scene.submit("acme", 2)
    assert scene.lanes.of("acme").wanted() == 1
    scene.submit("acme", 3)
    assert scene.lanes.of("acme").wanted() <= 0
    assert scene.lanes.shared.wanted() == 2


def test_numbers_may_be_raised_and_lowered_while_jobs_run(scene: Scene) -> None:
    scene.lanes.set_slots({"acme": 1})
    lane = scene.submit("acme", 4)
    scene.wait_for_alive(acme=1)
    scene.lanes.set_slots({"acme": 3})
    assert scene.lanes.of("acme") is lane
    scene.wait_for_alive(acme=3)
    scene.lanes.set_slots({"acme": 1})
    scene.submit("acme", 2)
    scene.let_go.set()
    assert scene.outcomes.wait(6) == [Kind.SUCCESS] * 6
    assert (lane.pool.size, lane.free, scene.most["acme"]) == (1, 1, 3)


def test_jobs_of_a_new_lane_are_claimed_in_it_and_no_longer_in_the_shared_one(scene: Scene) -> None:
    scene.lanes.shared.turns.notified("acme")
    scene.lanes.shared.turns.notified("other")
    scene.lanes.set_slots({"acme": 1})
    assert (list(scene.lanes.of("acme").turns.round()), list(scene.lanes.shared.turns.round())) == (["acme"], ["other"])


def test_a_tenant_that_loses_its_number_finishes_what_runs_and_shares_from_then_on(scene: Scene) -> None:
    scene.lanes.set_slots({"acme": 1})
    lane = scene.submit("acme", 1)
    lane.turns.notified("acme")
    scene.wait_for_alive(acme=1)
    scene.lanes.set_slots({})
    assert (scene.lanes.of("acme"), list(scene.lanes), scene.lanes.slots) == (scene.lanes.shared, [scene.lanes.shared], 2)
    assert list(scene.lanes.shared.turns.round()) == ["acme"]
    scene.let_go.set()
    assert scene.outcomes.wait(1) == [Kind.SUCCESS]
    assert lane.busy == 0


def test_runs_that_have_not_started_in_a_removed_lane_are_handed_back(scene: Scene) -> None:
    scene.lanes.set_slots({"acme": 1})
    lane = scene.submit("acme", 1)
    scene.wait_for_alive(acme=1)
    scene.lanes.set_slots({})
    scene.submit("acme", 2, lane=lane)  # taken over by a chain of its target at that moment
    assert len(scene.lanes.take_waiting(time.monotonic() + 1)) == 2


def test_a_tenant_that_gets_its_number_back_has_a_new_lane(scene: Scene) -> None:
    scene.lanes.set_slots({"acme": 1})
    old = scene.submit("acme", 1)
    scene.wait_for_alive(acme=1)
    scene.lanes.set_slots({})
    scene.lanes.set_slots({"acme": 2})
    assert scene.lanes.of("acme") is not old
    assert (scene.lanes.of("acme").free, scene.lanes.slots) == (2, 4)


def test_a_stuck_thread_of_a_lane_that_is_gone_is_still_counted_and_waited_for(scene: Scene) -> None:
    scene.lanes.set_slots({"acme": 1})
    lane = scene.submit("acme", 1)
    scene.wait_for_alive(acme=1)
    [run] = list(scene.runs)
    assert run.abandon()
    lane.pool.abandon_thread(run)
    scene.runs.remove([run.lease])  # it was settled without its thread
    scene.lanes.set_slots({})
    scene.lanes.set_slots({})
    assert scene.lanes.stuck == 1
    assert not scene.lanes.join(time.monotonic() + 0.05)


@pytest.mark.long
def test_long_runs_that_end_together_are_no_reason_to_hoard_and_short_ones_are() -> None:
    outcomes = Collector()
    lanes = Lanes(lambda: Pool(outcomes.put))
    lane = lanes.shared
    lane.pool.resize(4)
    lane.last_claim = 1000
    begun, go_on = threading.Barrier(5), threading.Event()

    def long() -> None:
        begun.wait(PATIENCE_SECONDS)
        go_on.wait(PATIENCE_SECONDS)

    lane.pool.submit([run_of(long, number=number) for number in range(4)])
    begun.wait(PATIENCE_SECONDS)
    threading.Event().wait(0.5)
    assert lane.wanted() == 4
    go_on.set()
    outcomes.wait(4)
    threading.Event().wait(RATE_SECONDS)
    assert lane.wanted() == 4, "in 0.1 s four slots do not end one run of half a second"
    lane.pool.submit([run_of(lambda: None, number=number) for number in range(4, 2004)])
    outcomes.wait(2004)
    assert lane.wanted() > 50
    lanes.close()
    assert lanes.join(time.monotonic() + PATIENCE_SECONDS)
