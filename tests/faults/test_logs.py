"""The log of runs in real workers: a storm, and a worker that is killed."""

from __future__ import annotations

import pytest

from jobqueue.insight.log import LogEntry, log_entries
from jobqueue.models import Job, JobLog
from tests.faults import leftovers
from tests.faults.harness import Workers, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]
STORM = 100_000


def lines(job_id: str) -> list[LogEntry]:
    return list(log_entries(Job.objects.get(pk=job_id)))


def test_a_killed_worker_loses_only_what_was_logged_since_its_heartbeat(workers: Workers) -> None:
    waiting = leftovers.log_and_wait.enqueue(3).job_id
    worker = workers.start().ready()
    wait_until(lambda: len(lines(waiting)) == 3, "the lines of the running job are stored")
    worker.kill()
    assert [line.text for line in lines(waiting)] == ["line 1", "line 2", "line 3"]


def test_a_storm_in_one_job_stays_bounded_and_another_job_runs_meanwhile(workers: Workers) -> None:
    storm, other = leftovers.log_and_wait.enqueue(STORM, 0.0).job_id, leftovers.log_and_wait.enqueue(1, 0.0).job_id
    workers.start().ready()
    most = 0

    def ended() -> bool:
        nonlocal most
        most = max(most, sum(len(row.lines) for row in JobLog.objects.filter(job_id=storm)))
        return Job.objects.filter(pk__in=[storm, other], status="SUCCESS").count() == 2

    wait_until(ended, "both jobs have ended", 60)
    assert lines(storm)[-1].text == f"line {STORM}"
    assert 200 <= len(lines(storm)) <= 400
    assert most < 2 * 64_000
    assert [line.text for line in lines(other)] == ["line 1"]
