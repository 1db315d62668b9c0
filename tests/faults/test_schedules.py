"""Schedules on real workers: the leader is killed repeatedly, and is stopped during a tick; each tick gets one job."""

from __future__ import annotations

import itertools
import signal
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobqueue.models import Job, Schedule, ScheduleTick
from jobqueue.schedules import ticks
from tests.faults.harness import WorkerProcess, Workers, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.django_db]
TASK = "tests.faults.tasks.work"


def nominal_times() -> Counter[str]:
    """Count the jobs of each nominal time."""
    return Counter(metadata["schedule"]["nominal_at"] for metadata in Job.objects.values_list("metadata", flat=True))


def leader(started: list[WorkerProcess]) -> WorkerProcess | None:
    """Return the worker that leads the duty now, according to the rows."""
    for one in started:
        if one.alive and "now leads" in one.text and "enqueue_scheduled_jobs" in one.text:
            return one
    return None


def test_each_tick_gets_one_job_although_leaders_are_killed_and_stopped(workers: Workers) -> None:
    assert ticks.create(Schedule(name="each second", task=TASK, args=[0], interval_seconds=1, missed="all", missed_limit=1000))
    started = [workers.start() for _ in range(2)]
    wait_until(lambda: len(nominal_times()) >= 3, "it is enqueued", 30)
    for number, what in enumerate((signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL)):
        first = wait_until(lambda: leader(started), "a worker leads")
        first.send(what)
        started.append(workers.start())
        before = len(nominal_times())
        wait_until(lambda before=before: len(nominal_times()) >= before + 4, f"enqueueing continues after {number + 1} losses", 40)
        if what == signal.SIGSTOP:
            first.send(signal.SIGCONT)
        else:
            first.process.wait(10)
        started.remove(first)
    Schedule.objects.update(enabled=False)
    found = nominal_times()
    assert set(found.values()) == {1}, found
    times = sorted(map(datetime.fromisoformat, found))
    assert {later - earlier for earlier, later in itertools.pairwise(times)} == {timedelta(seconds=1)}, "none is missing"
    assert ScheduleTick.objects.count() == len(found)


def test_a_time_that_falls_into_a_restart_comes_once(workers: Workers) -> None:
    assert ticks.create(Schedule(name="now and then", task=TASK, args=[0], interval_seconds=3600))
    due = timezone.now().replace(minute=0, second=0, microsecond=0)
    Schedule.objects.update(next_at=due)
    for _ in range(2):
        worker: Any = workers.start().ready()
        wait_until(lambda: Job.objects.filter(status="SUCCESS").count() == 1, "the job has run", 30)
        assert worker.stop() == 0
    assert ScheduleTick.objects.count() == 1
    [after] = Schedule.objects.values_list("next_at", flat=True)
    assert after > due
