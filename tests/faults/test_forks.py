"""Tasks that fork, and tasks that change the state of their thread."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from django.db import connection

from tests.faults import leftovers, tasks
from tests.faults.harness import Workers, job_id, wait_for, wait_until
from tests.faults.proc import processes

pytestmark = [pytest.mark.faults, pytest.mark.django_db]


def group_of(pid: int) -> list[int]:
    """Return the processes of a process group; every worker of these tests leads one."""
    return [one.pid for one in processes() if one.group == pid and one.state != "Z"]


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="it counts processes in /proc")
def test_the_child_of_a_task_never_returns_to_the_worker(workers: Workers) -> None:
    forks = {how: workers.enqueue(leftovers.fork, how) for how in ("return", "raise", "exit")}
    behind = [workers.enqueue(tasks.work) for _ in range(20)]
    worker = workers.start(MIN_WORKERS=2, MAX_WORKERS=2).ready()
    assert {how: wait_for(job, "SUCCESS").result for how, job in forks.items()} == {"return": 0, "raise": 1, "exit": 3}
    for job in behind:
        wait_for(job, "SUCCESS")
    assert {workers.witness.count("start", job_id(job)) for job in (*forks.values(), *behind)} == {1}
    assert group_of(worker.pid) == [worker.pid], "no copy of the worker is left"
    assert worker.stop() == 0


def test_a_child_that_uses_the_database_harms_no_connection_of_its_worker(workers: Workers) -> None:
    jobs = [workers.enqueue(leftovers.query_in_child) for _ in range(8)]
    worker = workers.start(MIN_WORKERS=1, MAX_WORKERS=1).ready()
    behind = [workers.enqueue(tasks.count_rows) for _ in range(8)]
    for job in jobs:
        before, (inside, is_default), after, code = wait_for(job, "SUCCESS", seconds=30).result
        assert (after, is_default, code) == (before, True, 0)
        if connection.vendor == "sqlite":  # which would wait there for locks that only the worker has
            assert "Start the process with subprocess" in inside
        else:
            assert inside == [before] * 2, "each of them read the table"
    assert [wait_for(job, "SUCCESS").attempt for job in behind] == [1] * 8
    assert worker.stop() == 0


def test_a_pool_of_children_can_be_ended_and_a_context_is_refused_there(workers: Workers) -> None:
    ended, refused = workers.enqueue(leftovers.end_pool_of_children), workers.enqueue(leftovers.use_context_in_child)
    worker = workers.start(MIN_WORKERS=2, MAX_WORKERS=2).ready()
    assert wait_for(ended, "SUCCESS").result == "ended"
    said = wait_for(refused, "SUCCESS").result
    assert len(said) == 2
    assert all("only the task's own process can use its context" in text for text in said)
    assert worker.stop() == 0


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="it counts processes in /proc")
def test_no_way_out_of_the_projects_code_leads_a_child_into_the_worker(workers: Workers) -> None:
    phased = workers.enqueue(leftovers.fork_in_phase)
    jobs = {how: workers.enqueue(leftovers.afork, how) for how in ("return", "await", "thread", "sync_to_async")}
    others = [workers.enqueue(tasks.awork, 1) for _ in range(3)]
    worker = workers.start(MIN_WORKERS=8, MAX_WORKERS=8).ready()
    assert {how: wait_for(job, "SUCCESS").result for how, job in jobs.items()} == {"return": 0, "await": 1, "thread": 0, "sync_to_async": 0}
    wait_for(phased, "SUCCESS")
    for job in others:
        wait_for(job, "SUCCESS")
    assert workers.witness.count("second", job_id(phased)) == 1
    told = {how: workers.witness.count("afork", job_id(job)) for how, job in jobs.items()}
    assert told == {"return": 2, "await": 1, "thread": 1, "sync_to_async": 1}, "one for each process that came there"
    assert {workers.witness.count("end", job_id(job)) for job in others} == {1}
    wait_until(lambda: group_of(worker.pid) == [worker.pid], "no copy of the worker is left")
    assert worker.stop() == 0


def test_a_daemon_keeps_nothing_of_a_worker_that_is_killed(workers: Workers) -> None:
    daemon = workers.enqueue(leftovers.leave_a_daemon, 20)
    others = sessions()
    worker = workers.start(MIN_WORKERS=1, MAX_WORKERS=1, LEASE_SECONDS=60).ready()
    left = wait_for(daemon, "SUCCESS").result
    running = workers.enqueue(tasks.work, 2)
    wait_for(running, "RUNNING")
    try:
        assert connection.vendor != "postgresql" or sessions() - others
        worker.kill()
        if connection.vendor == "postgresql":
            wait_until(lambda: not sessions() - others, "the server has ended all sessions of the worker", 8)
        else:  # its lock is free, so its job is recovered at once
            other = workers.start(MIN_WORKERS=1, MAX_WORKERS=1, LEASE_SECONDS=60).ready()
            assert wait_for(running, "SUCCESS", seconds=15).attempt == 2
            assert other.stop() == 0
    finally:
        os.kill(left, signal.SIGKILL)


def sessions() -> set[int]:
    """Return the sessions that clients have with the test's database; a vacuum, for one, is none."""
    if connection.vendor != "postgresql":
        return set()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'")
        return {pid for (pid,) in cursor.fetchall()}


def test_time_zone_and_language_of_a_task_do_not_stay_with_its_thread(workers: Workers) -> None:
    before = workers.enqueue(leftovers.place)
    changing = workers.enqueue(leftovers.change_place, "Asia/Tokyo")
    after = workers.enqueue(leftovers.place)
    worker = workers.start(MIN_WORKERS=1, MAX_WORKERS=1).ready()
    usual = wait_for(before, "SUCCESS").result
    wait_for(changing, "SUCCESS")
    assert wait_for(after, "SUCCESS").result == usual
    assert usual[0] != "Asia/Tokyo"
    assert worker.stop() == 0


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="it counts processes in /proc")
def test_the_child_of_a_duty_never_returns_to_the_worker(workers: Workers, tmp_path: Path) -> None:
    log = tmp_path / "acts"
    worker = workers.start(environment={"FAULTS_FORKING_DUTY": str(log)}).ready()
    wait_until(lambda: log.exists() and len(log.read_text().split()) > 5, "the duty has run")
    assert {*log.read_text().split()} == {str(worker.pid)}
    assert worker.stop() == 0
