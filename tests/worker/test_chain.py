"""The finisher takes over the next job of a target, within bounds, against the real database."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import OperationalError, connection

from jobqueue.core.targets import Target
from jobqueue.db import Claimed, Lease
from jobqueue.lifecycle.outcome import Kind, Outcome
from jobqueue.lifecycle.queues import limit_queue, pause_queue
from jobqueue.models import Job
from jobqueue.worker.claim_policy import READ_SECONDS, ClaimPolicy
from jobqueue.worker.reporting.finisher import CHAIN_SECONDS, MAX_CHAIN, Finisher, HandOvers
from jobqueue.worker.running.lanes import Lanes
from jobqueue.worker.running.pool import Pool
from jobqueue.worker.running.run import Run, Runs, SlotUse
from tests.factories import JobFactory
from tests.worker.parts import PATIENCE_SECONDS, run_of

pytestmark = pytest.mark.django_db


class Scene:
    """A finisher that no thread runs, with the shared lane of a process, and what it took over."""

    def __init__(self, *queues: str, max_running: int | None = None) -> None:
        self.runs = Runs()
        self.lanes = Lanes(lambda: Pool(lambda *_: None))
        self.lanes.shared.pool.resize(1)
        self.policy = ClaimPolicy(queues, max_running, self.lanes.set_slots)
        self.policy.refresh()
        self.followed: list[tuple[Claimed, Run]] = []
        self.tracks_lost = 0
        hand_overs = HandOvers(self.policy, lambda job, before: self.followed.append((job, before)), self._lose_track, lambda tenant: None)
        self.finisher = Finisher(self.runs, "worker-1", 30.0, lambda retrying: None, lambda *_: None, hand_overs=hand_overs)

    def _lose_track(self) -> None:
        self.tracks_lost += 1

    def end(self, kind: Kind = Kind.SUCCESS, queue: str = "default", **run: object) -> str:
        """End the run of a holder; return the status of the job behind it."""
        job = JobFactory(running=True, target="customer:7")
        behind = JobFactory(target="customer:7", waiting_for_target=True, queue=queue)
        ending = run_of(lambda: None, number=job.pk, lease_token=1, target="customer:7")
        ending.lane = self.lanes.shared
        for name, value in run.items():
            setattr(ending, name, value)
        self.runs.add([ending])
        now = time.monotonic()
        self.finisher.put(ending, Outcome(Lease(job.pk, 1), kind, now, now, target=Target("", "customer:7")))
        self.finisher._attempt(self.finisher.turn)
        return str(Job.objects.values_list("status", flat=True).get(pk=behind.pk))

    def close(self) -> None:
        self.lanes.close()
        assert self.lanes.join(time.monotonic() + PATIENCE_SECONDS)


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.close()


def test_the_next_job_of_the_target_is_taken_over_and_begun(scene: Scene) -> None:
    assert scene.end() == "RUNNING"
    [(job, before)] = scene.followed
    assert (job.target, job.lease_token, before.lease.job_id) == ("customer:7", 1, Job.objects.get(status="SUCCESS").pk)
    assert Job.objects.get(pk=job.id).lease_owner == "worker-1"
    assert len(scene.runs) == 0


@pytest.mark.parametrize(("chained", "ago", "expected"), [(MAX_CHAIN - 1, 0.0, "RUNNING"), (MAX_CHAIN, 0.0, "QUEUED"), (1, 1.0, "QUEUED")])
def test_hand_overs_are_limited_in_number_and_in_time(scene: Scene, chained: int, ago: float, expected: str) -> None:
    since = time.monotonic() - ago * CHAIN_SECONDS
    assert scene.end(slot_use=SlotUse(chained, since)) == expected
    assert len(scene.followed) == (expected == "RUNNING")


def test_the_second_counts_from_the_claim_of_the_first_however_long_that_one_runs(scene: Scene) -> None:
    assert scene.end(claimed_at=time.monotonic() - CHAIN_SECONDS) == "QUEUED"
    assert scene.followed == []


def test_a_process_that_drains_takes_nothing_over(scene: Scene) -> None:
    scene.finisher.unchain()
    assert (scene.end(), scene.followed) == ("QUEUED", [])


def test_a_pause_without_a_notification_counts_for_hand_overs_after_a_second(scene: Scene) -> None:
    pause_queue("default")
    assert scene.policy._queues_read_at is not None
    scene.policy._queues_read_at -= READ_SECONDS
    assert (scene.end(), scene.followed) == ("QUEUED", [])


@pytest.mark.django_db(transaction=True)
def test_an_outcome_is_kept_where_the_pauses_cannot_be_read(scene: Scene) -> None:
    def fail(execute: Any, sql: str, *more: Any) -> Any:
        if "jobqueue_queue" in sql:
            raise OperationalError("the server is away")
        return execute(sql, *more)

    scene.policy.invalidate()
    with connection.execute_wrapper(fail):
        assert (scene.end(), scene.finisher.unwritten) == ("PENDING", 1)
    scene.finisher._attempt(scene.finisher.turn)
    assert (len(scene.followed), scene.finisher.unwritten) == (1, 0)


@pytest.mark.parametrize("decide", [pause_queue, lambda name: limit_queue(name, 5)], ids=["paused", "limited"])
def test_nothing_is_taken_over_in_a_queue_that_is_paused_or_limited(scene: Scene, decide: object) -> None:
    assert callable(decide)
    decide("default")
    scene.policy.invalidate()
    scene.policy.refresh()
    assert (scene.end(), scene.followed) == ("QUEUED", [])


def test_nothing_is_taken_over_under_a_limit_of_all_jobs() -> None:
    scene = Scene(max_running=5)
    assert (scene.end(), scene.followed) == ("QUEUED", [])
    scene.close()


def test_a_tenant_that_has_lost_its_lane_takes_nothing_over(scene: Scene) -> None:
    scene.lanes.set_slots({"acme": 1})
    lane = scene.lanes.of("acme")
    scene.lanes.set_slots({})
    assert (scene.end(lane=lane), scene.followed) == ("QUEUED", [])


@pytest.mark.django_db(transaction=True)
def test_if_the_answer_to_a_commit_is_lost_the_dispatcher_is_asked_to_poll(scene: Scene) -> None:
    def lose(execute: object, sql: str, params: object, many: bool, context: object) -> object:
        if "holds_target = (target <> '')" in sql:
            raise OperationalError("the connection is gone")
        return execute(sql, params, many, context)  # type: ignore[operator]

    with connection.execute_wrapper(lose):
        assert scene.end() == "PENDING"
    assert (scene.tracks_lost, scene.followed, scene.finisher.unwritten) == (1, [], 1)
    scene.finisher.failures = 1
    scene.finisher._attempt(scene.finisher.turn)
    assert len(scene.followed) == 1


def test_the_next_job_of_a_target_is_handed_over_only_if_the_patterns_serve_its_queue() -> None:
    made = Scene("mail-*", "!mail-bulk")
    try:
        assert [made.end(queue=queue) for queue in ("sms", "mail-bulk")] == ["QUEUED", "QUEUED"]
        assert made.followed == []
        Job.objects.all().delete()
        assert made.end(queue="mail-new") == "RUNNING"
        assert len(made.followed) == 1
    finally:
        made.close()
