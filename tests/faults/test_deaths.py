"""Workers that are killed, that kill themselves, or that are stopped for too long."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from jobqueue import cancel, pause
from jobqueue.models import Worker
from jobqueue.worker.running.probation import PUT_OFF
from tests.faults import tasks
from tests.faults.harness import LEASE_SECONDS, Workers, job_id, row, state, wait_for, wait_until, wait_until_started
from tests.faults.together import at_once

pytestmark = [pytest.mark.faults, pytest.mark.django_db]


@at_once
def test_jobs_of_a_killed_worker_run_again_within_its_lease_and_one_sweep(workers: Workers) -> None:
    jobs = [workers.enqueue(tasks.wait, 60) for _ in range(2)]
    held = workers.enqueue(tasks.held_wait, 60)
    asked = workers.enqueue(tasks.wait, 60)
    first = workers.start(MIN_WORKERS=4, MAX_WORKERS=4).ready()
    wait_until_started(workers.witness, *jobs, held, asked)
    second = workers.start(MIN_WORKERS=4, MAX_WORKERS=4).ready()
    wait_until(lambda: workers.shown == 2, "both workers show themselves")
    first.kill()
    killed = time.monotonic()
    pause(job_id(asked))
    wait_until(lambda: all(workers.witness.count("start", job_id(job)) == 2 for job in jobs), "the jobs run again", LEASE_SECONDS + 2)
    assert time.monotonic() - killed < LEASE_SECONDS + 2
    again = [row(job) for job in jobs]
    assert [(job.status, job.attempt, job.crashes, job.failures) for job in again] == [("RUNNING", 2, 1, 0)] * 2
    assert wait_for(held, "ERROR").message == "worker lost; held until an operator resumes it"
    assert wait_for(asked, "PAUSED").message == "Job was interrupted by user"
    second.hurry()
    assert second.wait() == 0


@at_once
@pytest.mark.sqlite
def test_a_new_worker_recovers_the_jobs_of_its_dead_predecessor_at_once(workers: Workers) -> None:
    job, held = workers.enqueue(tasks.wait, 60), workers.enqueue(tasks.held_wait, 60)
    first = workers.start(LEASE_SECONDS=300).ready()
    wait_until_started(workers.witness, job, held)
    first.kill()
    began = time.monotonic()
    second = workers.start(LEASE_SECONDS=300, SHUTDOWN_GRACE_PERIOD_SECONDS=0)
    wait_until(lambda: workers.witness.count("start", job_id(job)) == 2, "the job runs again", 10)
    assert time.monotonic() - began < 10, "the lease of 300 s was not awaited"
    assert (row(job).crashes, state(held)) == (1, "ERROR")
    assert second.stop() == 0
    assert row(job).status == "QUEUED"


@at_once
def test_two_workers_with_the_same_host_name_and_pid_are_two_workers(workers: Workers) -> None:
    twins = [workers.start(environment={"FAULTS_TWIN": "1"}).ready() for _ in range(2)]
    wait_until(lambda: Worker.objects.filter(host="twin", pid=7).count() == 2, "both show themselves under one name")
    jobs = [workers.enqueue(tasks.work, 0.1) for _ in range(30)]
    survivor = workers.enqueue(tasks.wait, 60)
    wait_until_started(workers.witness, *jobs, survivor)
    owner = next(event.pid for event in workers.witness.events if event.job == job_id(survivor) and event.what == "start")
    assert owner == 7
    for job in jobs:
        wait_for(job, "SUCCESS")
    assert set(workers.witness.starts().values()) == {1}
    for twin in twins:
        twin.kill()
    workers.start(environment={"FAULTS_TWIN": "1"}).ready()
    wait_until(lambda: workers.witness.count("start", job_id(survivor)) == 2, "the twin recovers the job", LEASE_SECONDS + 3)


RESTARTED: dict[str, Any] = {"MIN_WORKERS": 8, "MAX_WORKERS": 8, "LEASE_SECONDS": 2, "HEARTBEAT_SECONDS": 0.5}
INNOCENT_SECONDS = 3.0


def restart_until_all_is_settled(workers: Workers, seconds: float, died: Callable[[int], object] = lambda deaths: None) -> int:
    """Keep a worker running as a service manager does, until every job is settled; return how often it died."""
    deaths = 0
    worker = workers.start(**RESTARTED)

    def all_is_settled() -> bool:
        nonlocal worker, deaths
        if not worker.alive:
            assert worker.process.returncode == 9
            deaths += 1
            died(deaths)
            worker = workers.start(**RESTARTED)
        return not workers.jobs.exclude(status__in=["SUCCESS", "ERROR", "CANCELED"]).exists()

    wait_until(all_is_settled, "every job is settled", seconds)
    assert worker.ready().stop() == 0
    return deaths


def assert_poison(job: Any) -> None:
    found = row(job)
    assert (found.status, found.message, found.crashes, found.failures) == ("ERROR", "worker lost 3 times", 3, 0)
    assert [entry["outcome"] for entry in found.history] == ["LOST"] * 3
    assert (found.attempt, len(found.worker_ids)) == (3, 3)


def assert_innocent(workers: Workers, jobs: Sequence[Any], most: int) -> None:
    """Check that all of these succeeded, with at most this number of crashes, and that each lost run is counted."""
    starts = workers.witness.starts()
    for found in map(row, jobs):
        assert (found.status, found.failures) == ("SUCCESS", 0), found.message
        assert starts[found.pk] - 1 <= found.crashes <= most
        assert (found.attempt, len(found.worker_ids)) == (found.crashes + 1, found.crashes + 1)


@at_once
def test_a_job_that_kills_its_worker_ends_as_an_error_and_the_innocent_succeed(workers: Workers) -> None:
    poison = workers.enqueue(tasks.die, 0)
    innocent = [workers.enqueue(tasks.work, INNOCENT_SECONDS) for _ in range(8)]
    assert restart_until_all_is_settled(workers, 60) == 3
    assert_poison(poison)
    assert_innocent(workers, innocent, most=1)


@at_once
def test_a_cancel_between_two_deaths_wins(workers: Workers) -> None:
    poison = workers.enqueue(tasks.die, 0)
    innocent = [workers.enqueue(tasks.work, 0.3) for _ in range(4)]
    answers: list[str] = []

    def died(deaths: int) -> None:
        if deaths == 2:
            answers.append(cancel(job_id(poison)).status)

    assert restart_until_all_is_settled(workers, 40, died) == 2
    # RUNNING until the lease of the dead worker ends; on a busy machine, it may have ended, and the job is QUEUED.
    messages = {"RUNNING": "Job was interrupted by user", "CANCELED": "Job was canceled by user"}
    assert (state(poison), row(poison).message) == ("CANCELED", messages[answers[0]])
    assert_innocent(workers, innocent, most=2)


@at_once
@pytest.mark.slow(seconds=50)
def test_two_jobs_that_kill_their_worker_take_no_innocent_with_them_to_error(workers: Workers) -> None:
    innocent = [workers.enqueue(tasks.work, INNOCENT_SECONDS) for _ in range(3)]
    poisons = [workers.enqueue(tasks.die, 0) for _ in range(2)]
    innocent += [workers.enqueue(tasks.work, INNOCENT_SECONDS) for _ in range(5)]
    assert 4 <= restart_until_all_is_settled(workers, 120) <= 6, "at their last chance they die apart"
    for poison in poisons:
        assert_poison(poison)
    assert_innocent(workers, innocent, most=2)


@at_once
def test_jobs_on_their_last_chance_run_one_at_a_time_and_delay_no_other(workers: Workers) -> None:
    first, second, third = (workers.enqueue(tasks.wait, 60 * (number == 0)) for number in range(3))
    workers.jobs.update(crashes=2)
    worker = workers.start(MIN_WORKERS=2, MAX_WORKERS=2).ready()
    wait_until_started(workers.witness, first)
    for job in (second, third):
        put_off = wait_for(job, "PENDING", seconds=5)
        assert (put_off.attempt, put_off.crashes, put_off.message) == (0, 2, PUT_OFF)
    for _ in range(10):
        wait_for(workers.enqueue(tasks.work, 0), "SUCCESS", seconds=2)
    assert row(first).started_at is not None
    cancel(job_id(first))
    for job in (second, third):
        assert wait_for(job, "SUCCESS", seconds=12).attempt == 1
    assert worker.stop() == 0


@at_once
def test_a_worker_that_slept_through_its_lease_changes_nothing_when_it_wakes(workers: Workers) -> None:
    job = workers.enqueue(tasks.spin, 11)
    sleeper = workers.start().ready()
    wait_until_started(workers.witness, job)
    other = workers.start().ready()
    sleeper.send(signal.SIGSTOP)
    wait_until(lambda: workers.witness.count("start", job_id(job)) == 2, "the other worker takes the job over", LEASE_SECONDS + 3)
    taken = row(job)
    sleeper.send(signal.SIGCONT)
    wait_until(
        lambda: f"Job {job.job_id}: the lease was lost; the run is asked to stop" in sleeper.text,
        "the stopped worker notices that it lost its lease",
    )
    wait_until(lambda: workers.witness.count("end", job_id(job)) == 1, "the sleeper's run is stopped", 3)
    now = row(job)
    assert (now.status, now.lease_owner, now.lease_token, now.attempt) == ("RUNNING", taken.lease_owner, taken.lease_token, 2)
    done = wait_for(job, "SUCCESS")
    assert (done.attempt, done.crashes, len(done.worker_ids)) == (2, 1, 2)
    barrier = [workers.enqueue(tasks.meet, 4) for _ in range(4)]
    for one in barrier:
        wait_for(one, "SUCCESS")
    assert (sleeper.stop(), other.stop()) == (0, 0)


@pytest.mark.parametrize("how", ["stopped", "gil"])
def test_a_lone_worker_that_was_stopped_keeps_its_jobs(workers: Workers, how: str) -> None:
    """No worker took its jobs meanwhile, so its own sweep must not recover them before the heartbeat has renewed them."""
    jobs = [workers.enqueue(tasks.wait, 6) for _ in range(3)]
    worker = workers.start(MIN_WORKERS=4, MAX_WORKERS=4, LEASE_SECONDS=1.5, HEARTBEAT_SECONDS=0.5).ready()
    wait_until_started(workers.witness, *jobs)
    if how == "stopped":
        worker.send(signal.SIGSTOP)
        wait_until(lambda: workers.jobs.expired().count() == 3, "the leases run out")
        worker.send(signal.SIGCONT)
    else:
        keeper = workers.enqueue(tasks.keep_the_gil, 3)
        wait_until(lambda: workers.jobs.expired().count() >= 3, "the leases run out")
        wait_for(keeper, "SUCCESS")
    wait_until(lambda: "s late; leases may be lost" in worker.text, "the worker says that it was late")
    for job in jobs:
        done = wait_for(job, "SUCCESS")
        assert (done.attempt, done.crashes) == (1, 0)
    assert set(workers.witness.starts().values()) == {1}
    assert worker.stop() == 0
