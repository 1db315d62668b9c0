"""SIGTERM, a second one, SIGINT, and a grace period that is over."""

import signal
import socket
import time

import pytest

from jobqueue import cancel
from tests.faults import tasks
from tests.faults.harness import Workers, database_entry, row, state, wait_for, wait_until, wait_until_started
from tests.faults.together import at_once

pytestmark = [pytest.mark.faults, pytest.mark.django_db]


@at_once
def test_after_sigterm_and_sigint_running_jobs_finish_and_none_are_claimed(workers: Workers) -> None:
    by_term = workers.start("--queues", "term", MIN_WORKERS=1, MAX_WORKERS=1)
    by_int = workers.start("--queues", "int", MIN_WORKERS=1, MAX_WORKERS=1)
    by_term.ready(), by_int.ready()
    first = tasks.work.using(queue_name="term").enqueue(4)
    other = tasks.awork.using(queue_name="int").enqueue(4)
    wait_until_started(workers.witness, first, other)
    later = [tasks.work.using(queue_name=queue).enqueue() for queue in ("term", "int")]
    by_term.send(signal.SIGTERM)
    by_int.send(signal.SIGINT)
    assert (by_term.wait(), by_int.wait()) == (0, 0)
    assert [state(job) for job in (first, other)] == ["SUCCESS", "SUCCESS"]
    assert [(job.status, job.attempt) for job in map(row, later)] == [("QUEUED", 0), ("QUEUED", 0)]
    assert "Traceback" not in by_term.text_without_failures + by_int.text_without_failures
    assert "Stopping: 1 jobs get up to 300 s to finish." in by_term.text


@at_once
def test_after_the_grace_period_jobs_are_given_back_or_held_and_cost_no_attempt(workers: Workers) -> None:
    requeue, hold = workers.enqueue(tasks.wait), workers.enqueue(tasks.held_wait)
    worker = workers.start(SHUTDOWN_GRACE_PERIOD_SECONDS=0.5).ready()
    wait_until_started(workers.witness, requeue, hold)
    assert worker.stop(10) == 0
    back, held = row(requeue), row(hold)
    assert (back.status, back.attempt, back.failures, back.crashes, back.lease_owner) == ("QUEUED", 0, 0, 0, "")
    assert (held.status, held.message) == ("PAUSED", "Job was interrupted by shutdown of its worker")
    assert len(workers.witness.events) == 4


@at_once
def test_the_process_ends_and_gives_back_its_jobs_though_their_threads_never_stop(workers: Workers) -> None:
    stubborn = [task.using(queue_name="grace").enqueue(60) for task in (tasks.work, tasks.swallow, tasks.spin, tasks.block_the_loop)]
    hurried = [task.using(queue_name="twice").enqueue(60) for task in (tasks.work, tasks.swallow, tasks.wait)]
    grace = workers.start("--queues", "grace", SHUTDOWN_GRACE_PERIOD_SECONDS=1, MIN_WORKERS=4, MAX_WORKERS=4).ready()
    twice = workers.start("--queues", "twice", MIN_WORKERS=4, MAX_WORKERS=4).ready()
    wait_until_started(workers.witness, *stubborn, *hurried)
    began = time.monotonic()
    grace.terminate()
    twice.hurry()
    assert twice.wait(8) == 1, "a thread that does not stop is no clean end"
    assert grace.wait(8) == 1
    assert time.monotonic() - began < 8
    rows = [row(job) for job in stubborn + hurried]
    assert [(job.status, job.attempt) for job in rows] == [("QUEUED", 0)] * len(rows)


@at_once
def test_sigterm_during_the_start_up_ends_the_process(workers: Workers) -> None:
    early = workers.start()
    early.terminate()
    late = workers.start().ready()
    assert late.stop() == 0
    assert early.wait() in (0, -signal.SIGTERM)


@at_once
def test_a_thread_that_a_coroutine_left_behind_does_not_hold_up_the_end(workers: Workers) -> None:
    job = workers.enqueue(tasks.wait_for_a_thread, 60)
    worker = workers.start().ready()
    wait_until_started(workers.witness, job)
    cancel(job.job_id)
    wait_for(job, "CANCELED")
    assert worker.stop(8) == 0


@at_once
def test_a_worker_frees_its_jobs_so_that_another_takes_them_at_once(workers: Workers) -> None:
    job = workers.enqueue(tasks.wait)
    first = workers.start(SHUTDOWN_GRACE_PERIOD_SECONDS=0, LEASE_SECONDS=300).ready()
    wait_until_started(workers.witness, job)
    second = workers.start(LEASE_SECONDS=300).ready()
    first.stop()
    wait_until(lambda: workers.witness.count("start", job.job_id) == 2, "the second worker has begun it", 3)
    assert wait_for(job, "RUNNING").attempt == 1
    second.hurry()
    assert second.wait() == 0


@pytest.mark.postgresql
def test_sigterm_ends_a_worker_whose_database_does_not_answer_at_its_start(workers: Workers) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(30)
        entry = {**database_entry(), "HOST": "127.0.0.1", "PORT": str(silent.getsockname()[1])}
        worker = workers.start(database=entry)
        caller, _ = silent.accept()
        with caller:
            worker.terminate()
            assert worker.wait(10) == 0
