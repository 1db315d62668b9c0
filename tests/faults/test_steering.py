"""Control real workers from the command line: pause and resume a queue, check the health, and query why a job waits."""

from __future__ import annotations

import json

import pytest

from jobqueue import why_waiting
from jobqueue.models import Worker
from tests.faults import tasks
from tests.faults.harness import Workers, state, wait_for, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]
SERVICES = {"dispatcher", "finisher", "heartbeat", "maintenance", "reporter", "scaler"}


def command(workers: Workers, *args: str) -> tuple[int, str]:
    """Run ``manage.py jobqueue`` in a process of its own; return its exit code and what it says."""
    process = workers.start(*args, command="jobqueue")
    return process.wait(), process.text


def test_a_queue_is_paused_from_the_command_line_for_workers_that_run_and_that_start(workers: Workers) -> None:
    assert command(workers, "health")[0] == 1
    assert command(workers, "pause", "night")[0] == 0
    worker = workers.start().ready()
    held, free = tasks.work.using(queue_name="night").enqueue(), tasks.work.enqueue()
    wait_for(free, "SUCCESS")
    assert state(held) == "QUEUED"
    why = why_waiting(held)
    assert why is not None
    assert why.gate == "paused_queue"
    wait_until(lambda: {*(Worker.objects.values_list("services", flat=True).first() or ())} >= SERVICES, "the worker reports its services")
    code, text = command(workers, "health", "--max-age", "0.1", "--json")
    assert (code, json.loads(text)) == (0, {"healthy": True, "problems": []}), "jobs that wait in a paused queue are no problem"

    assert command(workers, "resume", "night")[0] == 0
    wait_for(held, "SUCCESS", seconds=2)
    assert worker.alive
    code, text = command(workers, "cancel", str(held.job_id), "0x1")
    assert (code, "Traceback" in text, "JOB_ID is '0x1'" in text) == (1, False, True)


def test_a_drained_worker_ends_its_jobs_starts_none_and_starts_jobs_again(workers: Workers) -> None:
    worker = workers.start().ready()
    running = tasks.work.using(target="line").enqueue(1.0)
    wait_for(running, "RUNNING")
    name = str(Worker.objects.get())
    assert command(workers, "drain", name)[0] == 0
    wait_until(lambda: "This worker is drained" in worker.text, "the worker reads the request", 15)
    held = [tasks.work.using(target="line").enqueue(), tasks.work.enqueue()]
    wait_for(running, "SUCCESS")
    successor = workers.start().ready()
    for job in held:  # the other worker runs them; without it, they would wait
        wait_for(job, "SUCCESS")
    assert successor.stop() == 0
    alone = tasks.work.enqueue()
    assert command(workers, "undrain", name)[0] == 0
    wait_for(alone, "SUCCESS", seconds=15)
    assert worker.stop() == 0
