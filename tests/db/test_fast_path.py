"""The setting FAST_PATH turns off what only speeds PostgreSQL up; the ordinary way does the same."""

from __future__ import annotations

from typing import Any

import pytest

from jobqueue.db import fast_path
from jobqueue.db.fast_path.plans import OPTION, keep
from jobqueue.models import Job
from jobqueue.testing import run_until_idle
from tests.tasks import add

pytestmark = [pytest.mark.fast_path, pytest.mark.django_db(transaction=True), pytest.mark.postgresql]


@pytest.mark.parametrize("on", [True, False])
def test_jobs_are_enqueued_and_run_with_and_without_the_fast_path(on: bool, settings: Any) -> None:
    settings.JOBQUEUE = {"FAST_PATH": on, "NOTIFY": False}
    assert fast_path.can_commit(Job.objects.database) is on
    options: dict[str, Any] = {}
    keep(options)
    assert (OPTION in options) is on
    for target in ("", "", "customer:7", "customer:7"):
        add.using(target=target).enqueue(1, 2) if target else add.enqueue(1, 2)
    assert run_until_idle() == 4
    assert set(Job.objects.values_list("status", "result")) == {("SUCCESS", 3)}
