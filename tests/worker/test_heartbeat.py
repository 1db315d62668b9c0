"""The heartbeat against the real database, one turn after the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from jobqueue import clock
from jobqueue.models import Job
from jobqueue.worker.reporting.heartbeat import LOCKED_SECONDS, Heartbeat
from jobqueue.worker.running.interrupter import Interrupter
from jobqueue.worker.running.run import Reason, Run, Runs
from tests.factories import JobFactory
from tests.rivals import Rival
from tests.worker.parts import run_of

PAUSE_SECONDS = 2.0


class Scene:
    """A heartbeat and an interrupter that no threads run."""

    def __init__(self) -> None:
        self.runs = Runs()
        self.interrupter = Interrupter(lambda run, outcome: None, lambda run: None, lambda *_: None)
        self.heartbeat = Heartbeat(self.runs, self.interrupter, 30.0, PAUSE_SECONDS, lambda *_: None)

    def run(self, age: float = 10.0, **columns: Any) -> Run:
        """Register the run of a job that was claimed this long ago."""
        job = JobFactory(**{"running": True, "lease_expires_at": clock.now() + timedelta(seconds=1), **columns})
        run = run_of(lambda: None, number=job.pk, lease_token=job.lease_token)
        run.claimed_at = time.monotonic() - age
        self.runs.add([run])
        return run


@pytest.fixture
def scene() -> Scene:
    return Scene()


def left(run: Run) -> float:
    """Return how long the lease of a run lasts."""
    return float((Job.objects.get(pk=run.job.id).lease_expires_at - clock.now()).total_seconds())


@pytest.mark.django_db
def test_every_lease_of_the_process_is_renewed(scene: Scene) -> None:
    runs = [scene.run() for _ in range(3)]
    other = JobFactory(running=True, lease_owner="worker-2", lease_expires_at=clock.now())
    assert PAUSE_SECONDS - 0.5 < (scene.heartbeat.turn() or 0) <= PAUSE_SECONDS
    assert all(28 < left(run) <= 30 for run in runs)
    assert Job.objects.get(pk=other.pk).lease_expires_at == other.lease_expires_at


@pytest.mark.django_db
def test_a_run_that_has_just_started_costs_no_renewal_but_is_checked_after_a_request(
    scene: Scene, django_assert_num_queries: Callable[[int], Any]
) -> None:
    run = scene.run(age=0)
    with django_assert_num_queries(0):
        scene.heartbeat.turn()
    Job.objects.filter(pk=run.job.id).update(cancel_requested=True, cancel_outcome="CANCELED")
    scene.heartbeat.read_flags()
    scene.heartbeat.turn()
    assert (run.reason, left(run) > 28) == (Reason.USER, True)
    scene.heartbeat.turn()
    assert scene.heartbeat._reads_all_flags is False


@pytest.mark.django_db
def test_a_request_is_passed_on_and_one_that_was_withdrawn_too(scene: Scene) -> None:
    asked, other = scene.run(cancel_requested=True, cancel_outcome="PAUSED"), scene.run()
    scene.heartbeat.turn()
    assert (asked.reason, other.reason) == (Reason.USER, None)
    assert scene.interrupter._runs == {asked}
    Job.objects.filter(pk=asked.job.id).update(cancel_requested=False, cancel_outcome="")
    scene.heartbeat.turn()
    assert asked.reason is None


@pytest.mark.django_db
@pytest.mark.parametrize("change", [{"lease_token": 2, "lease_owner": "worker-2"}, "delete"])
def test_a_run_whose_lease_is_lost_is_asked_to_stop(scene: Scene, change: Any) -> None:
    lost, kept = scene.run(), scene.run()
    row = Job.objects.filter(pk=lost.job.id)
    row.erase() if change == "delete" else row.update(**change)
    scene.heartbeat.turn()
    assert (lost.reason, kept.reason) == (Reason.LOST, None)


@pytest.mark.django_db
def test_a_run_that_has_ended_is_not_interrupted(scene: Scene) -> None:
    ended = scene.run()
    Job.objects.filter(pk=ended.job.id).update(lease_token=2)
    ended.ended = time.monotonic()
    scene.heartbeat.turn()
    assert ended.reason is None


@pytest.mark.postgresql
def test_a_locked_row_is_checked_again_is_not_lost_and_is_renewed_soon(scene: Scene, rival: Rival) -> None:
    locked, free = scene.run(), scene.run()
    with rival.locking(Job.objects.get(pk=locked.job.id)):
        assert (scene.heartbeat.turn() or 0) <= LOCKED_SECONDS
        assert (locked.reason, left(locked) < 2, left(free) > 28) == (None, True, True)
    assert (scene.heartbeat.turn() or 0) > LOCKED_SECONDS
    assert left(locked) > 28


@pytest.mark.postgresql
def test_a_lost_row_that_is_locked_is_lost(scene: Scene, rival: Rival) -> None:
    lost = scene.run()
    Job.objects.filter(pk=lost.job.id).update(lease_token=2)
    with rival.locking(Job.objects.get(pk=lost.job.id)):
        scene.heartbeat.turn()
    assert lost.reason is Reason.LOST


@pytest.mark.django_db
def test_a_lease_that_ran_out_and_that_no_worker_took_is_revived(scene: Scene) -> None:
    run = scene.run(expired=True)
    scene.heartbeat.renew_all()
    assert (left(run) > 28, run.reason) == (True, None)


@pytest.mark.django_db
def test_a_heartbeat_that_is_later_than_a_lease_says_so(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.run()
    scene.heartbeat._beaten_at -= 31
    scene.heartbeat.turn()
    scene.heartbeat.turn()
    [message] = [message for message in caplog.messages if "s late; leases may be lost" in message]
    assert message.startswith("The heartbeat was 3")
    assert message.endswith(" s late; leases may be lost (a stopped process, or code that keeps the GIL).")


@pytest.mark.django_db
def test_more_than_a_batch_is_renewed_in_one_turn(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobqueue.worker.reporting.heartbeat.BATCH", 2)
    runs = [scene.run() for _ in range(5)]
    scene.heartbeat.turn()
    assert all(left(run) > 28 for run in runs)


@pytest.mark.django_db
def test_a_lost_lease_is_logged_once(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    run = scene.run()
    Job.objects.filter(pk=run.job.id).update(lease_token=run.lease.token + 1)
    for _ in range(3):
        scene.heartbeat.turn()
    assert run.reason is Reason.LOST
    assert caplog.text.count("the lease was lost") == 1


@pytest.mark.django_db
def test_the_lease_of_a_run_whose_end_is_not_written_for_three_leases_is_not_renewed(scene: Scene) -> None:
    old, new = scene.run(), scene.run()
    old.ended, new.ended = time.monotonic() - 91, time.monotonic() - 89
    for renew in (scene.heartbeat.turn, scene.heartbeat.renew_all):
        renew()
        assert left(old) < 2
        assert left(new) > 28
