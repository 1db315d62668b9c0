"""Time limits in real workers: the error in tasks of every kind, and tasks that do not react to it."""

from __future__ import annotations

import re
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from jobqueue import cancel, enqueue_many
from jobqueue.models import Job, JobPhase, Worker
from tests.faults import limited, tasks
from tests.faults.harness import Workers, job_id, row, state, wait_for, wait_until, wait_until_started
from tests.faults.together import at_once

pytestmark = [pytest.mark.faults, pytest.mark.django_db]

MODULES = ["tests.faults.tasks", "tests.faults.limited"]
PATH = "jobqueue.exceptions.TimeLimitExceeded"
TEXT = f"{PATH}: The time limit of 1 s was exceeded"


def shown(workers: Workers) -> int:
    """Return how many stuck threads the worker of a test shows."""
    return sum(one.stuck for one in Worker.objects.all() if one.queues == [workers.queue])


@at_once
def test_threads_coroutines_pipelines_and_transactions_end_at_their_limits(workers: Workers) -> None:
    worker = workers.start(MIN_WORKERS=8, MAX_WORKERS=8, TASK_MODULES=MODULES).ready()
    names = ("slow_at_first", "tidy", "acancelled", "book_slowly", "two_steps", "nap")
    made = {name: workers.enqueue(getattr(limited, name)) for name in names}
    ended = {name: wait_for(job, *Job.Status.values[3:]) for name, job in made.items()}
    assert {name: (job.status, job.message) for name, job in ended.items()} == {
        "slow_at_first": ("SUCCESS", ""),
        "tidy": ("SUCCESS", "cleaned up"),
        "acancelled": ("ERROR", TEXT),
        "book_slowly": ("ERROR", TEXT),
        "two_steps": ("ERROR", TEXT.replace("1 s", "3 s")),
        "nap": ("SUCCESS", ""),
    }
    again = ended["slow_at_first"]
    assert (again.attempt, again.failures, again.result) == (2, 1, "in time")
    assert [(entry["outcome"], entry["exception"]) for entry in again.history] == [("RETRY", PATH)]
    assert [workers.witness.count("cleaned", ended[name].pk) for name in ("tidy", "acancelled")] == [1, 1]
    assert not Group.objects.filter(name=f"slow {ended['book_slowly'].pk}").exists(), "rolled back"
    phases = JobPhase.objects.filter(job=ended["two_steps"]).order_by("position")
    assert [(one.status, one.attempts) for one in phases] == [("SUCCESS", 1), ("ERROR", 1)], "the limit is that of the whole run"
    nap = ended["nap"]
    assert nap.finished_at - nap.first_started_at > timedelta(seconds=4.5), "time asleep does not count, nor do other runs"
    assert worker.stop() == 0
    assert "Traceback" not in worker.text_without_failures


@at_once
def test_tasks_that_log_in_a_loop_end_at_their_limit_or_cancel_and_block_no_other_log_record(workers: Workers) -> None:
    worker = workers.start(MIN_WORKERS=6, MAX_WORKERS=6, TASK_MODULES=MODULES).ready()
    limits = [workers.enqueue(limited.chatter) for _ in range(3)]
    canceled = workers.enqueue(limited.chatter, timeout=30)
    wait_until(lambda: state(canceled) == "RUNNING", "it writes")
    for job in limits:
        assert wait_for(job, "ERROR").message == TEXT.replace("1 s", "0.3 s")
    cancel(job_id(canceled))
    wait_for(canceled, "CANCELED")
    after = workers.enqueue(tasks.work)
    wait_for(after, "SUCCESS")
    wait_until(lambda: f"Job {after.job_id} tests.faults.tasks.work SUCCESS" in worker.text, "the log continues")
    assert worker.stop() == 0
    assert "Logging error" not in worker.text, "no handler has taken it for a fault of its own"


@at_once
def test_a_limit_in_the_middle_of_a_transaction_is_the_limits_error_and_is_retried(workers: Workers) -> None:
    number = 60
    worker = workers.start(MIN_WORKERS=4, MAX_WORKERS=4, TASK_MODULES=MODULES).ready()
    jobs = enqueue_many(limited.write_on.using(queue_name=workers.queue), [((), {})] * number)
    wait_until(lambda: not workers.jobs.exclude(status__in=("SUCCESS", "ERROR")).exists(), "all have ended", 60)
    assert worker.stop() == 0
    seen = Counter((job.status, job.attempt, job.history[0]["exception"]) for job in workers.jobs)
    assert seen == {("SUCCESS", 2, PATH): number}
    assert "left a transaction open" not in worker.text
    names = Counter(name.partition("-")[0] for name in Group.objects.filter(name__startswith="pair ").values_list("name", flat=True))
    assert {f"pair {one.job_id}" for one in jobs} <= names.keys()
    assert [count for count in names.values() if count % 2] == [], "a pair is there as a whole or not at all"


@at_once
def test_runs_that_swallow_it_are_settled_or_kept_by_their_target_and_the_worker_continues(workers: Workers) -> None:
    worker = workers.start(MIN_WORKERS=2, MAX_WORKERS=2, TIMEOUT_GRACE_SECONDS=1, SHUTDOWN_GRACE_PERIOD_SECONDS=200).ready()
    free = workers.enqueue(tasks.swallow, 60, timeout=0.5)
    text, _, line = wait_for(free, "ERROR").message.partition("; abandoned: ")
    assert text == TEXT.replace("1 s", "0.5 s")
    place = r"its thread is still at (/.*\.py:\d+, in \w+, called from )?/.*faults/tasks\.py:\d+, in swallow"
    assert re.fullmatch(place, line)
    assert row(free).history[-1]["abandoned"] == line
    blocking = workers.enqueue(tasks.block_the_loop, 60, timeout=0.5)
    assert wait_for(blocking, "ERROR").attempt == 1
    held = workers.enqueue(tasks.swallow, 60, timeout=0.5, target="customer:7")
    wait_until(lambda: shown(workers) == 3, "all three are shown as stuck")
    behind = workers.enqueue(tasks.work, target="customer:7")
    for _ in range(3):
        assert wait_for(workers.enqueue(tasks.work), "SUCCESS").attempt == 1
        assert wait_for(workers.enqueue(tasks.awork), "SUCCESS").attempt == 1
    assert (state(held), state(behind)) == ("RUNNING", "PENDING"), "its target is kept"
    assert re.fullmatch(r"The run does not stop: its thread is still at /.*\.py:\d+, in \w+", row(held).message)
    one = next(one for one in Worker.objects.all() if one.queues == [workers.queue])
    assert one.slots == 2
    for job, task in ((free, "swallow"), (blocking, "block_the_loop"), (held, "swallow")):
        told = f"Job {job.job_id} (tests.faults.tasks.{task}) does not react to its time limit; its thread is stuck. jobqueue-"
        assert told in worker.text
    assert "tasks.py:" in worker.text.partition(f"Job {blocking.job_id} ")[2].partition("\n")[0], "the line where it hangs"
    assert worker.stop(30) == 1, "what is stuck gets none of the grace period"
    assert (row(held).status, row(held).failures) == ("QUEUED", 0), "handed back last of all"


@at_once
def test_slots_beyond_the_spares_are_lost_and_what_is_left_works(workers: Workers) -> None:
    worker = workers.start(MIN_WORKERS=2, MAX_WORKERS=2, TIMEOUT_GRACE_SECONDS=0.5).ready()
    stuck = [workers.enqueue(tasks.swallow, 60, timeout=0.5) for _ in range(2)]
    for job in stuck:
        wait_for(job, "ERROR")
    wait_for(workers.enqueue(tasks.work), "SUCCESS")
    third = workers.enqueue(tasks.swallow, 6, timeout=0.5)
    wait_for(third, "ERROR")
    wait_until(lambda: [one.slots for one in Worker.objects.all() if one.queues == [workers.queue]] == [1], "a slot is lost")
    assert f"Job {third.job_id} (tests.faults.tasks.swallow): all 2 spare threads already replace stuck threads" in worker.text
    wait_for(workers.enqueue(tasks.work), "SUCCESS")
    wait_until(lambda: shown(workers) == 2, "the third one has ended")
    pair = [workers.enqueue(tasks.wait, 60) for _ in range(2)]
    wait_until_started(workers.witness, *pair)  # both slots are there again
    for job in pair:
        cancel(job_id(job))
        wait_for(job, "CANCELED")
    assert worker.text.count("Slots: ") == 0, "and the scaler had no part in it"
    worker.hurry()
    assert worker.wait(15) == 1


@at_once
def test_short_jobs_with_limits_near_their_length_are_each_settled_once_and_no_other_is_hit(workers: Workers) -> None:
    number = 2000 if connection.vendor == "postgresql" else 1000
    worker = workers.start(MIN_WORKERS=4, MAX_WORKERS=4, TASK_MODULES=MODULES).ready()
    queue: Any = {"queue_name": workers.queue}
    close = enqueue_many(limited.brief.using(**queue, timeout=0.002), [((index % 5 * 1e-3,), {}) for index in range(number)])
    others = enqueue_many(limited.brief.using(**queue), [((0,), {}) for _ in range(number)])
    wait_until(lambda: not workers.jobs.exclude(status__in=("SUCCESS", "ERROR")).exists(), "all have ended", 60)
    assert worker.stop() == 0
    jobs = {job.pk: job for job in workers.jobs}
    assert {jobs[one.job_id].status for one in others} == {"SUCCESS"}, "none of those without a limit was hit"
    limits = [jobs[one.job_id] for one in close]
    seen = Counter((job.status, job.message) for job in limits)
    assert set(seen) == {("SUCCESS", ""), ("ERROR", f"{PATH}: The time limit of 0.002 s was exceeded")}
    assert {(job.attempt, len(job.worker_ids), job.crashes) for job in jobs.values()} == {(1, 1, 0)}
    assert all((len(job.history), job.failures) == ((0, 0) if job.status == "SUCCESS" else (1, 1)) for job in limits)
    assert "Traceback" not in worker.text_without_failures
