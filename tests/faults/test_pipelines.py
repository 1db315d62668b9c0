"""Pipelines in real workers, which are killed at any instant."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from jobqueue import cancel, enqueue_many, pause
from jobqueue.core.phases import overall
from jobqueue.models import Job, JobPhase
from tests.faults import pipelines
from tests.faults.harness import READY, Workers, job_id, row, wait_for, wait_until, wait_until_started
from tests.faults.together import at_once

pytestmark = [pytest.mark.faults, pytest.mark.django_db]
HERE: dict[str, Any] = {"TASK_MODULES": ["tests.faults.pipelines"]}
N = pipelines.NUMBER
KILLS = 12


def phases_of(job: Any) -> list[tuple[str, str, int]]:
    return list(JobPhase.objects.filter(job=job_id(job)).order_by("position").values_list("name", "status", "progress"))


def done_by(workers: Workers) -> dict[int, list[str]]:
    """Return what each job has done by now, in order."""
    found: dict[int, list[str]] = {}
    for event in workers.witness.events:
        found.setdefault(event.job, []).append(event.what)
    return found


def bound(done: list[str]) -> int:
    """Return how far a job may say to be that has done this."""
    reached = [0]
    for what in done:
        kind, index = what.split()
        reached.append(overall(int(index), 50 if kind == "half" else 100, N))
    return max(reached)


def look(workers: Workers) -> int:
    """Compare what the jobs say with what they had done a moment later; return how many are not over."""
    said = dict(workers.jobs.values_list("pk", "progress"))
    unfinished = workers.jobs.exclude(status="SUCCESS").count()
    done = done_by(workers)
    for job, progress in said.items():
        assert progress <= bound(done.get(job, [])), f"job {job} says {progress} % and has done {done.get(job)}"
    return unfinished


@pytest.mark.slow(seconds=25)
@at_once
def test_workers_that_are_killed_at_any_instant_repeat_no_phase_that_has_finished(workers: Workers) -> None:
    number, seed = 120, random.randrange(10**6)
    chance = random.Random(seed)
    enqueue_many(pipelines.ten_steps.using(queue_name=workers.queue), [((0.02,), {})] * number)
    settings = {**HERE, "MAX_CRASHES": 1000, "MIN_WORKERS": 4, "MAX_WORKERS": 4, "LEASE_SECONDS": 1.5, "HEARTBEAT_SECONDS": 0.5}
    alive = [workers.start(**settings) for _ in range(2)]
    kills, until = 0, time.monotonic() + 150
    while (left := look(workers)) and time.monotonic() < until:
        time.sleep(chance.uniform(0.05, 0.7))
        victim = chance.choice(alive)
        if left > 10 and kills < KILLS and READY in victim.text:  # one that only starts has nothing to lose
            victim.kill()
            kills += 1
            alive[alive.index(victim)] = workers.start(**settings)
    over = workers.jobs.exclude(status="SUCCESS").values_list("pk", "status", "waiting_for", "crashes", "run_at", "phase", "message")
    assert not left, f"not over: {list(over)}; seed {seed}"
    assert kills >= 4, "else the test proves nothing"
    done = done_by(workers)
    repeated = 0
    for job in workers.jobs:
        steps = [int(what.split()[1]) for what in done[job.pk] if what.startswith("did")]
        assert steps == sorted(steps), f"job {job.pk} went back to a phase that had finished: {steps}; seed {seed}"
        assert set(steps) == set(range(N))
        repeated += len(steps) - N
        assert job.result == {f"step {index}": list(range(index + 1)) for index in range(N)}
        assert (job.progress, job.failures) == (100, 0)
        assert phases_of(job) == [(f"step {index}", "SUCCESS", 100) for index in range(N)]
    assert Job.objects.filter(queue=workers.queue, crashes__gt=0).exists()
    for worker in alive:
        assert worker.stop() == 0


@at_once
def test_cancels_and_pauses_that_race_with_phases_leave_consistent_rows(workers: Workers) -> None:
    jobs = [workers.enqueue(pipelines.ten_steps, 0.004) for _ in range(120)]
    worker = workers.start(**HERE, MIN_WORKERS=4, MAX_WORKERS=4).ready()
    chance = random.Random(5)
    for job in chance.sample(jobs, len(jobs)):
        (cancel if chance.random() < 0.7 else pause)(job_id(job))
        time.sleep(chance.uniform(0, 0.03))
    long = workers.enqueue(pipelines.ten_steps, 0.5)  # one for certain is canceled in the middle, also where workers only poll
    wait_until(lambda: row(long).progress >= 10, "the long one is in the middle", 60)
    cancel(job_id(long))
    wait_until(lambda: not workers.jobs.filter(status__in=["QUEUED", "PENDING", "RUNNING"]).exists(), "all are settled", 30)
    seen = set()
    for job in workers.jobs:
        statuses = [one[1] for one in phases_of(job)]
        finished = statuses.count("SUCCESS")
        seen.add((job.status, 0 < finished < N))
        rest = {"SUCCESS": "SUCCESS", "CANCELED": "CANCELED", "PAUSED": "PENDING"}[job.status]
        assert statuses == ["SUCCESS"] * finished + [rest] * (N - finished), job.status
    assert {status for status, _ in seen} >= {"CANCELED", "PAUSED"}
    assert ("CANCELED", True) in seen, "else no cancel came in the middle"
    assert worker.stop() == 0


@at_once
@pytest.mark.postgresql
def test_reports_and_checkpoints_are_stored_while_the_phases_own_transaction_is_open(workers: Workers) -> None:
    job = workers.enqueue(pipelines.transaction_in_a_phase)
    worker = workers.start(**HERE).ready()
    wait_until_started(workers.witness, job)
    [phase] = JobPhase.objects.filter(job=job_id(job))
    assert phase.checkpoint == {"row": 7}
    wait_until(lambda: phases_of(job) == [("inside", "RUNNING", 40)], "the progress is there", 3)
    # The phase's row and the job's are written one after the other.
    shown = (40, "inside of a transaction", "inside")
    wait_until(lambda: (row(job).progress, row(job).message, row(job).phase) == shown, "the row of the job has the same", 3)
    cancel(job_id(job))
    wait_for(job, "CANCELED")
    assert phases_of(job) == [("inside", "CANCELED", 40)]
    assert worker.stop() == 0


@at_once
def test_a_sleep_outlives_the_worker(workers: Workers) -> None:
    job = workers.enqueue(pipelines.nap, 3.0, target=f"nap:{workers.queue}")
    first = workers.start(**HERE).ready()
    wait_for(job, "PENDING")
    began = time.monotonic()
    assert row(job).holds_target
    first.kill()
    second = workers.start(**HERE).ready()
    done = wait_for(job, "SUCCESS")
    assert 1.5 < time.monotonic() - began < 8
    assert (done.attempt, done.crashes, done.result) == (1, 0, "rested")
    assert workers.witness.count("start", job_id(job)) == 1
    assert second.stop() == 0


@at_once
def test_phases_may_be_coroutines(workers: Workers) -> None:
    jobs = [workers.enqueue(pipelines.coroutine) for _ in range(20)]
    worker = workers.start(**HERE).ready()
    for job in jobs:
        assert wait_for(job, "SUCCESS").result == 42
    assert worker.stop() == 0


@at_once
def test_a_parent_continues_soon_after_its_last_child_has_ended(workers: Workers) -> None:
    job = workers.enqueue(pipelines.family, 50)
    worker = workers.start("--once", **HERE)
    assert worker.wait(30) == 0, "with --once it waits for those who wait for what it runs"
    done = row(job)
    assert (done.status, done.result) == ("SUCCESS", 50)
    assert delay_of(done) < 1


def delay_of(parent: Job) -> float:
    """Return how long after the end of its last child a parent was resumed."""
    last = Job.objects.filter(parents__parent=parent).order_by("-finished_at").values_list("finished_at", flat=True).first()
    return float((parent.enqueued_at - last).total_seconds())


@pytest.mark.slow(seconds=36)
@at_once
def test_a_parent_of_ten_thousand_children_continues_within_a_second(workers: Workers) -> None:
    job = workers.enqueue(pipelines.family, 10_000)
    worker = workers.start(**HERE, MIN_WORKERS=4, MAX_WORKERS=4)
    done = wait_for(job, "SUCCESS", seconds=60)
    assert done.result == 10_000
    assert delay_of(done) < 1
    assert worker.stop() == 0


@at_once
def test_ten_thousand_steps_are_reported_in_half_a_second_and_the_last_is_always_stored(workers: Workers) -> None:
    well, badly = workers.enqueue(pipelines.flood_task, "return"), workers.enqueue(pipelines.flood_task, "fail")
    stopped, phased = workers.enqueue(pipelines.flood_task, "wait"), workers.enqueue(pipelines.flood_in_a_phase)
    worker = workers.start(**HERE, MIN_WORKERS=1, MAX_WORKERS=1).ready()
    assert wait_for(well, "SUCCESS").result < 0.5
    assert row(well).message == "row 9999"
    assert wait_for(badly, "ERROR").progress == 100
    wait_until_started(workers.witness, stopped)
    pause(job_id(stopped))
    assert wait_for(stopped, "PAUSED").progress == 100
    assert wait_for(phased, "SUCCESS").result < 0.5
    assert worker.stop() == 0


@at_once
def test_a_worker_that_is_asked_to_end_hands_a_pipeline_back_in_its_phase(workers: Workers) -> None:
    job = workers.enqueue(pipelines.long)
    first = workers.start(**HERE).ready()
    wait_until_started(workers.witness, job)
    first.hurry()
    assert first.wait() == 0
    assert (row(job).status, row(job).attempt, row(job).phase, row(job).progress) == ("QUEUED", 0, "linger", 65)
    assert phases_of(job) == [("prepare", "SUCCESS", 100), ("linger", "PENDING", 30)]
    second = workers.start(**HERE)
    done = wait_for(job, "SUCCESS", seconds=30)
    assert (done.result, done.attempt, workers.witness.count("prepare", job_id(job))) == (True, 1, 1)
    assert list(JobPhase.objects.filter(job=done).order_by("position").values_list("attempts", flat=True)) == [1, 2]
    assert second.stop() == 0


@at_once
def test_a_coroutine_is_canceled_in_its_phase(workers: Workers) -> None:
    job = workers.enqueue(pipelines.along)
    worker = workers.start(**HERE).ready()
    wait_until_started(workers.witness, job)
    cancel(job_id(job))
    wait_for(job, "CANCELED")
    assert [one[1] for one in phases_of(job)] == ["SUCCESS", "CANCELED"]
    assert worker.stop() == 0
