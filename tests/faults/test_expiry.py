"""Jobs that have expired while no worker ran are canceled by the first worker, and none of them runs."""

import pytest

from jobqueue import clock
from jobqueue.lifecycle.outcome import EXPIRED
from jobqueue.models import Job
from tests.faults import tasks
from tests.faults.harness import Workers, row, wait_for

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]


def test_a_worker_that_comes_late_runs_none_of_them(workers: Workers) -> None:
    late = [tasks.work.using(expires=3600, target=target).enqueue() for target in (None, None, "t", "t")]
    alate = tasks.awork.using(expires=3600).enqueue()
    Job.objects.update(expires_at=clock.now())
    good = [tasks.work.using(target=target).enqueue() for target in (None, "t")]
    worker = workers.start().ready()
    for job in good:
        wait_for(job, "SUCCESS")
    for job in (*late, alate):
        assert wait_for(job, "CANCELED").message == EXPIRED
        assert row(job).attempt == 0
    assert worker.stop() == 0
    assert f"({EXPIRED})" in worker.text
    assert sum(workers.witness.starts().values()) == len(good)
