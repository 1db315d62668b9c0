"""Jobs that ignore interrupts: the worker ends anyway, names them, and hands their leases back last."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from tests.faults import tasks
from tests.faults.harness import Workers, row, wait_until, wait_until_started
from tests.faults.together import at_once
from tests.webhooks import receivers
from tests.webhooks.receivers import SECRET, Receiver

pytestmark = [pytest.mark.faults, pytest.mark.django_db]

STUBBORN = (tasks.swallow, tasks.aswallow)
OUTER_SECONDS = 6.0  # after the grace, for everything that is left
CLOSING = "Closing the listener and the other services."


def given_back(job: Any) -> str:
    return f"Job {job.job_id} ({job.task.module_path}) does not stop; it is handed back"


def assert_given_back(worker: Any, *jobs: Any) -> None:
    for job in jobs:
        assert given_back(job) in worker.text
        assert worker.text.index(CLOSING) < worker.text.index(given_back(job)), "the lease is handed back last"
        found = row(job)
        assert (found.status, found.attempt, found.failures, found.lease_owner) == ("QUEUED", 0, 0, "")
    assert "Traceback" not in worker.text_without_failures


@at_once
def test_one_signal_ends_the_worker_after_its_grace(workers: Workers) -> None:
    by_term = [task.using(queue_name="term").enqueue() for task in STUBBORN]
    by_int = [task.using(queue_name="int").enqueue() for task in STUBBORN]
    one = workers.start("--queues", "term", SHUTDOWN_GRACE_PERIOD_SECONDS=1).ready()
    other = workers.start("--queues", "int", SHUTDOWN_GRACE_PERIOD_SECONDS=1).ready()
    wait_until_started(workers.witness, *by_term, *by_int)
    began = time.monotonic()
    one.terminate()
    other.send(signal.SIGINT)
    assert (one.wait(1 + OUTER_SECONDS), other.wait(1 + OUTER_SECONDS)) == (1, 1)
    assert 1 < time.monotonic() - began < 1 + OUTER_SECONDS
    assert_given_back(one, *by_term)
    assert_given_back(other, *by_int)


@at_once
def test_a_second_signal_of_either_kind_skips_the_grace(workers: Workers) -> None:
    jobs = [workers.enqueue(task) for task in STUBBORN]
    worker = workers.start(SHUTDOWN_GRACE_PERIOD_SECONDS=300).ready()
    wait_until_started(workers.witness, *jobs)
    worker.send(signal.SIGINT)
    wait_until(lambda: "Stopping: 2 jobs get up to 300 s to finish." in worker.text, "it receives the first signal")
    began = time.monotonic()
    worker.send(signal.SIGINT)
    assert worker.wait(OUTER_SECONDS) == 1
    assert time.monotonic() - began < OUTER_SECONDS
    assert_given_back(worker, *jobs)


def test_another_worker_begins_a_stubborn_job_only_when_the_first_one_ends(workers: Workers) -> None:
    silent = Receiver(receivers.silent)
    settings = {"WEBHOOK_ALLOWED_HOSTS": ["127.0.0.1"], "WEBHOOK_SECRET": SECRET, "DELIVERY_GRACE_SECONDS": 3}
    job = workers.enqueue(tasks.swallow_and_tick)
    first = workers.start(**settings, SHUTDOWN_GRACE_PERIOD_SECONDS=0).ready()
    wait_until_started(workers.witness, job)
    tasks.work.using(webhook_url=silent.url).enqueue()
    wait_until(lambda: silent.requests, "a delivery is in flight, which is waited for", 30)
    second = workers.start(**settings).ready()
    first.terminate()
    assert first.wait(3 + OUTER_SECONDS) == 1
    wait_until(lambda: workers.witness.starts()[job.job_id] == 2, "the second worker has begun it", 5)
    silent.close()
    events = workers.witness.events
    last_tick = max(event.at for event in events if event.pid == first.pid and event.what == "tick")
    begun = min(event.at for event in events if event.pid == second.pid and event.what == "start" and event.job == job.job_id)
    assert begun > last_tick - 1.0, "both ran it for longer than the last steps of the first worker take"
    assert given_back(job) in first.text
    assert row(job).attempt == 1
    second.kill()


@at_once
def test_a_drain_in_time_exits_with_0_in_the_same_order(workers: Workers) -> None:
    job, waiting = workers.enqueue(tasks.work, 1.5), workers.enqueue(tasks.wait)
    worker = workers.start(SHUTDOWN_GRACE_PERIOD_SECONDS=3).ready()
    wait_until_started(workers.witness, job, waiting)
    later = workers.enqueue(tasks.work)
    assert worker.stop(12) == 0
    told = [
        "Stopping: 2 jobs get up to 3 s to finish.",
        "Interrupting 1 jobs that have not finished.",
        CLOSING,
    ]
    places = [worker.text.find(text) for text in told]
    assert -1 not in places
    assert places == sorted(places)
    assert "does not stop" not in worker.text
    assert [(row(one).status, row(one).attempt) for one in (job, waiting, later)] == [("SUCCESS", 1), ("QUEUED", 0), ("QUEUED", 0)]
    assert workers.witness.starts()[later.job_id] == 0, "no new work after the signal"
