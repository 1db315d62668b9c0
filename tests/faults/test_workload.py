"""A mix of every kind of work, by a real worker: each job ends as predicted."""

from __future__ import annotations

import pytest
from django.core.management import call_command

from demo_project.workload.kinds import KINDS, catalogue
from demo_project.workload.verdict import verdicts
from tests.faults.harness import Workers

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.django_db(transaction=True)]
COUNT, SEED, PACE = 120, "storm", 0.3


def test_every_job_of_a_mix_ends_as_predicted(workers: Workers) -> None:
    assert {told.kind for told in catalogue(COUNT, seed=SEED)} == {*KINDS}, "or the mix says nothing of some kinds"
    call_command("enqueue_catalogue", count=COUNT, seed=SEED, pace=PACE, verbosity=0)
    worker = workers.start("--once", TASK_MODULES=["demo_project.workload.tasks"], MIN_WORKERS=2, MAX_WORKERS=8)
    assert worker.wait(90) == 0
    found = list(verdicts(seed=SEED))
    assert len(found) == COUNT
    assert [one for one in found if not one.ended or one.differences] == []
    call_command("enqueue_catalogue", "--check", seed=SEED)
