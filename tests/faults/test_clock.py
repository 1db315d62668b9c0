"""The wall clock of a worker's machine jumps, without any effect on jobs (PostgreSQL)."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from tests.faults import tasks
from tests.faults.harness import Workers, job_id, row, wait_for, wait_until, wait_until_started

# With SQLite the clock of the process is the database's.
pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.postgresql, pytest.mark.django_db]

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


@pytest.fixture
def set_clock(workers: Workers) -> Callable[[str], object]:
    """Return a function that moves the wall clock of the workers."""
    if not LIBRARIES:
        pytest.skip("it needs the Debian package faketime")
    file = workers.directory / "clock"
    file.write_text("+0")
    return file.write_text


@pytest.fixture
def environment(workers: Workers) -> dict[str, str]:
    """Return what makes a worker see that clock; the monotonic one stays as it is."""
    return {
        "LD_PRELOAD": str(LIBRARIES[0]),
        "FAKETIME_TIMESTAMP_FILE": str(workers.directory / "clock"),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


@pytest.mark.parametrize("jump", ["+1h", "-1h"])
def test_a_wall_clock_that_jumps_moves_no_job(
    workers: Workers, set_clock: Callable[[str], object], environment: dict[str, str], jump: str
) -> None:
    worker = workers.start(environment=environment, MIN_WORKERS=6, MAX_WORKERS=6).ready()
    other = workers.start(MIN_WORKERS=1, MAX_WORKERS=1).ready()
    long = [workers.enqueue(task, 6) for task in (tasks.wait, tasks.awork)]  # time.sleep is what the library cannot fake
    wait_until_started(workers.witness, *long)
    scheduled = workers.enqueue(tasks.wait, 0, run_after=timedelta(seconds=3))
    later = workers.enqueue(tasks.wait, 0, run_after=timedelta(minutes=30))
    retried = workers.enqueue(tasks.fail_once)
    set_clock(jump)
    wait_until(lambda: abs(wait_for(workers.enqueue(tasks.wall_clock), "SUCCESS").result - time.time()) > 1800, "a task sees the jump")
    for _ in range(5):
        began = time.monotonic()
        wait_for(workers.enqueue(tasks.wait, 0), "SUCCESS", seconds=5)
        assert time.monotonic() - began < 2, "the loops are in pace"
    assert wait_for(scheduled, "SUCCESS").attempt == 1
    assert wait_for(retried, "SUCCESS").attempt == 2
    for job in long:
        done = wait_for(job, "SUCCESS")
        assert (done.attempt, done.crashes) == (1, 0)
        assert 5.5 < (done.finished_at - done.started_at).total_seconds() < 8
    set_clock("+0")
    wait_for(workers.enqueue(tasks.wait, 0), "SUCCESS", seconds=5)
    assert workers.witness.count("start", job_id(later)) == 0
    assert row(later).status == "PENDING"
    assert {workers.witness.count("start", job_id(job)) for job in (*long, scheduled)} == {1}
    assert "Traceback" not in worker.text_without_failures
    assert "leases may be lost" not in worker.text
    wait_until(lambda: worker.alive and other.alive, "both workers live")
    assert (worker.stop(), other.stop()) == (0, 0)
