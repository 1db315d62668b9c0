"""The scaler with a real pool and the real database, one turn after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobqueue.worker.gate import Gate
from jobqueue.worker.lanes import Lanes
from jobqueue.worker.pool import Pool
from jobqueue.worker.run import Run, Runs
from jobqueue.worker.scaler import Scaler
from tests.factories import JobFactory
from tests.worker.parts import PATIENCE_SECONDS, Collector, run_of


class Scene:
    """A scaler between two and five slots that no thread runs."""

    def __init__(self, least: int = 2, most: int = 5) -> None:
        self.runs, self.resized = Runs(), 0
        self.lanes = Lanes(lambda: Pool(Collector().put), self.runs, 3)
        self.gate = Gate(("mail",), None, lambda numbers: None)
        self.scaler = Scaler(self.lanes, self.gate, least=least, most=most, scale_seconds=1.0, resized=self._note, on_error=lambda *_: None)
        self.lanes.shared.saturated = True
        self.lanes.shared.pool.resize(least)

    def _note(self) -> None:
        self.resized += 1

    def run(self, number: int) -> None:
        """Register so many runs."""
        self.runs.remove([run.lease for run in self.runs])
        plain = [run_of(lambda: None, number=one) for one in range(number)]
        self.runs.add([Run(run.job, run.flush, run.read_result, self.lanes.shared) for run in plain])

    def size(self) -> int:
        """Return the number of slots after a turn."""
        assert self.scaler.turn() == 1.0
        return self.lanes.shared.pool.size

    def close(self) -> None:
        """End the threads."""
        self.lanes.close()
        assert self.lanes.join(time.monotonic() + PATIENCE_SECONDS)


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.close()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("running", "queued", "slots"), [(0, 0, 2), (1, 0, 2), (2, 1, 3), (2, 2, 4), (2, 3, 5), (0, 9, 5), (5, 0, 5), (8, 9, 5)]
)
def test_slots_are_what_runs_and_what_could_be_claimed_within_bounds(scene: Scene, running: int, queued: int, slots: int) -> None:
    scene.run(running)
    JobFactory.create_batch(queued, queue="mail")
    JobFactory.create_batch(3, queue="other")
    JobFactory.create_batch(3, queue="mail", scheduled=True)
    assert scene.size() == slots
    assert scene.resized == (slots > 2), "only new slots are told of"


@pytest.mark.django_db
def test_slots_that_nobody_needs_end_and_those_that_are_busy_stay(scene: Scene) -> None:
    scene.run(4)
    JobFactory.create_batch(5, queue="mail")
    assert scene.size() == 5
    scene.lanes.shared.saturated = False
    assert scene.size() == 4
    scene.run(0)
    assert scene.size() == 2
    assert scene.resized == 1


@pytest.mark.django_db
def test_jobs_of_tenants_with_slots_of_their_own_and_of_paused_queues_call_for_none(scene: Scene) -> None:
    scene.lanes.set_slots({"rich": 1})
    JobFactory.create_batch(3, queue="mail", tenant="rich")
    assert scene.size() == 2
    JobFactory.create_batch(3, queue="mail")
    assert scene.size() == 3
    scene.gate.paused = frozenset({"mail"})
    assert scene.size() == 2


@pytest.mark.django_db
def test_nothing_is_asked_of_the_database_while_slots_are_free(scene: Scene, django_assert_num_queries: Callable[[int], Any]) -> None:
    JobFactory.create_batch(5, queue="mail")
    scene.lanes.shared.saturated = False
    with django_assert_num_queries(0):
        assert scene.size() == 2


def test_with_one_number_allowed_there_is_nothing_to_decide() -> None:
    scene = Scene(least=2, most=2)
    assert scene.scaler.turn() is None, "it rests for good"
    scene.close()
