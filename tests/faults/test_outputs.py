"""Outputs that nothing reads: the worker continues, and ends on request."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests.faults import tasks
from tests.faults.harness import Workers, row, wait_for, wait_until
from tests.faults.test_processes import children

pytestmark = [pytest.mark.faults, pytest.mark.django_db]


@pytest.fixture
def full() -> Iterator[int]:
    """Yield the writing end of a pipe that is full and that nothing reads."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 65_536)
    except BlockingIOError:
        os.set_blocking(writer, True)
    yield writer
    for end in (reader, writer):
        os.close(end)


@pytest.mark.parametrize("options", [(), ("--processes", "1")])
def test_a_worker_whose_output_is_never_read_runs_jobs_and_ends_in_order(workers: Workers, full: int, options: tuple[str, ...]) -> None:
    jobs = [workers.enqueue(tasks.fail_loudly, 3000) for _ in range(40)]
    worker = workers.start(*options, output=full)
    for job in jobs:
        wait_for(job, "ERROR", seconds=30)
    last = workers.enqueue(tasks.work)
    assert wait_for(last, "SUCCESS").attempt == 1
    running = workers.enqueue(tasks.work, 1)
    wait_for(running, "RUNNING")
    worker.terminate()
    began = time.monotonic()
    assert worker.wait() == 0
    assert time.monotonic() - began < 10
    assert (row(running).status, row(running).attempt) == ("SUCCESS", 1)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="it reads /proc")
def test_a_worker_process_whose_output_is_never_read_is_replaced_when_it_dies(workers: Workers, full: int) -> None:
    parent = workers.start("--processes", "1", output=full)
    assert wait_for(workers.enqueue(tasks.work), "SUCCESS", seconds=30)
    (first,) = children(parent.pid)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: children(parent.pid).keys() - {first}, "another worker is started")
    assert wait_for(workers.enqueue(tasks.work), "SUCCESS", seconds=30)
    assert parent.process.poll() is None
    parent.terminate()
    assert parent.wait() == 0


def test_an_error_at_the_start_ends_the_command_though_its_output_is_never_read(workers: Workers, full: int) -> None:
    worker = workers.start("--lease-seconds", "0", output=full)
    assert worker.wait() == 1
