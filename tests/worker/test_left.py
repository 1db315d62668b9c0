"""With ``--once`` a worker decides when it may end, against the real database; whole processes: ``tests/faults``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobqueue import conf
from jobqueue.models import Job
from jobqueue.worker.process.drained import RemainingWork
from jobqueue.worker.running.run import Runs
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db


def test_a_job_that_raw_sql_left_parked_behind_a_free_target_is_released_before_once_ends() -> None:
    left = RemainingWork(conf.current(), Runs())
    parked = [JobFactory(target="customer:7", waiting_for_target=True) for _ in range(2)]
    assert [left.is_drained() for _ in range(3)] == [False] * 3
    assert sorted(Job.objects.values_list("status", flat=True)) == ["PENDING", "QUEUED"]
    Job.objects.filter(pk__in=[job.pk for job in parked]).delete()
    assert [left.is_drained() for _ in range(2)] == [False, True], "seen twice in a row"


def test_jobs_behind_a_blocked_target_do_not_keep_once_from_its_end() -> None:
    left = RemainingWork(conf.current(), Runs())
    JobFactory(target="customer:7", error=True, holds_target=True)
    JobFactory(target="customer:7", waiting_for_target=True)
    assert [left.is_drained() for _ in range(2)] == [False, True]


def test_once_ends_when_nothing_is_left_that_its_patterns_serve() -> None:
    left = RemainingWork(replace(conf.current(), queues=("mail-*", "!mail-bulk")), Runs())
    JobFactory(queue="sms")
    JobFactory(queue="mail-bulk")
    JobFactory(queue="mail-bulk", waiting_for_retry=True)
    served = [JobFactory(queue="mail-a"), JobFactory(queue="mail-new", waiting_for_retry=True)]
    for job in served:
        assert [left.is_drained() for _ in range(2)] == [False, False]
        Job.objects.filter(pk=job.pk).delete()
    assert [left.is_drained() for _ in range(2)] == [False, True]
