"""Slots follow the load in a real worker process: up at once, down after a quiet time, and no job is lost."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from jobqueue import enqueue_many
from jobqueue.models import Job, Worker
from tests.faults import tasks
from tests.faults.harness import WorkerProcess, Workers, database_entry, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

LEAST, MOST = 2, 8
SETTINGS: dict[str, Any] = {"MIN_WORKERS": LEAST, "MAX_WORKERS": MOST, "SCALE_SECONDS": 1}
# The quiet time of ten seconds, the next check, and a margin for a slow machine.
SHRINK_SECONDS = 16.0


def slots() -> int:
    """Return how many slots the worker shows."""
    return int(Worker.objects.values_list("slots", flat=True).get())


def threads(worker: WorkerProcess) -> int:
    """Return how many threads the process has, as the kernel counts them."""
    return len(list(Path(f"/proc/{worker.pid}/task").iterdir()))


def sessions() -> int:
    """Return how many connections the worker's slots have: those of its services have a name; none are counted on SQLite."""
    if connection.vendor != "postgresql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend' AND application_name NOT LIKE 'jobqueue %'"
        )
        return int(cursor.fetchone()[0])


def rest(seconds: float) -> None:
    """Pause the load for a while: the test checks the reaction to this wave."""
    threading.Event().wait(seconds)


def begun(worker: WorkerProcess) -> int:
    """Return the threads of a worker that rests: its services have started, and no job has needed a thread yet."""
    worker.ready()
    wait_until(lambda: Worker.objects.filter(slots=LEAST).exists(), "the worker shows itself")
    found: list[int] = []

    def steady() -> bool:
        found.append(threads(worker))
        return len(found) > 10 and len(set(found[-10:])) == 1

    wait_until(steady, "the worker has started all of its threads")
    return found[-1]


@pytest.mark.slow
@pytest.mark.session  # and counts those of the jobs
def test_a_burst_makes_slots_at_once_and_a_quiet_time_takes_them_away_with_their_connections(workers: Workers) -> None:
    worker = workers.start(**SETTINGS)
    rested = begun(worker)
    # On SQLite an open transaction blocks all other writers.
    task = tasks.hold_connection if connection.vendor == "postgresql" else tasks.work
    enqueue_many(task, [((2.0,), {})] * 200)
    wait_until(lambda: Job.objects.current.filter(status="RUNNING").count() == MOST, "as many jobs run as there may", 2)
    wait_until(lambda: slots() == MOST, "the worker shows its slots", 1)
    most = [0, 0]

    def two_rounds_done() -> bool:
        most[:] = max(most[0], threads(worker) - rested), max(most[1], sessions())
        return Job.objects.current.filter(status="SUCCESS").count() >= 2 * MOST

    wait_until(two_rounds_done, "two rounds are done", 15)
    assert most[0] == MOST, "a thread for each job that runs, and none over the bound"
    assert most[1] <= MOST
    assert connection.vendor != "postgresql" or most[1] == MOST, "the jobs used their connections, or the count says nothing"
    for job in Job.objects.current.filter(status="QUEUED"):
        job.cancel()
    wait_until(lambda: not Job.objects.current.filter(status__in=["QUEUED", "RUNNING"]).exists(), "the burst is over", 20)
    wait_until(lambda: slots() == LEAST, "the slots are as few as before", SHRINK_SECONDS)
    wait_until(lambda: threads(worker) == rested + LEAST, "the threads are as few as the slots")
    wait_until(lambda: sessions() <= LEAST, "their connections went with them")
    ends = set(Job.objects.values_list("status", "attempt", "crashes"))
    assert ends <= {("SUCCESS", 1, 0), ("CANCELED", 0, 0), ("CANCELED", 1, 0)}, "the last: claimed before it was canceled"
    told = [line.partition("INFO ")[2] for line in worker.text.splitlines() if "Slots: " in line]
    assert told[0].startswith("Slots: 2 to 8 (")
    assert told[-1].endswith(" to 2 (0 running, 0 claimable, between 2 and 8): no more were needed for 10 s."), told
    assert len(told) <= 4, "up at once; down once, or in steps where the last jobs end one by one"
    assert Worker.objects.get().scaling["why"] == "no more were needed for 10 s"
    assert worker.stop() == 0


@pytest.mark.slow
def test_a_long_job_is_not_cut_off_and_a_sawtooth_changes_nothing_while_it_lasts(workers: Workers) -> None:
    worker = workers.start(**SETTINGS)
    rested = begun(worker)
    long = tasks.work.enqueue(30)
    for wave in range(1, 5):
        enqueue_many(tasks.work, [((0.3,), {})] * 24)
        wait_until(lambda wave=wave: Job.objects.current.filter(status="SUCCESS").count() == 24 * wave, "the wave is over")
        rest(1.5)
    assert worker.text.count("Slots: ") == 1
    wait_until(lambda: slots() == LEAST, "only the unneeded slots are gone", SHRINK_SECONDS)
    assert Job.objects.get(pk=long.job_id).status == "RUNNING", "or the test says nothing"
    wait_until(lambda: Job.objects.get(pk=long.job_id).status == "SUCCESS", "the long job ends", 25)
    assert threads(worker) == rested + LEAST
    assert workers.witness.starts()[long.job_id] == 1
    assert worker.stop() == 0


@pytest.mark.slow
def test_sigterm_in_a_burst_loses_nothing(workers: Workers) -> None:
    first = workers.start(**SETTINGS)
    begun(first)
    enqueue_many(tasks.work, [((0.5,), {})] * 60)
    wait_until(lambda: slots() > LEAST, "the slots grow", 2)
    assert first.stop() == 0
    left = Job.objects.current.filter(status="QUEUED").count()
    assert left > 0, "or the burst was over before"
    assert set(Job.objects.values_list("status", "attempt", "crashes")) <= {("SUCCESS", 1, 0), ("QUEUED", 0, 0)}
    second = workers.start("--once", **SETTINGS)
    assert second.wait(30) == 0
    assert set(Job.objects.values_list("status", "attempt", "crashes")) == {("SUCCESS", 1, 0)}
    assert set(workers.witness.starts().values()) == {1}
    assert len(workers.witness.starts()) == 60


@pytest.mark.postgresql
def test_slots_stay_within_the_pool_of_connections_and_no_job_waits_for_one_in_vain(workers: Workers) -> None:
    entry = database_entry()
    pool = {"min_size": 1, "max_size": 5, "timeout": 0.3}  # shorter than a job: one thread more than it serves would fail its job
    entry |= {"CONN_MAX_AGE": 0, "OPTIONS": {**entry["OPTIONS"], "pool": pool}}
    worker = workers.start(database=entry, **SETTINGS)
    begun(worker)
    enqueue_many(tasks.hold_connection, [((0.6,), {})] * 12)
    wait_until(lambda: not Job.objects.current.filter(status__in=["QUEUED", "RUNNING"]).exists(), "the burst is over", 20)
    assert set(Job.objects.values_list("status", "message", "attempt")) == {("SUCCESS", "", 1)}
    wait_until(lambda: Worker.objects.get().scaling.get("after") == 4, "the worker reports its slots", 12)
    assert worker.stop() == 0
    assert "the connection pool has no more connections." in worker.text
