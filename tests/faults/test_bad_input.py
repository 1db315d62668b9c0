"""Bad input of every kind for one worker: each job ends with a clear text, and the worker continues."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from jobqueue import enqueue_job, pause
from jobqueue.models import Job
from tests.faults import tasks
from tests.faults.harness import Workers, job_id, row, wait_for, wait_until
from tests.faults.witness import Witness

# The tests read what the scene has kept; the mark sees to it that there is a database for the scene.
pytestmark = [pytest.mark.faults, pytest.mark.django_db]

THREADS = 3
HERE = "tests.faults.tasks"
UNKNOWN = f"{HERE}.renamed_since"
EDITED = ("args", "kwargs", "options", "metadata", "history", "worker_ids")
ENDED = ("SUCCESS", "ERROR", "PAUSED", "CANCELED")


@dataclass
class Scene:
    """What became of each job."""

    witness: Witness
    jobs: dict[str, Job] = field(default_factory=dict)
    exit_code: int = -1
    said: str = ""
    threads: list[list[str]] = field(default_factory=list)


def _edit(job: Any, column: str) -> None:
    value = "'null'::jsonb" if connection.vendor == "postgresql" else "'null'"
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE jobqueue_job SET {column} = {value} WHERE id = %s", [job_id(job)])


def _bad_jobs() -> dict[str, Any]:
    jobs: dict[str, Any] = {f"raise {name}": tasks.throw.enqueue(name) for name in tasks.RAISED}
    jobs |= {f"raise {name} in a coroutine": tasks.athrow.enqueue(name) for name in tasks.RAISED}
    jobs |= {f"return {name}": tasks.give.enqueue(name) for name in tasks.RETURNED}
    jobs |= {f"backoff {name}": getattr(tasks, f"backoff_{name}").enqueue() for name in tasks.BACKOFFS}
    jobs["unknown"] = enqueue_job(UNKNOWN, 1)
    jobs["unknown module"] = enqueue_job("os.system", "true")
    jobs["too many arguments"] = enqueue_job(f"{HERE}.one_argument", 1, 2)
    jobs["unknown keyword"] = enqueue_job(f"{HERE}.one_argument", kwargs={"a": 1, "added_since": 2})
    jobs["recursion"] = tasks.recurse.enqueue()
    jobs["fatal"] = tasks.fatal.enqueue()
    jobs["warning"] = tasks.warn.enqueue()
    jobs["retry"] = tasks.fail_once.enqueue()
    jobs["tasks left pending"] = tasks.leave_tasks_pending.enqueue()
    jobs["raised through the loop"] = tasks.raise_through_the_loop.enqueue()
    jobs["asynchronous query"] = tasks.count_rows.enqueue()
    for column in EDITED:
        for task in (tasks.give, tasks.throw):
            name = f"{column} edited, {task.func.__name__}"
            jobs[name] = task.enqueue("nul")
            _edit(jobs[name], column)
    return jobs


@pytest.fixture(scope="module")
def scene(shared_workers: Workers) -> Scene:
    """Run all of them on one worker, then see all of its threads at work at once, then end it."""
    seen = Scene(shared_workers.witness)
    jobs = _bad_jobs()
    number = {"MIN_WORKERS": THREADS, "MAX_WORKERS": THREADS}
    worker = shared_workers.start(UNKNOWN_TASK_GRACE_SECONDS=3, **number).ready()
    seen.jobs["unknown, at first"] = wait_for(jobs["unknown"], "PENDING")
    with contextlib.suppress(AssertionError):  # one that is not settled is its own test's failure
        wait_until(lambda: Job.objects.filter(status__in=ENDED).count() == len(jobs), "all are settled", 25)
    seen.jobs |= {name: row(job) for name, job in jobs.items()}
    for _ in range(2):
        for job in [tasks.meet.enqueue(THREADS) for _ in range(THREADS)]:
            wait_for(job, "SUCCESS")
        listed = tasks.names_of_threads.enqueue()
        seen.threads.append(wait_for(listed, "SUCCESS").result)
    seen.exit_code = worker.stop()
    seen.said = worker.text
    return seen


def failed(scene: Scene, name: str) -> Job:
    """Return a job after the check that it failed properly: ended, with a text, one entry in its history, and no lease."""
    job = scene.jobs[name]
    assert job.status == "ERROR", f"{name}: {job.status} {job.message}"
    assert job.message
    assert job.finished_at is not None
    assert job.lease_owner == ""
    assert job.history[-1]["message"]
    return job


def test_the_worker_lives_with_all_of_its_threads_and_ends_in_order(scene: Scene) -> None:
    assert scene.exit_code == 0
    first, second = ([name for name in names if not name.startswith("Dummy")] for names in scene.threads)
    assert sum(name.startswith("jobqueue-thread") for name in first) == THREADS
    assert first == second
    assert "gone" not in scene.said
    assert "hanging" not in scene.said


CLASSES = {
    "exit": "SystemExit",
    "exit with a text": "SystemExit: text",
    "exit with 0": "SystemExit: 0",
    "interrupt": "KeyboardInterrupt",
    "generator": "GeneratorExit",
    "cancelled": "CancelledError",
    "outside": "Outside",
    "stop": "StopIteration",
    "memory": "MemoryError",
    "unspeakable": "Unspeakable",
    "nul": "ValueError: a",
    "surrogate": "ValueError: a",
    "huge": "ValueError: xxx",
}


@pytest.mark.parametrize("name", CLASSES)
def test_whatever_a_task_raises_is_the_end_of_its_job_and_named_there(scene: Scene, name: str) -> None:
    job = failed(scene, f"raise {name}")
    assert CLASSES[name] in job.message
    assert len(job.message) < 1000
    assert len(json.dumps(job.history)) < 100_000
    assert "throw" in job.history[0]["traceback"]


@pytest.mark.parametrize("name", CLASSES)
def test_whatever_a_coroutine_raises_is_the_end_of_its_job_and_named_there(scene: Scene, name: str) -> None:
    job = failed(scene, f"raise {name} in a coroutine")
    # A coroutine cannot raise StopIteration: Python turns it into a RuntimeError.
    assert ("RuntimeError" if name == "stop" else CLASSES[name]) in job.message


@pytest.mark.parametrize("name", tasks.RETURNED)
def test_a_result_that_cannot_be_stored_is_an_error_that_says_why(scene: Scene, name: str) -> None:
    job = failed(scene, f"return {name}")
    assert "result" in job.message
    assert job.result is None


BACKOFF_TEXTS = {"raises": "LookupError", "none": "None", "negative": "-1", "nan": "nan", "exits": "SystemExit"}


@pytest.mark.parametrize("name", tasks.BACKOFFS)
def test_a_backoff_that_gives_no_delay_ends_the_job_with_a_clear_error(scene: Scene, name: str) -> None:
    job = failed(scene, f"backoff {name}")
    assert "backoff" in job.message.lower()
    assert BACKOFF_TEXTS[name] in job.message
    assert "ValueError: first" in job.history[-1]["traceback"], "what the task itself raised is not lost"


@pytest.mark.parametrize("name", ["unknown", "unknown module"])
def test_an_unknown_task_is_put_off_and_fails_after_the_grace(scene: Scene, name: str) -> None:
    job = failed(scene, name)
    assert repr(job.task) in job.message
    assert scene.jobs["unknown, at first"].attempt == 0


@pytest.mark.parametrize("name", ["too many arguments", "unknown keyword"])
def test_arguments_that_no_longer_fit_the_signature_are_an_error(scene: Scene, name: str) -> None:
    assert "TypeError" in failed(scene, name).message


@pytest.mark.parametrize("column", ["args", "kwargs"])
def test_arguments_edited_to_null_are_an_error_that_names_them(scene: Scene, column: str) -> None:
    for name in ("give", "throw"):
        job = failed(scene, f"{column} edited, {name}")
        assert f"null as {column}" in job.message


@pytest.mark.parametrize("column", EDITED[2:])
def test_other_columns_edited_to_null_stop_no_job(scene: Scene, column: str) -> None:
    for name in ("give", "throw"):
        failed(scene, f"{column} edited, {name}")


def test_infinite_recursion_is_an_error_of_bounded_size(scene: Scene) -> None:
    job = failed(scene, "recursion")
    assert "RecursionError" in job.message
    assert len(json.dumps(job.history)) < 70_000


def test_a_limit_that_the_task_reports_itself_is_an_error_with_its_text(scene: Scene) -> None:
    job = failed(scene, "fatal")
    assert "token limit exceeded" in job.message


@pytest.mark.parametrize("name", ["warning", "tasks left pending", "raised through the loop", "asynchronous query"])
def test_a_harmless_task_succeeds_among_them(scene: Scene, name: str) -> None:
    assert scene.jobs[name].status == "SUCCESS", scene.jobs[name].message


def test_a_retry_runs_again_and_succeeds(scene: Scene) -> None:
    job = scene.jobs["retry"]
    assert (job.status, job.attempt, job.failures, job.result) == ("SUCCESS", 2, 1, "second")
    assert scene.witness.count("start", job.pk) == 2


def test_a_message_that_no_database_stores_delays_no_job(workers: Workers) -> None:
    bad = workers.enqueue(tasks.mumble, 60.0)
    worker = workers.start().ready()
    shown = wait_until(lambda: (job := row(bad)).progress and job, "its progress is shown")
    assert (shown.status, shown.message) == ("RUNNING", "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c")
    assert wait_for(workers.enqueue(tasks.save), "SUCCESS").metadata == {"saved": True}
    pause(job_id(bad))
    wait_for(bad, "PAUSED")
    assert worker.stop() == 0


def test_a_transactional_task_is_done_with_its_success_or_not_at_all(workers: Workers) -> None:
    left, mumbled = workers.enqueue(tasks.book_and_leave_open), workers.enqueue(tasks.book_and_mumble)
    worker = workers.start(MIN_WORKERS=1, MAX_WORKERS=1).ready()
    failed = wait_for(left, "ERROR")
    assert (failed.attempt, failed.crashes) == (1, 0)
    assert "left an atomic block open" in failed.message
    wait_for(mumbled, "SUCCESS")
    assert list(Group.objects.values_list("name", flat=True)) == [f"mumbled {job_id(mumbled)}"]
    assert worker.stop() == 0


REFUSED: dict[str, Callable[[], Any]] = {
    "huge": lambda: "x" * 5_000_000,
    "deep": lambda: tasks.nested(100_000),
    "nul": lambda: {"key": ["a\0"]},
    "surrogate": lambda: "\ud800",
}


@pytest.mark.parametrize("name", REFUSED)
def test_arguments_that_cannot_be_stored_are_refused_at_enqueue(name: str) -> None:
    before = Job.objects.count()
    with pytest.raises((ValueError, TypeError), match="cannot be enqueued"):
        tasks.one_argument.enqueue(REFUSED[name]())
    assert Job.objects.count() == before, "the transaction is usable, and nothing was made"
