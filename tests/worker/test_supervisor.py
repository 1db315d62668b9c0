"""The supervisor decides when ``--once`` may end, against the real database; whole processes are under ``tests/faults``."""

from __future__ import annotations

import pytest

from jobqueue.models import Job
from jobqueue.worker.supervisor import Supervisor
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db


def test_what_raw_sql_left_parked_behind_a_free_target_is_let_go_before_once_ends() -> None:
    supervisor = Supervisor(once=True)
    parked = [JobFactory(target="customer:7", waiting_for_target=True) for _ in range(2)]
    assert [supervisor._all_done() for _ in range(3)] == [False] * 3
    assert sorted(Job.objects.values_list("status", flat=True)) == ["PENDING", "QUEUED"]
    Job.objects.filter(pk__in=[job.pk for job in parked]).delete()
    assert [supervisor._all_done() for _ in range(2)] == [False, True], "seen twice in a row"


def test_what_waits_behind_a_blocked_target_keeps_once_from_nothing() -> None:
    supervisor = Supervisor(once=True)
    JobFactory(target="customer:7", error=True, holds_target=True)
    JobFactory(target="customer:7", waiting_for_target=True)
    assert [supervisor._all_done() for _ in range(2)] == [False, True]
