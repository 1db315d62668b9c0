"""Several workers on one database, and another client that keeps locks."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from jobqueue import cancel, enqueue_job, enqueue_many, pause
from tests.faults import tasks
from tests.faults.harness import LEASE_SECONDS, Workers, job_id, row, state, wait_for, wait_until, wait_until_started
from tests.faults.together import at_once
from tests.rivals import Rival

pytestmark = [pytest.mark.faults, pytest.mark.django_db]


@at_once
def test_no_job_is_run_twice_by_four_workers(workers: Workers) -> None:
    number = 600
    enqueue_many(tasks.work.using(queue_name=workers.queue), [((0,), {}) for _ in range(number)])
    later = workers.enqueue(tasks.work, 0, run_after=timedelta(seconds=2))
    started = [workers.start(MIN_WORKERS=4, MAX_WORKERS=4) for _ in range(4)]
    wait_until(lambda: workers.jobs.filter(status="SUCCESS").count() == number + 1, "every job has succeeded", 60)
    starts = workers.witness.starts()
    assert len(starts) == number + 1
    assert set(starts.values()) == {1}
    assert row(later).attempt == 1
    assert [worker.stop() for worker in started] == [0] * 4


@at_once
def test_a_race_of_requests_and_ends_has_one_winner_that_the_row_shows(workers: Workers) -> None:
    jobs = [workers.enqueue(tasks.work, number % 20 / 1000) if number % 2 else workers.enqueue(tasks.fail_once) for number in range(80)]
    worker = workers.start(MIN_WORKERS=4, MAX_WORKERS=4)
    wait_until(lambda: workers.witness.events, "the first has begun", 30)
    answers = {job_id(job): (cancel if index % 3 else pause)(job_id(job)) for index, job in enumerate(jobs)}
    wait_until(lambda: not workers.jobs.filter(status__in=["QUEUED", "PENDING", "RUNNING"]).exists(), "all are settled", 30)
    at_once = {job for job, answer in answers.items() if answer.status in ("CANCELED", "PAUSED")}
    runs_before = workers.witness.starts()
    for job in workers.jobs.all():
        answer = answers[job.pk]
        if job.pk in at_once:
            assert job.status == answer.status
        if job.status in ("CANCELED", "PAUSED"):
            assert job.result is None
        assert not job.cancel_requested
        assert runs_before[job.pk] <= job.attempt
    assert worker.stop() == 0
    assert workers.witness.starts() == runs_before


@pytest.mark.postgresql
def test_a_row_that_is_locked_delays_no_other_job(workers: Workers, rival: Rival) -> None:
    others = [workers.enqueue(tasks.wait, LEASE_SECONDS + 4) for _ in range(2)]
    locked = workers.enqueue(tasks.work, 1)
    running = workers.enqueue(tasks.work, LEASE_SECONDS + 6)
    worker = workers.start(MIN_WORKERS=6, MAX_WORKERS=6).ready()
    wait_until_started(workers.witness, *others, locked, running)
    began = time.monotonic()
    with rival.locking(row(locked), row(running)):
        wait_until(lambda: workers.witness.count("end", job_id(locked)) == 1, "the locked job's task has ended")
        while time.monotonic() - began < LEASE_SECONDS + 2:
            quick = workers.enqueue(tasks.work, 0)
            wait_for(quick, "SUCCESS", seconds=2)
        assert [state(job) for job in (locked, running)] == ["RUNNING", "RUNNING"]
    # Their leases have run out. In the moment after the release of the locks, a sweep may come before the next try to
    # end or renew them. It recovers them, and they run again.
    attempts = {wait_for(job, "SUCCESS", seconds=20).attempt for job in (locked, running)}
    assert attempts in ({1}, {2}, {1, 2})
    for job in others:
        done = wait_for(job, "SUCCESS", seconds=20)
        assert (done.attempt, done.crashes) == (1, 0)
    starts = workers.witness.starts()
    assert {number for pk, number in starts.items() if pk not in (job_id(locked), job_id(running))} == {1}
    assert {starts[job_id(locked)], starts[job_id(running)]} == attempts
    assert worker.stop() == 0


@pytest.mark.sqlite
def test_a_writer_that_keeps_the_file_locked_for_longer_than_the_time_out_costs_no_job(workers: Workers, rival: Rival) -> None:
    from tests.faults.harness import database_entry

    entry = database_entry()
    entry["OPTIONS"] = {**entry["OPTIONS"], "timeout": 1}
    jobs = [workers.enqueue(tasks.work, 0.5) for _ in range(6)]
    worker = workers.start(database=entry, LEASE_SECONDS=20, MIN_WORKERS=3, MAX_WORKERS=3).ready()
    wait_until_started(workers.witness, *jobs[:3])
    with rival.transaction():
        rival.do(workers.jobs.filter(pk=0).update, message="x")
        began = time.monotonic()
        wait_until(lambda: time.monotonic() - began > 4, "the lock has outlasted the time-out several times", 5)
    for job in jobs:
        assert wait_for(job, "SUCCESS").attempt == 1
    assert set(workers.witness.starts().values()) == {1}
    assert worker.stop() == 0
    assert "Traceback" not in worker.text_without_failures


@at_once
def test_a_job_that_this_worker_does_not_know_is_run_once_by_one_that_does(workers: Workers) -> None:
    job = enqueue_job("tests.faults.newer.added_since", queue_name=workers.queue)
    old = workers.start().ready()
    put_off = wait_for(job, "PENDING")
    assert (put_off.attempt, put_off.failures) == (0, 0)
    assert "'tests.faults.newer.added_since'" in put_off.message
    new = workers.start(TASK_MODULES=["tests.faults.tasks", "tests.faults.newer"]).ready()
    assert old.stop() == 0
    done = wait_for(job, "SUCCESS")
    assert (done.attempt, done.result) == (1, "newer")
    assert workers.witness.starts()[done.pk] == 1
    assert new.stop() == 0


@at_once
def test_slots_grow_with_the_work_and_shrink_only_when_idle(workers: Workers) -> None:
    long = workers.enqueue(tasks.work, 16)
    worker = workers.start("-v", "2", MIN_WORKERS=1, MAX_WORKERS=5, SCALE_SECONDS=0.2).ready()
    wait_until_started(workers.witness, long)
    burst = [workers.enqueue(tasks.meet, 4) for _ in range(4)]
    for job in burst:
        wait_for(job, "SUCCESS")
    wait_until(lambda: " to 1 (1 running" in worker.text, "idle slots end, after a quiet time", 15)
    assert state(long) == "RUNNING"
    assert wait_for(long, "SUCCESS", seconds=20).attempt == 1
    listed = wait_for(workers.enqueue(tasks.names_of_threads), "SUCCESS").result
    assert sum(name.startswith("jobqueue-thread") for name in listed) == 1
    assert workers.shown == 1
    assert worker.stop() == 0
    assert workers.shown == 0
