"""The scaler with a real pool and the real database, one turn after the other."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobqueue.lifecycle.limits import Limits
from jobqueue.models import Job
from jobqueue.worker.claim_policy import ClaimPolicy
from jobqueue.worker.fleet.scaler import MIN_TURNS, RESCALE_SECONDS, Scaler, as_json
from jobqueue.worker.running.lanes import Lanes
from jobqueue.worker.running.pool import Pool
from jobqueue.worker.running.run import Run, Runs
from tests.factories import JobFactory
from tests.worker.parts import PATIENCE_SECONDS, Collector, run_of

PAUSE = 0.01


class Scene:
    """A scaler between two and five slots that no thread runs."""

    def __init__(self, least: int = 2, most: int = 5, quiet: float = 0.0, queues: tuple[str, ...] = ("mail",)) -> None:
        self.runs, self.resized, self.decided = Runs(), 0, 0
        self.lanes = Lanes(lambda: Pool(Collector().put))
        self.policy = ClaimPolicy(queues, None, lambda numbers: None)
        self.scaler = Scaler(
            self.lanes,
            self.policy,
            least=least,
            most=most,
            scale_seconds=PAUSE,
            quiet_seconds=quiet,
            resized=self._note,
            decided=self._decide,
            on_error=lambda *_: None,
        )
        self.lanes.shared.saturated = True
        self.scaler.begin()

    def _note(self) -> None:
        self.resized += 1

    def _decide(self) -> None:
        self.decided += 1

    def run(self, number: int) -> None:
        """Register this number of runs."""
        self.runs.remove([run.lease for run in self.runs])
        plain = [run_of(lambda: None, number=one) for one in range(number)]
        self.runs.add([Run(run.job, run.flush, run.read_result, self.lanes.shared) for run in plain])

    def size(self) -> int:
        """Return the number of slots after a turn."""
        assert self.scaler.turn() == PAUSE
        return self.lanes.shared.pool.size

    def sizes(self, seconds: float) -> list[int]:
        """Return the number of slots after each turn during this time."""
        until, found = time.monotonic() + seconds, []
        while time.monotonic() < until:
            found.append(self.size())
            self.scaler.wait(PAUSE)
        return found

    def close(self) -> None:
        """End the threads."""
        self.lanes.close()
        assert self.lanes.join(time.monotonic() + PATIENCE_SECONDS)


@pytest.fixture
def make() -> Iterator[Callable[..., Scene]]:
    made: list[Scene] = []

    def one(**options: Any) -> Scene:
        made.append(Scene(**options))
        return made[-1]

    yield one
    for scene in made:
        scene.close()


@pytest.fixture
def scene(make: Callable[..., Scene]) -> Scene:
    return make()


# How many


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
    assert scene.resized == (slots > 2), "only new slots cause a notification"


@pytest.mark.django_db
def test_jobs_of_tenants_with_slots_of_their_own_and_of_paused_queues_call_for_none(make: Callable[..., Scene]) -> None:
    rich, paused = make(), make()
    rich.lanes.set_slots({"rich": 1})
    JobFactory.create_batch(3, queue="mail", tenant="rich")
    assert rich.size() == 2
    JobFactory.create_batch(3, queue="mail")
    paused.policy.paused = frozenset({"mail"})
    assert (rich.size(), paused.size()) == (3, 2)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("limits", "slots"),
    [
        (Limits(queues={"mail": 3}), 2),
        (Limits(queues={"mail": 6}), 3),
        (Limits(queues={"mail": 0}), 2),
        (Limits(queues={"other": 1}), 5),
        (Limits(4), 2),
        (Limits(7), 3),
        (Limits(50, {"mail": 50}), 5),
    ],
)
def test_jobs_that_a_limit_holds_back_call_for_no_slot(scene: Scene, limits: Limits, slots: int) -> None:
    JobFactory.create_batch(3, queue="mail", running=True)
    JobFactory(queue="other", running=True)
    JobFactory.create_batch(9, queue="mail")
    scene.policy.limits = limits
    assert scene.size() == slots


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("limits", "slots"),
    [(Limits(), 4), (Limits(queues={"mail-a": 1}), 3), (Limits(queues={"sms": 0}), 4), (Limits(1, {"mail-bulk": 9}), 3)],
)
def test_only_jobs_of_queues_that_patterns_serve_call_for_slots(make: Callable[..., Scene], limits: Limits, slots: int) -> None:
    scene = make(queues=("mail-*", "!mail-bulk"))
    scene.policy.limits = limits
    scene.run(2)
    JobFactory.create_batch(2, queue="mail-a")
    for queue in ("mail-bulk", "sms"):
        JobFactory.create_batch(9, queue=queue)
    assert scene.size() == slots


@pytest.mark.django_db
def test_nothing_is_asked_of_the_database_while_slots_are_free(scene: Scene, django_assert_num_queries: Callable[[int], Any]) -> None:
    JobFactory.create_batch(5, queue="mail")
    scene.lanes.shared.saturated = False
    with django_assert_num_queries(0):
        assert scene.size() == 2


def test_with_one_number_allowed_there_is_nothing_to_decide(make: Callable[..., Scene]) -> None:
    assert make(least=2, most=2).scaler.turn() is None, "it rests for good"


# When to shrink


@pytest.mark.long
@pytest.mark.django_db
def test_unneeded_slots_end_after_a_quiet_time_and_busy_ones_stay(make: Callable[..., Scene]) -> None:
    scene = make(quiet=0.6)
    scene.run(4)
    JobFactory.create_batch(5, queue="mail")
    assert scene.size() == 5
    scene.lanes.shared.saturated = False
    began = time.monotonic()
    found = scene.sizes(0.25)
    assert time.monotonic() - began < 0.6, "the machine was stopped; the test proves nothing"
    assert set(found) == {5}, "not within the quiet time"
    assert scene.sizes(0.8)[-1] == 4, "what runs keeps its slot"
    scene.run(0)
    assert scene.sizes(1.4)[-1] == 2
    assert scene.resized == 1


@pytest.mark.long
@pytest.mark.django_db
def test_a_load_that_comes_and_goes_makes_no_threads_come_and_go(make: Callable[..., Scene]) -> None:
    scene = make(quiet=0.5)
    scene.lanes.shared.saturated = False
    for _ in range(5):
        scene.run(5)
        scene.sizes(0.1)
        scene.run(0)
        scene.sizes(0.1)
    assert scene.decided == 1, "it grew once"


@pytest.mark.django_db
def test_slots_that_were_busy_between_two_decisions_count(make: Callable[..., Scene]) -> None:
    scene = make(quiet=0.05)
    scene.lanes.shared.saturated = False
    scene.run(5)
    assert scene.size() == 5
    for _ in range(20):
        scene.run(4)
        scene.run(0)
        assert scene.size() >= 4
        scene.scaler.wait(PAUSE)
    assert scene.size() == 4


@pytest.mark.django_db
def test_after_a_gap_one_check_is_not_enough(make: Callable[..., Scene]) -> None:
    scene = make(quiet=0.1)
    scene.lanes.shared.saturated = False
    scene.run(5)
    assert scene.size() == 5
    scene.run(0)
    scene.lanes.shared.take_peak()
    scene.scaler.wait(0.2)
    assert [scene.size() for _ in range(MIN_TURNS)] == [5, 5, 2]


# The pool of connections


def pooled(settings: Any, size: int) -> None:
    """Give the job database a pool in the settings, where the scaler reads its size; no connection is made through it."""
    alias = Job.objects.database.alias
    entry = {**settings.DATABASES[alias], "OPTIONS": {**settings.DATABASES[alias].get("OPTIONS", {}), "pool": {"max_size": size}}}
    settings.DATABASES = {**settings.DATABASES, alias: entry}


@pytest.mark.django_db
@pytest.mark.filterwarnings("ignore:Overriding setting DATABASES")
def test_no_more_slots_than_the_pool_of_connections_serves(
    settings: Any, make: Callable[..., Scene], caplog: pytest.LogCaptureFixture
) -> None:
    pooled(settings, 5)
    scene = make()
    JobFactory.create_batch(9, queue="mail")
    with caplog.at_level(logging.INFO, "jobqueue"):
        assert scene.size() == 4
    reason = "more jobs than slots; the connection pool has no more connections"
    assert f"Slots: 2 to 4 (0 running, 4 claimable, between 2 and 5): {reason}." in caplog.messages
    scene.lanes.set_slots({"rich": 1})
    assert scene.size() == 3, "the slots of a lane of its own take theirs from the same pool"


@pytest.mark.django_db
@pytest.mark.filterwarnings("ignore:Overriding setting DATABASES")
@pytest.mark.parametrize("least", [3, 5])
def test_a_pool_below_the_least_number_bounds_it_too_and_is_reported_once(
    settings: Any, make: Callable[..., Scene], caplog: pytest.LogCaptureFixture, least: int
) -> None:
    pooled(settings, 2)
    scene = make(least=least)
    assert [scene.size(), scene.size()] == [1, 1]
    assert [text for text in caplog.messages if "pool" in text] == [
        f"The connection pool has room for 1 slots, fewer than MIN_WORKERS ({least}): enlarge it."
    ]


# What is logged


@pytest.mark.django_db
def test_a_decision_is_logged_and_kept_with_its_numbers(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.run(2)
    JobFactory.create_batch(2, queue="mail")
    assert as_json(scene.scaler.decision) == {}
    with caplog.at_level(logging.INFO, "jobqueue"):
        scene.size()
        scene.size()
    assert caplog.messages == ["Slots: 2 to 4 (2 running, 2 claimable, between 2 and 5): more jobs than slots."]
    shown = as_json(scene.scaler.decision)
    assert 0 <= shown.pop("age") < PATIENCE_SECONDS
    assert shown == {"before": 2, "after": 4, "running": 2, "claimable": 2, "why": "more jobs than slots"}
    assert scene.decided == 1


@pytest.mark.django_db
def test_a_hurried_scaler_decides_at_once_but_not_all_the_time(make: Callable[..., Scene]) -> None:
    scene, full = make(), make(least=5, most=5)
    for one in (scene, full):
        one.scaler.wait(RESCALE_SECONDS)
        one.scaler.rescale_now()
    assert scene.scaler._wake.is_set()
    assert not full.scaler._wake.is_set(), "there is nothing to win"
    scene.size()
    scene.scaler._wake.clear()
    scene.scaler.rescale_now()
    assert not scene.scaler._wake.is_set()
