"""Tasks that fork, and tasks that change what belongs to their thread."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults import tasks
from tests.faults.harness import Workers, job_id, wait_for, wait_until
from tests.faults.proc import processes

pytestmark = [pytest.mark.faults, pytest.mark.django_db]


def group_of(pid: int) -> list[int]:
    """Return the processes of a process group; every worker of these tests leads one."""
    return [one.pid for one in processes() if one.group == pid and one.state != "Z"]


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="it counts processes in /proc")
def test_the_child_of_a_task_never_comes_back_into_the_worker(workers: Workers) -> None:
    forks = {how: workers.enqueue(tasks.fork, how) for how in ("return", "raise", "exit")}
    behind = [workers.enqueue(tasks.work) for _ in range(20)]
    worker = workers.start(MIN_WORKERS=2, MAX_WORKERS=2).ready()
    assert {how: wait_for(job, "SUCCESS").result for how, job in forks.items()} == {"return": 0, "raise": 1, "exit": 3}
    for job in behind:
        wait_for(job, "SUCCESS")
    assert {workers.witness.count("start", job_id(job)) for job in (*forks.values(), *behind)} == {1}
    assert group_of(worker.pid) == [worker.pid], "no copy of the worker is left"
    assert worker.stop() == 0


def test_time_zone_and_language_of_a_task_do_not_stay_with_its_thread(workers: Workers) -> None:
    before = workers.enqueue(tasks.place)
    changing = workers.enqueue(tasks.change_place, "Asia/Tokyo")
    after = workers.enqueue(tasks.place)
    worker = workers.start(MIN_WORKERS=1, MAX_WORKERS=1).ready()
    usual = wait_for(before, "SUCCESS").result
    wait_for(changing, "SUCCESS")
    assert wait_for(after, "SUCCESS").result == usual
    assert usual[0] != "Asia/Tokyo"
    assert worker.stop() == 0


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="it counts processes in /proc")
def test_the_child_of_a_duty_never_comes_back_into_the_worker(workers: Workers, tmp_path: Path) -> None:
    log = tmp_path / "acts"
    worker = workers.start(environment={"FAULTS_FORKING_DUTY": str(log)}).ready()
    wait_until(lambda: log.exists() and len(log.read_text().split()) > 5, "the duty has run")
    assert {*log.read_text().split()} == {str(worker.pid)}
    assert worker.stop() == 0
