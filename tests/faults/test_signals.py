"""Signals at the very start, as process 1, and SIGQUIT."""

from __future__ import annotations

import os
import shutil
import signal
import sys

import pytest

from tests.faults import tasks
from tests.faults.harness import Workers, wait_for, wait_until, wait_until_started
from tests.faults.test_processes import children, gone, serving

pytestmark = [pytest.mark.faults, pytest.mark.django_db]


@pytest.mark.parametrize("hold", [False, True])
def test_sigquit_ends_a_worker_at_once_with_the_stacks_of_its_threads(workers: Workers, hold: bool) -> None:
    job = workers.enqueue(tasks.backtrack if hold else tasks.wait)
    worker = workers.start().ready()
    wait_for(job, "RUNNING", seconds=30) if hold else wait_until_started(workers.witness, job)
    worker.send(signal.SIGQUIT)
    code = worker.wait(5)
    # CPython reads the stacks without the GIL. If threads continue to run, this can crash it in the middle of the dump.
    assert code == -signal.SIGQUIT or (code == -signal.SIGSEGV and not hold)
    assert "most recent call first" in worker.text
    if code == -signal.SIGQUIT:
        assert worker.text.count("Thread 0x") > 5


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="it reads /proc")
def test_sigquit_ends_all_worker_processes(workers: Workers) -> None:
    parent = workers.start("--processes", "2")
    pids = [pid for _, _, pid in serving(parent, 2)]
    parent.send(signal.SIGQUIT)
    assert parent.wait(5) == 128 + signal.SIGQUIT
    wait_until(lambda: all(map(gone, pids)), "its workers have ended", 5)
    assert parent.text.count("most recent call first") > 5


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="it takes root and unshare to be process 1")
@pytest.mark.parametrize("program", ["jobqueue", "django"])
def test_process_1_heeds_a_sigterm_that_comes_while_it_starts(workers: Workers, program: str) -> None:
    namespace = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    environment = {"DJANGO_SETTINGS_MODULE": "tests.faults.slow_start"}
    worker = workers.start("runworkers", program=[*namespace, sys.executable, "-m", program], environment=environment)
    wait_until(lambda: "starting" in worker.text, "the apps are being loaded")
    (first,) = children(worker.pid)
    os.kill(first, signal.SIGTERM)
    assert worker.wait(5) == 0
