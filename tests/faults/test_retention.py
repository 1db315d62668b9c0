"""A table full of expired jobs and their children is emptied in little memory, even if the process is killed meanwhile.

``RETENTION_JOBS=3000000`` makes it a long run, which needs ``-o faulthandler_timeout=0``, too.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.db import connection

from jobqueue.models import BackgroundJobLease, Job, JobEvent
from tests.factories import JobFactory
from tests.faults import tasks
from tests.faults.harness import WorkerProcess, Workers, database_entry, wait_for, wait_until
from tests.shop.models import Event, Receipt

pytestmark = [pytest.mark.faults, pytest.mark.slow(seconds=150)]
MEGABYTE = 2**20
CHILDREN = 2
JOBS = {
    "postgresql": (
        300_000,
        (
            "INSERT INTO jobqueue_job (task, queue, status, finished_at, result) SELECT 'tests.tasks.add', 'old', 'SUCCESS',"
            " now() - interval '1 day', to_jsonb(repeat('x', 500)) FROM generate_series(1, %s) AS n"
        ),
    ),
    "sqlite": (
        30_000,
        (
            "INSERT INTO jobqueue_job (task, queue, status, finished_at, result) WITH RECURSIVE r(n) AS (VALUES (1) UNION ALL SELECT n + 1"
            " FROM r WHERE n < %s) SELECT 'tests.tasks.add', 'old', 'SUCCESS', datetime('now', '-1 day'), '\"x\"' FROM r"
        ),
    ),
}


def fill() -> int:
    """Make expired jobs with children of a project's model, as by years of work."""
    number, sql = JOBS[connection.vendor]
    number = int(os.environ.get("RETENTION_JOBS", number))
    with connection.cursor() as cursor:
        cursor.execute(sql, [number])
        for name in ("job.started", "job.completed"):
            cursor.execute("INSERT INTO shop_event (job_id, text) SELECT id, 'event' FROM jobqueue_job WHERE id % 20 = 0")
            cursor.execute("INSERT INTO jobqueue_jobevent (job_id, name, at) SELECT id, %s, finished_at FROM jobqueue_job", [name])
    return number


def pruning(workers: Workers, log: Path) -> WorkerProcess:
    """Start a process that deletes what has expired, on a database that gives up what takes longer than five seconds."""
    entry = database_entry()
    if connection.vendor == "postgresql":
        entry["OPTIONS"] = {**entry["OPTIONS"], "options": "-c statement_timeout=5s"}
    return WorkerProcess(log, workers.witness, "prune", "--older-than", "3600", command="jobqueue", database=entry)


def test_very_many_expired_jobs_go_with_their_children_though_the_process_is_killed(workers: Workers, tmp_path: Path) -> None:
    number = fill()
    kept = [JobFactory(error=True), JobFactory(paused=True), JobFactory()]
    protected = Job.objects.filter(queue="old", pk__in=Event.objects.values("job_id")).order_by("pk")[number // 40]
    Receipt.objects.create(job=protected)
    # They are deleted in the order of their ids, because all ended at the same time. Counting all would be too slow.
    tenth = Job.objects.filter(queue="old").order_by("pk").values_list("pk", flat=True)[number // 10]

    victim = pruning(workers, tmp_path / "prune-1.log")
    try:
        wait_until(lambda: not Job.objects.filter(pk=tenth).exists() or not victim.alive, "a tenth has gone", 100 + number / 10_000)
        assert victim.alive, victim.text
        victim.kill()
        with connection.cursor() as cursor:  # in one statement: the server may still be about to end its last transaction
            cursor.execute(
                "SELECT count(*), count(*) FILTER (WHERE id % 20 = 0), (SELECT count(*) FROM shop_event),"
                " (SELECT count(*) FROM jobqueue_jobevent WHERE name <> 'job.deleted') FROM jobqueue_job WHERE queue = 'old'"
            )
            rest, with_children, children, events = cursor.fetchone()
        assert 0 < rest < number
        assert (children, events) == (CHILDREN * with_children, CHILDREN * rest)
    finally:
        victim.clean_up()

    next_id = Job.objects.filter(queue="old").order_by("pk").values_list("pk", flat=True)[0]
    heir = pruning(workers, tmp_path / "prune-2.log")
    sizes: list[int] = []

    def ended() -> bool:
        sizes.append(0 if Job.objects.filter(pk=next_id).exists() else memory_of(heir))
        return not heir.alive

    try:
        wait_until(ended, "all other jobs are deleted", 200 + number / 1_000)
        assert heir.wait() == 0
        assert "could not be deleted" in heir.text
    finally:
        heir.clean_up()
    held = [size for size in sizes if size]
    assert len(held) > 2
    assert max(held) - held[0] < 100 * MEGABYTE, held
    assert set(Job.objects.values_list("pk", flat=True)) == {protected.pk, *(job.pk for job in kept)}
    assert set(Event.objects.values_list("job_id", flat=True)) == {protected.pk}
    told = JobEvent.objects.exclude(name="job.deleted").exclude(job_id__in=[job.pk for job in kept])
    assert list(told.values_list("job_id", flat=True)) == [protected.pk] * CHILDREN


def test_the_leader_is_killed_during_a_deletion_and_another_one_continues_it_beside_new_work(workers: Workers) -> None:
    number = 40_000 if connection.vendor == "postgresql" else 10_000
    with connection.cursor() as cursor:
        cursor.execute(JOBS[connection.vendor][1], [number])
    settings = {"DELETE_AFTER": {"SUCCESS": 3600}}
    started = [workers.start(**settings) for _ in range(2)]
    old = Job.objects.filter(queue="old")
    tenth = old.order_by("pk").values_list("pk", flat=True)[number // 10]
    wait_until(lambda: not Job.objects.filter(pk=tenth).exists(), "a tenth has gone", 100)
    leader = next(one for one in started if one.worker_id == lease("apply_retention"))
    leader.kill()
    assert old.exists()
    fresh = [workers.enqueue(tasks.work, 0) for _ in range(20)]
    wait_until(lambda: not old.exists(), "all have gone", 100)
    for job in fresh:
        wait_for(job, "SUCCESS")
    [other] = [one for one in started if one is not leader]
    assert lease("apply_retention") == other.worker_id
    assert other.stop() == 0


def lease(duty: str) -> str:
    """Return which worker leads a duty."""
    return BackgroundJobLease.objects.values_list("held_by_worker_id", flat=True).get(pk=duty)


def memory_of(process: WorkerProcess) -> int:
    """Return how much memory a process holds; 0 where it has just ended."""
    try:
        found: Any = psutil.Process(process.pid).memory_info().rss
    except psutil.Error:
        return 0
    return int(found)
