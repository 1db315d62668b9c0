"""When the dispatcher polls."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from jobqueue.db import LeaseHolder
from jobqueue.worker.claim_policy import ClaimPolicy
from jobqueue.worker.claiming.claimer import Claimer
from jobqueue.worker.claiming.dispatcher import QUIET_SECONDS, Dispatcher
from jobqueue.worker.reporting.finisher import Finisher
from jobqueue.worker.reporting.reporter import Reporter
from jobqueue.worker.running.lanes import Lanes
from jobqueue.worker.running.loop import Loop
from jobqueue.worker.running.pool import Pool
from jobqueue.worker.running.run import Runs
from tests.worker.parts import PATIENCE_SECONDS

pytestmark = pytest.mark.django_db


class Scene:
    """A dispatcher whose turns a test takes, in a process that receives notifications, or not."""

    def __init__(self) -> None:
        runs, self.is_notified = Runs(), True
        self.lanes = Lanes(lambda: Pool(lambda *_: None))
        finisher = Finisher(runs, "worker-1", 30.0, lambda retrying: None, lambda *_: None, "finisher")
        self.picker = Claimer(LeaseHolder("worker-1", 30.0), ClaimPolicy((), None, self.lanes.set_slots), self.lanes)
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


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.lanes.close()
    assert made.lanes.join(time.monotonic() + PATIENCE_SECONDS)


def test_an_idle_poll_comes_after_at_most_poll_seconds(scene: Scene) -> None:
    scene.rest()
    scene.is_notified = False
    pauses = [scene.dispatcher._idle_pause() for _ in range(300)]
    assert max(pauses) <= 1.0
    assert len({round(one, 3) for one in pauses[20:]}) > 50, "workers do not poll in step"
