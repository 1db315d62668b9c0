"""`runworkers --processes N`: workers that die are replaced, their jobs are recovered at once, signals are passed on once."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from jobqueue.models import LeftWorker, Worker
from tests.faults import leftovers, tasks
from tests.faults.harness import ROOT, WorkerProcess, Workers, job_id, row, state, wait_for, wait_until
from tests.faults.proc import processes

pytestmark = [
    pytest.mark.faults,
    pytest.mark.django_db,
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="it reads /proc"),
]

LONG_LEASE: dict[str, Any] = {"LEASE_SECONDS": 60, "HEARTBEAT_SECONDS": 1}
ONE_SLOT: dict[str, Any] = {"MIN_WORKERS": 1, "MAX_WORKERS": 1}


def served(parent: WorkerProcess) -> list[tuple[int, str, int]]:
    """Return number, identity and pid of each worker that has reported that it serves, in order."""
    found = re.findall(r"Worker process (\d+) is worker ([0-9a-f-]{36}) \(pid (\d+)\)", parent.text)
    return [(int(number), identity, int(pid)) for number, identity, pid in found]


def serving(parent: WorkerProcess, number: int) -> list[tuple[int, str, int]]:
    """Wait until this number of workers have served in all."""
    wait_until(lambda: len(served(parent)) >= number or not parent.alive, f"{number} workers serve", 30)
    assert parent.alive, parent.text
    return served(parent)


def children(pid: int) -> dict[int, str]:
    """Return the children of a process, and the state of each."""
    return {one.pid: one.state for one in processes() if one.parent == pid}


def gone(pid: int) -> bool:
    """Return whether a process has ended; one that waits for its parent to ask has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_worker_that_is_killed_is_replaced_and_its_jobs_run_again_at_once(workers: Workers) -> None:
    jobs = [workers.enqueue(tasks.wait, 60) for _ in range(2)]
    parent = workers.start("--processes", "2", **LONG_LEASE, **ONE_SLOT)
    pids = {identity: pid for _, identity, pid in serving(parent, 2)}
    for job in jobs:
        wait_for(job, "RUNNING")
    assert children(parent.pid).keys() == {*pids.values()}
    victim = row(jobs[0]).lease_owner
    killed_at = time.monotonic()
    os.kill(pids[victim], signal.SIGKILL)
    wait_until(lambda: row(jobs[0]).lease_owner not in ("", victim), "another worker runs it")
    assert time.monotonic() - killed_at < 10, "long before its lease of 60 s"
    assert (row(jobs[0]).crashes, row(jobs[1]).crashes) == (1, 0)
    assert len(serving(parent, 3)) == 3
    wait_until(lambda: LeftWorker.objects.filter(worker=victim, how="killed").exists(), "it is recorded how the worker left")
    assert "S" in {*children(parent.pid).values()}
    assert "Z" not in {*children(parent.pid).values()}
    assert "was killed by signal 9; a new one starts now" in parent.text
    parent.hurry()
    assert parent.wait() == 0
    assert [state(job) for job in jobs] == ["QUEUED", "QUEUED"]


def test_jobs_are_recovered_where_all_workers_die_together(workers: Workers) -> None:
    job = workers.enqueue(tasks.work, 3)
    parent = workers.start("--processes", "2", **LONG_LEASE, **ONE_SLOT)
    pids = [pid for _, _, pid in serving(parent, 2)]
    wait_for(job, "RUNNING")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert wait_for(job, "SUCCESS").attempt == 2
    assert parent.stop() == 0


def test_the_jobs_of_a_worker_that_dies_at_the_very_end_are_recovered_by_the_parent(workers: Workers) -> None:
    job = workers.enqueue(tasks.wait, 60)
    parent = workers.start("--processes", "1", **LONG_LEASE)
    (_, _, pid) = serving(parent, 1)[0]
    wait_for(job, "RUNNING")
    parent.terminate()
    wait_until(lambda: Worker.objects.filter(pid=pid, state=Worker.State.DRAINING).exists(), "its row says that the worker drains")
    os.kill(pid, signal.SIGKILL)
    assert parent.wait() == 1, "not all ended as they should"
    assert (row(job).status, row(job).crashes, row(job).lease_owner) == ("QUEUED", 0, ""), "it was stopping: no crash of the job"


def test_a_signal_that_reaches_all_processes_counts_once(workers: Workers) -> None:
    job = workers.enqueue(tasks.work, 2)
    parent = workers.start("--processes", "2")
    pids = [pid for _, _, pid in serving(parent, 2)]
    wait_for(job, "RUNNING")
    for pid in (parent.pid, *pids):  # as a service manager does
        os.kill(pid, signal.SIGTERM)
    assert parent.wait() == 0
    assert (state(job), row(job).attempt) == ("SUCCESS", 1), "its grace was not cut short"


def test_a_second_signal_skips_the_grace_in_every_worker(workers: Workers) -> None:
    jobs = [workers.enqueue(tasks.wait, 60) for _ in range(2)]
    parent = workers.start("--processes", "2", **ONE_SLOT)
    serving(parent, 2)
    for job in jobs:
        wait_for(job, "RUNNING")
    parent.terminate()
    wait_until(lambda: parent.text.count("Stopping: ") == 2, "both drain")
    parent.terminate()
    assert parent.wait() == 0
    assert [(row(job).status, row(job).attempt) for job in jobs] == [("QUEUED", 0)] * 2


def test_workers_end_in_order_when_their_parent_is_killed(workers: Workers) -> None:
    job = workers.enqueue(tasks.work, 2)
    parent = workers.start("--processes", "2")
    pids = [pid for _, _, pid in serving(parent, 2)]
    wait_for(job, "RUNNING")
    parent.kill()
    wait_until(lambda: all(gone(pid) for pid in pids), "its workers have ended")
    assert (state(job), row(job).attempt) == ("SUCCESS", 1)


def test_one_worker_can_be_replaced_by_a_signal_to_it_alone(workers: Workers) -> None:
    parent = workers.start("--processes", "2")
    first = serving(parent, 2)[0]
    os.kill(first[2], signal.SIGTERM)
    assert serving(parent, 3)[2][0] == first[0], "the new one takes its place"
    assert parent.stop() == 0


def test_workers_that_die_at_their_start_end_the_command_after_some_tries(workers: Workers, tmp_path: Path) -> None:
    (tmp_path / "brokenly.py").write_text("import os\nos._exit(5)\n")
    parent = workers.start("--processes", "2", TASK_MODULES=["brokenly"], environment={"PYTHONPATH": str(tmp_path)})
    assert parent.wait(60) == 1
    assert parent.text.count("ended with status 5 before it served") == 5, parent.text
    assert "failed to start 5 times in a row; shutting down" in parent.text


def test_a_worker_that_cannot_be_started_does_not_prevent_recovery(workers: Workers) -> None:
    jobs = [workers.enqueue(tasks.wait, 60) for _ in range(2)]
    parent = workers.start("--processes", "2", **LONG_LEASE, **ONE_SLOT)
    pids = {identity: pid for _, identity, pid in serving(parent, 2)}
    for job in jobs:
        wait_for(job, "RUNNING")
    limits = resource.prlimit(parent.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(parent.pid, resource.RLIMIT_NOFILE, (3, limits[1]))  # what is open stays so
    victim = row(jobs[0]).lease_owner
    os.kill(pids[victim], signal.SIGKILL)
    wait_until(lambda: row(jobs[0]).crashes == 1, "its job is recovered, long before its lease ends", 15)
    wait_until(lambda: "could not be started ([Errno 24] Too many open files)" in parent.text, "the parent logs the reason")
    assert parent.alive
    resource.prlimit(parent.pid, resource.RLIMIT_NOFILE, limits)
    assert len(serving(parent, 3)) == 3
    parent.hurry()
    assert parent.wait() == 0


def test_a_signal_to_all_while_workers_are_starting_is_no_failure(workers: Workers, tmp_path: Path) -> None:
    (started := tmp_path / "started").mkdir()
    lines = [
        "import os, sys, time",
        "if 'JOBQUEUE_CHILD' in os.environ:",
        f"    open(f'{started}/{{os.getpid()}}', 'w').close()",
        "    time.sleep(60)",
        "from tests.faults.settings import *",
    ]
    (tmp_path / "slow_settings.py").write_text("\n".join(lines))
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "DJANGO_SETTINGS_MODULE": "slow_settings"}
    parent = workers.start("--processes", "2", environment=environment)
    wait_until(lambda: len(list(started.iterdir())) == 2 or not parent.alive, "both are starting", 30)
    for pid in (parent.pid, *children(parent.pid)):
        with contextlib.suppress(ProcessLookupError):  # its parent has passed the signal on already
            os.kill(pid, signal.SIGTERM)
    assert parent.wait() == 0, parent.text
    assert "ERROR" not in parent.text


def test_a_worker_that_gives_no_sign_of_life_is_killed_and_replaced(workers: Workers) -> None:
    job = workers.enqueue(tasks.work, 3)
    parent = workers.start("--processes", "1", LEASE_SECONDS=1, HEARTBEAT_SECONDS=0.3)
    (_, _, pid) = serving(parent, 1)[0]
    wait_for(job, "RUNNING")
    os.kill(pid, signal.SIGSTOP)
    assert wait_for(job, "SUCCESS", seconds=30).attempt == 2
    assert "has not responded for 7 s; it is killed" in parent.text
    assert gone(pid)
    assert parent.stop() == 0


def test_a_worker_whose_task_keeps_pythons_lock_is_replaced(workers: Workers) -> None:
    bad = workers.enqueue(tasks.backtrack, timeout=1)
    parent = workers.start("--processes", "1", LEASE_SECONDS=1, HEARTBEAT_SECONDS=0.3, MAX_CRASHES=1, **ONE_SLOT)
    wait_for(bad, "RUNNING", seconds=30)
    behind = workers.enqueue(tasks.work)
    assert wait_for(bad, "ERROR", seconds=30).crashes == 1
    assert "has not responded for 7 s; it is killed" in parent.text
    wait_for(behind, "SUCCESS")
    assert parent.stop() == 0


def test_a_worker_is_replaced_for_a_task_that_does_not_react_to_its_time_limit(workers: Workers) -> None:
    hung = workers.enqueue(tasks.swallow, 60, timeout=0.5, target="customer:7")
    behind = workers.enqueue(tasks.work, target="customer:7")
    beside = workers.enqueue(tasks.work, 4)
    parent = workers.start("--processes", "1", TIMEOUT_GRACE_SECONDS=1)
    serving(parent, 2)
    assert [(row(job).status, row(job).attempt, row(job).crashes) for job in (hung, beside)] == [("ERROR", 1, 0), ("SUCCESS", 1, 0)]
    assert "time limit of 0.5 s" in row(hung).message
    assert f"(job {job_id(hung)} does not react to its time limit); a new one starts now" in parent.text
    assert state(behind) != "SUCCESS", "the one in ERROR holds the target"
    retried = workers.enqueue(tasks.swallow_once, 60, timeout=0.5)
    assert wait_for(retried, "SUCCESS", seconds=30).attempt == 2
    assert parent.stop() == 0


def test_a_task_that_keeps_pythons_lock_beyond_its_limit_is_ended_soon_and_its_neighbors_are_not_blamed(workers: Workers) -> None:
    beside = workers.enqueue(tasks.wait_once)
    parent = workers.start("--processes", "1", TIMEOUT_GRACE_SECONDS=0.5, HARD_TIMEOUT_GRACE_SECONDS=2, MAX_CRASHES=1, **LONG_LEASE)
    wait_for(beside, "RUNNING", seconds=30)
    began = time.monotonic()
    bad = workers.enqueue(tasks.backtrack, timeout=1)
    assert wait_for(bad, "ERROR", seconds=30).crashes == 1
    assert time.monotonic() - began < 15, "long before the lease of 60 s"
    assert f"does not respond, and job {job_id(bad)} exceeded its time limit more than 2.5 s ago; it is killed" in parent.text
    assert wait_for(beside, "SUCCESS", seconds=30).crashes == 0
    assert parent.stop() == 0


def test_a_process_with_an_overdue_run_ends_within_the_hard_grace_and_hands_its_neighbors_back(workers: Workers) -> None:
    beside = workers.enqueue(tasks.wait_once)
    parent = workers.start("--processes", "1", TIMEOUT_GRACE_SECONDS=0.5, HARD_TIMEOUT_GRACE_SECONDS=6, **LONG_LEASE)
    wait_for(beside, "RUNNING", seconds=30)
    hung = workers.enqueue(tasks.swallow, 60, timeout=0.5)
    wait_until(lambda: "does not react to its time limit" in parent.text or "its process is replaced" in parent.text, "it is overdue")
    overdue = time.monotonic()
    wait_until(lambda: re.search(r"Worker process 1 (ended|was killed)", parent.text), "its process has ended")
    assert time.monotonic() - overdue < 7.5
    assert "was killed" not in parent.text
    assert wait_for(beside, "SUCCESS", seconds=30).crashes == 0
    assert (row(hung).status, row(hung).crashes) == ("ERROR", 0)
    assert parent.stop() == 0


def test_a_worker_is_replaced_after_its_number_of_jobs(workers: Workers) -> None:
    jobs = [workers.enqueue(tasks.work, 0.02) for _ in range(60)]
    parent = workers.start("--processes", "2", "--max-jobs-per-process", "10")
    for job in jobs:
        assert wait_for(job, "SUCCESS", seconds=60).attempt == 1, "no job was broken off"
    assert len(served(parent)) > 2
    assert re.search(r"Worker process \d ended with status 0 \(\d+ jobs done\); a new one starts now", parent.text)
    assert parent.stop() == 0


def test_a_worker_that_has_grown_is_replaced(workers: Workers) -> None:
    workers.enqueue(tasks.grow, 300)
    parent = workers.start("--processes", "1", "--max-rss-mb", "300")
    serving(parent, 2)
    assert re.search(r"ended with status 0 \(\d{3} MB of memory\); a new one starts now", parent.text)
    assert parent.stop() == 0


def test_once_ends_when_all_workers_have_nothing_left_to_do(workers: Workers) -> None:
    jobs = [workers.enqueue(tasks.work, 0.05) for _ in range(20)]
    assert workers.start("--processes", "2", "--once").wait(60) == 0
    assert {state(job) for job in jobs} == {"SUCCESS"}
    workers.enqueue(tasks.fatal)
    failing = workers.start("--processes", "2", "--once", "--fail-on-error")
    assert failing.wait(60) == 1
    assert "killed" not in failing.text


@pytest.mark.parametrize("way", ["recycled", "killed"])
def test_fail_on_error_counts_a_job_that_failed_in_a_replaced_worker(workers: Workers, way: str) -> None:
    failed = workers.enqueue(tasks.fatal)
    others = [workers.enqueue(tasks.work, 0.1) for _ in range(10)]
    more = ("--max-jobs-per-process", "3") if way == "recycled" else ()
    parent = workers.start("--processes", "1", "--once", "--fail-on-error", *more, MIN_WORKERS=1, MAX_WORKERS=1, **LONG_LEASE)
    if way == "killed":
        wait_for(failed, "ERROR")
        os.kill(next(iter(children(parent.pid))), signal.SIGKILL)
    assert parent.wait(60) == 1
    assert "a new one starts" in parent.text
    assert {state(job) for job in others} == {"SUCCESS"}


def test_once_finishes_the_jobs_of_a_worker_that_dies(workers: Workers) -> None:
    dying = workers.enqueue(tasks.die, 0.1)
    others = [workers.enqueue(tasks.work, 0.05) for _ in range(10)]
    parent = workers.start("--processes", "2", "--once", MAX_CRASHES=2, **LONG_LEASE)
    assert parent.wait(60) == 0
    assert state(dying) == "ERROR"
    assert {state(job) for job in others} == {"SUCCESS"}


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="it takes root and unshare to be process 1")
def test_as_the_first_process_of_a_container_it_leaves_no_zombies(workers: Workers) -> None:
    inside = workers.start("--processes", "2", prefix=("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"))
    serving(inside, 2)
    first = next(iter(children(inside.pid)))
    assert wait_for(workers.enqueue(leftovers.leave_an_orphan), "SUCCESS").result > 1
    orphan = wait_until(lambda: children(first).keys() - {pid for pid in children(first) if not is_orphan(pid)}, "the orphan is its child")
    wait_until(lambda: all(gone_for_good(pid) for pid in orphan), "the orphan has ended, and nothing is left of it")
    os.kill(first, signal.SIGTERM)
    assert inside.wait() == 0


def is_orphan(pid: int) -> bool:
    """Return whether a process is the one that the task left behind."""
    try:
        return b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes() or gone(pid)
    except OSError:
        return False


def gone_for_good(pid: int) -> bool:
    """Return whether nothing is left of a process, not even its exit code."""
    return not Path(f"/proc/{pid}").exists()


def test_wrong_options_of_processes_are_refused(workers: Workers) -> None:
    wrong = {
        "--processes=0": "--processes is 0; it must be a whole number, 1 or more",
        "--processes=5000": "--processes is 5000; it must be at most 1000",
        "--max-rss-mb=100": "--max-rss-mb needs --processes",
        "--processes=1 --max-jobs-per-process=0": "--max-jobs-per-process is 0",
    }
    started = {options: workers.start(*options.split()) for options in wrong}
    for options, worker in started.items():
        assert worker.wait() == 1, options
        assert wrong[options] in worker.text, worker.text
