"""The maintenance of every worker, one turn after the other."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from jobqueue import conf
from jobqueue.models import BackgroundJobLease, Job, LeftWorker, Worker
from jobqueue.worker.process.identity import Identity
from jobqueue.worker.process.maintenance import WORKER_ROW_SECONDS, Maintenance
from jobqueue.worker.process.show import remove_row, show
from tests.factories import JobFactory, WorkerFactory


class Scene:
    """The maintenance of a process, run only by the test."""

    def __init__(self) -> None:
        self.identity, self.stuck, self.shown, self.found = Identity(), 0, 0, 0
        self.maintenance = Maintenance(
            self.identity,
            show=lambda: self._count("shown"),
            stuck=lambda: self.stuck,
            found=lambda: self._count("found"),
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
def test_jobs_of_dead_neighbors_are_recovered_at_once_and_their_duties_are_free(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    lost, other = JobFactory(running=True, lease_owner="dead"), JobFactory(running=True)
    held = {"lease_acquired_at": timezone.now(), "heartbeat_at": timezone.now()}
    BackgroundJobLease.objects.create(job_name="theirs", held_by_worker_id="dead", **held)
    BackgroundJobLease.objects.create(job_name="another's", held_by_worker_id="alive", **held)
    monkeypatch.setattr(scene.identity, "dead_neighbours", lambda: ["dead"])
    scene.maintenance.turn()
    assert {job.pk: job.status for job in Job.objects.all()} == {lost.pk: "QUEUED", other.pk: "RUNNING"}
    assert set(BackgroundJobLease.objects.exclude(held_by_worker_id="").values_list("pk", flat=True)) == {"another's"}
    assert (scene.found, scene.maintenance.errors) == (1, 0)
    scene.maintenance.turn()
    assert scene.found == 1, "no more work, so no notification"


@pytest.mark.django_db(transaction=True)
def test_a_process_shows_one_row_that_is_kept_up_to_date_and_goes_with_it() -> None:
    identity = Identity()
    other = WorkerFactory()
    counts: dict[str, Any] = {"slots": 4, "running": 3, "stuck": 0}
    show(identity, conf.current(), Worker.State.RUNNING, **counts)
    assert set(Worker.objects.values_list("pk", flat=True)) == {identity.uuid, other.pk}
    show(identity, conf.current(), Worker.State.DRAINING, **{**counts, "stuck": 1})
    row = Worker.objects.get(pk=identity.uuid)
    assert (row.state, row.slots, row.running, row.stuck, row.pid) == ("DRAINING", 4, 3, 1, identity.pid)
    remove_row(identity, failed=False, reason="it was asked to stop")
    assert set(Worker.objects.values_list("pk", flat=True)) == {other.pk}
    [left] = LeftWorker.objects.all()
    assert (left.worker, left.how, left.reason, left.pid) == (identity.uuid, "stopped", "it was asked to stop", identity.pid)
