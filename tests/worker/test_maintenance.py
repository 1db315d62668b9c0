"""The chores of every worker, one turn after the other."""

from __future__ import annotations

from typing import Any

import pytest

from jobqueue import conf
from jobqueue.models import Job, Worker
from jobqueue.worker.identity import Identity
from jobqueue.worker.maintenance import WORKER_ROW_SECONDS, Maintenance
from jobqueue.worker.show import forget, show
from tests.factories import JobFactory, WorkerFactory, ahead


class Scene:
    """The chores of a process, run by nobody but the test."""

    def __init__(self) -> None:
        self.identity, self.stuck, self.shown, self.promoted, self.kept = Identity(), 0, 0, 0, 0
        self.maintenance = Maintenance(
            self.identity,
            heartbeat_seconds=1.0,
            keep=lambda: self._count("kept"),
            show=lambda: self._count("shown"),
            stuck=lambda: self.stuck,
            promoted=lambda: self._count("promoted"),
            on_error=lambda *_: None,
        )

    def _count(self, name: str) -> None:
        setattr(self, name, getattr(self, name) + 1)


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.django_db
def test_the_processs_row_is_written_now_and_then_and_at_once_when_the_number_of_stuck_threads_changes(scene: Scene) -> None:
    shown = []
    for stuck in (0, 0, 2, 2, 1, 0, 0):
        scene.stuck = stuck
        scene.maintenance.turn()
        shown.append(scene.shown)
    assert shown == [1, 1, 2, 2, 3, 4, 4]
    scene.maintenance._shown_at = (scene.maintenance._shown_at or 0) - WORKER_ROW_SECONDS
    scene.maintenance.turn()
    assert scene.shown == 5


@pytest.mark.django_db
def test_due_jobs_are_promoted_and_lost_ones_recovered_and_both_are_told_of(scene: Scene) -> None:
    due, lost = JobFactory(due=True), JobFactory(expired=True)
    scene.maintenance.turn()
    assert set(Job.objects.values_list("pk", "status")) == {(due.pk, "QUEUED"), (lost.pk, "QUEUED")}
    assert (scene.promoted, scene.kept, scene.maintenance.errors) == (2, 1, 0)
    scene.maintenance.turn()
    assert (scene.promoted, scene.kept) == (2, 1), "nothing more to do, nothing to tell"


@pytest.mark.django_db
def test_after_a_standstill_the_sweep_waits_for_the_heartbeats(scene: Scene) -> None:
    lost = JobFactory(expired=True)
    scene.maintenance._turned_at -= 10
    scene.maintenance.turn()
    assert Job.objects.get(pk=lost.pk).status == "RUNNING"
    scene.maintenance._no_sweep_before -= 2
    scene.maintenance.turn()
    assert Job.objects.get(pk=lost.pk).status == "QUEUED"


@pytest.mark.django_db(transaction=True)
def test_a_process_shows_one_row_that_is_kept_up_to_date_and_goes_with_it() -> None:
    identity = Identity()
    old, recent = WorkerFactory(heartbeat_at=ahead(days=-2)), WorkerFactory()
    counts: dict[str, Any] = {"slots": 4, "running": 3, "stuck": 0}
    show(identity, conf.current(), Worker.State.RUNNING, **counts)
    assert set(Worker.objects.values_list("pk", flat=True)) == {identity.uuid, recent.pk}, "who was not heard for a day is dropped"
    show(identity, conf.current(), Worker.State.DRAINING, **{**counts, "stuck": 1})
    row = Worker.objects.get(pk=identity.uuid)
    assert (row.state, row.slots, row.running, row.stuck, row.pid) == ("DRAINING", 4, 3, 1, identity.pid)
    forget(identity)
    assert old.pk not in set(Worker.objects.values_list("pk", flat=True))
