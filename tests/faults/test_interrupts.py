"""Cancel, pause and resume of running jobs of every kind: one scene with many checks."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from jobqueue import cancel, pause, resume
from jobqueue.models import Job, Worker
from tests.faults import tasks
from tests.faults.harness import Workers, job_id, row, state, wait_for, wait_until, wait_until_started
from tests.faults.witness import Witness

# The tests read what the scene has kept; the mark sees to it that there is a database for the scene.
pytestmark = [pytest.mark.faults, pytest.mark.django_db]

REACT = {"wait": tasks.wait, "spin": tasks.spin, "coroutine": tasks.awork, "sleep": tasks.work}
SLOTS = 11
STUBBORN = {"swallow": tasks.swallow, "swallow, paused": tasks.swallow}


@dataclass
class Scene:
    """What happened."""

    witness: Witness
    jobs: dict[str, Job] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    worker: dict[str, Any] = field(default_factory=dict)
    said: str = ""
    exit_code: int = -1


@pytest.fixture(scope="module")
def scene(shared_workers: Workers) -> Scene:
    """Run all of them at once in one worker, ask each to stop, resume one, and check that all slots still work."""
    seen = Scene(shared_workers.witness)
    jobs = {name: task.enqueue(7 if name == "sleep" else 60) for name, task in (REACT | STUBBORN).items()}
    jobs["paused"] = tasks.wait.enqueue()
    jobs["withdrawn"] = tasks.work.enqueue(5)
    worker = shared_workers.start(MIN_WORKERS=SLOTS, MAX_WORKERS=SLOTS).ready()
    wait_until_started(seen.witness, *jobs.values())
    asked = time.monotonic()
    pause(job_id(jobs["paused"]))
    seen.jobs["paused, at first"] = wait_for(jobs["paused"], "PAUSED")
    seen.seconds["paused"] = time.monotonic() - asked
    pause(job_id(jobs["withdrawn"]))
    resume(job_id(jobs["withdrawn"]))
    resume(job_id(jobs["paused"]))
    wait_until(lambda: seen.witness.count("start", job_id(jobs["paused"])) == 2, "the resumed job runs again")
    jobs["finishes first"] = tasks.work.enqueue(0.7)
    wait_until_started(seen.witness, jobs["finishes first"])
    pause(job_id(jobs["finishes first"]))
    pause(job_id(jobs["swallow, paused"]))
    for name in (*REACT, "swallow", "paused"):
        asked = time.monotonic()
        cancel(job_id(jobs[name]))
        if name in ("wait", "coroutine"):
            wait_for(jobs[name], "CANCELED")
            seen.seconds[name] = time.monotonic() - asked
    assert {state(jobs[name]) for name in STUBBORN} == {"RUNNING"}
    jobs["blocks the loop"] = tasks.block_the_loop.enqueue(60)
    wait_until_started(seen.witness, jobs["blocks the loop"])
    cancel(job_id(jobs["blocks the loop"]))
    jobs["coroutine afterwards"] = tasks.awork.enqueue(0)
    wait_until(lambda: state(jobs["blocks the loop"]) == "CANCELED", "the coroutine is given up on", 15)
    jobs["coroutine after that"] = tasks.awork.enqueue(0)
    for name, job in jobs.items():
        seen.jobs[name] = wait_for(job, *Job.Status.values[3:], seconds=20)
    wait_until(lambda: Worker.objects.get().stuck == 3, "two threads and the blocked loop's are shown as stuck", 1.5)
    shown = Worker.objects.get()
    assert len(shown.stuck_runs) == 3
    assert all("tests/faults/tasks.py:" in one["line"] or "threading.py" in one["line"] for one in shown.stuck_runs), shown.stuck_runs
    assert shown.memory_mb > 10
    seen.worker = Worker.objects.values().get()
    meeting = [tasks.meet.enqueue(SLOTS) for _ in range(SLOTS)]
    for job in meeting:
        wait_for(job, "SUCCESS")
    seen.jobs |= {name: row(job) for name, job in jobs.items()}
    seen.exit_code = worker.stop()
    seen.said = worker.text
    return seen


def test_a_canceled_job_that_waits_on_its_context_stops_at_once(scene: Scene) -> None:
    assert scene.jobs["wait"].status == "CANCELED"
    assert scene.jobs["wait"].message == "Job was interrupted by user"


def test_a_canceled_coroutine_is_really_canceled(scene: Scene) -> None:
    job = scene.jobs["coroutine"]
    assert job.status == "CANCELED"
    assert scene.witness.count("end", job.pk) == 1, "its finally block ran"


@pytest.mark.session  # else within a heartbeat: see `test_pgbouncer`
@pytest.mark.postgresql
@pytest.mark.parametrize("name", ["wait", "coroutine", "paused"])
def test_a_notified_request_to_stop_reaches_the_job_in_less_than_half_a_second(scene: Scene, name: str) -> None:
    assert scene.seconds[name] < 0.5


@pytest.mark.parametrize("name", ["spin", "sleep"])
def test_a_thread_that_never_checks_its_context_is_stopped_by_an_exception(scene: Scene, name: str) -> None:
    job = scene.jobs[name]
    assert job.status == "CANCELED"
    assert scene.witness.count("end", job.pk) == 1, "the exception passed through the task"


def test_a_paused_job_says_who_interrupted_it_and_runs_again_after_resume(scene: Scene) -> None:
    first, last = scene.jobs["paused, at first"], scene.jobs["paused"]
    assert (first.status, first.message, first.failures) == ("PAUSED", "Job was interrupted by user", 0)
    assert (last.status, last.attempt, len(last.worker_ids)) == ("CANCELED", 2, 2)


@pytest.mark.parametrize(("name", "status"), [("swallow", "CANCELED"), ("swallow, paused", "PAUSED")])
def test_a_task_that_swallows_exceptions_is_given_up_on_and_settled(scene: Scene, name: str, status: str) -> None:
    job = scene.jobs[name]
    assert (job.status, job.lease_owner) == (status, "")
    assert re.fullmatch(r"Job was interrupted by user; abandoned: its thread is still at /.*\.py:\d+, in \w+", job.message)
    assert job.history[-1]["abandoned"] == job.message.partition("abandoned: ")[2]
    assert f"Job {job.pk} (tests.faults.tasks.swallow) does not react to its interrupt; its thread is stuck." in scene.said


def test_threads_that_were_given_up_on_are_shown_and_replaced(scene: Scene) -> None:
    assert (scene.worker["stuck"], scene.worker["slots"]) == (3, SLOTS)
    assert scene.exit_code == 1, "a process with threads that never stop did not end in order"


def test_a_coroutine_that_blocks_all_others_is_abandoned_and_they_run(scene: Scene) -> None:
    assert scene.jobs["blocks the loop"].status == "CANCELED"
    assert [scene.jobs[f"coroutine {when}"].status for when in ("afterwards", "after that")] == ["SUCCESS"] * 2
    assert "A coroutine blocks the event loop" in scene.said


def test_a_job_that_finishes_before_the_interrupt_reaches_it_is_a_success_and_says_so(scene: Scene) -> None:
    job = scene.jobs["finishes first"]
    assert (job.status, job.message) == ("SUCCESS", "Job finished before the interrupt reached it")


def test_a_withdrawn_request_stops_nothing(scene: Scene) -> None:
    job = scene.jobs["withdrawn"]
    assert (job.status, job.attempt, job.message) == ("SUCCESS", 1, "")
    assert scene.witness.count("start", job.pk) == 1
