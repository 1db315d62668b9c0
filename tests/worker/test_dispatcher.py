"""When the dispatcher polls, and when it uses the hint of a duty of its process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from jobqueue.db import LeaseHolder
from jobqueue.lifecycle.glance import Glances
from jobqueue.worker.claim_policy import ClaimPolicy
from jobqueue.worker.claiming.claimer import Claimer
from jobqueue.worker.claiming.dispatcher import QUIET_SECONDS, Dispatcher
from jobqueue.worker.reporting.finisher import Finisher
from jobqueue.worker.reporting.reporter import Reporter
from jobqueue.worker.running.lanes import Lanes
from jobqueue.worker.running.loop import Loop
from jobqueue.worker.running.pool import Pool
from jobqueue.worker.running.run import Runs
from tests.factories import JobFactory
from tests.worker.parts import PATIENCE_SECONDS

pytestmark = pytest.mark.django_db


class Watched(Claimer):
    """Record since when a hint can report that nothing is queued."""

    def look_around(self, since: float | None = None) -> None:
        self.since = since
        super().look_around(since)


class Scene:
    """A dispatcher whose turns a test takes, in a process that receives notifications, or not."""

    def __init__(self) -> None:
        runs, self.is_notified = Runs(), True
        self.lanes = Lanes(lambda: Pool(lambda *_: None))
        finisher = Finisher(runs, "worker-1", 30.0, lambda retrying: None, lambda *_: None, "finisher")
        self.picker = Watched(LeaseHolder("worker-1", 30.0), ClaimPolicy((), None, self.lanes.set_slots), self.lanes, Glances())
        self.dispatcher = Dispatcher(
            "worker-1",
            self.picker,
            runs=runs,
            lanes=self.lanes,
            loop=Loop(finisher.put),
            finisher=finisher,
            reporter=Reporter(runs, lambda *_: None),
            poll_seconds=1.0,
            is_notified=lambda: self.is_notified,
            lost=lambda lost: None,
            crowded=lambda: None,
            max_crashes=3,
            watch=lambda run: None,
            on_error=lambda *_: None,
        )

    def rest(self) -> None:
        """Move the last work, and the last notification of work, to the past."""
        self.dispatcher._worked_at -= QUIET_SECONDS + 1
        self.dispatcher._woken_at -= QUIET_SECONDS + 1

    def since(self) -> float | None:
        self.dispatcher.turn()
        return self.picker.since


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.lanes.close()
    assert made.lanes.join(time.monotonic() + PATIENCE_SECONDS)


def test_it_goes_by_a_glance_after_a_quiet_while(scene: Scene) -> None:
    assert scene.since() is None, "it has just begun"
    scene.rest()
    assert scene.since() == scene.dispatcher._woken_at


@pytest.mark.parametrize("word", ["wake", "notified"])
def test_after_a_word_of_new_work_it_looks_itself_for_a_while(scene: Scene, word: str) -> None:
    scene.rest()
    getattr(scene.dispatcher, word)()
    assert scene.since() is None
    scene.dispatcher._woken_at -= QUIET_SECONDS - 0.2
    assert scene.since() is None, "other workers can have been notified of more work that was held back"
    scene.rest()
    assert scene.since() is not None


def test_without_notifications_it_looks_itself(scene: Scene) -> None:
    scene.rest()
    scene.is_notified = False
    assert scene.since() is None


def test_while_it_has_work_it_looks_itself(scene: Scene, monkeypatch: Any) -> None:
    monkeypatch.setattr(scene.lanes.shared.pool, "submit", lambda runs: None)
    scene.lanes.shared.pool.resize(1)
    scene.rest()
    JobFactory()
    scene.since()
    assert scene.since() is None


def test_an_idle_poll_comes_after_at_most_poll_seconds(scene: Scene) -> None:
    scene.rest()
    scene.is_notified = False
    pauses = [scene.dispatcher._idle_pause() for _ in range(300)]
    assert max(pauses) <= 1.0
    assert len({round(one, 3) for one in pauses[20:]}) > 50, "workers do not poll in step"
