"""What no column's type lets through on PostgreSQL, and JSON that nothing reads: the job's own failure, never its neighbors'."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from jobqueue import time_limits
from jobqueue.models import Job
from tests.factories import JobFactory
from tests.tasks import aadd, add
from tests.unchecked import unchecked, write
from tests.worker.whole import ended, until, working

pytestmark = pytest.mark.django_db(transaction=True)

DEEP = (f"'{'[' * 3000 + ']' * 3000}'", "'" + '{"a":' * 3000 + "1" + "}" * 3000 + "'")
# SQLite keeps any value in any column.
LOOSE = ("'abc'", "x'fffe'", "1.5", "-1")
NUMBERS = ("priority", "attempt", "max_attempts", "failures", "crashes", "lease_token", "progress")
TEXTS = ("tenant", "queue", "task", "target", "unique_key", "recovery", "phase", "message", "cancel_outcome", "webhook_url")
UNKNOWN = "task"  # such a job waits for a worker that knows its task
JSONS = ("args", "kwargs", "options", "metadata", "history", "worker_ids", "result")


def cases() -> list[tuple[str, str]]:
    found = [(column, value) for column in JSONS for value in DEEP]
    if connection.vendor == "sqlite":
        found += [(column, value) for column in (*NUMBERS, *TEXTS) for value in LOOSE]
    return found


@pytest.mark.parametrize("lost", [False, True], ids=["queued", "lost"])
def test_a_row_that_cannot_be_read_keeps_no_job_of_its_batch_from_its_run(lost: bool) -> None:
    traits: dict[str, Any] = {"expired": True} if lost else {}
    bad = [JobFactory(task=add.module_path, args=[1], **traits) for _ in cases()]
    with unchecked():
        for job, (column, value) in zip(bad, cases(), strict=True):
            write(Job, job.pk, column, value)
    good = [JobFactory(task=task.module_path, args=[1], **traits) for task in (add, aadd)]
    good.append(JobFactory(task=add.module_path, args=[1], crashes=1))
    with working():
        assert ended(*good) == ["SUCCESS"] * len(good)
        by_id = {job.pk: case for job, case in zip(bad, cases(), strict=True) if case[0] != UNKNOWN}

        def unended() -> list[tuple[str, str]]:
            rows = Job.objects.filter(pk__in=by_id).exclude(status__in=["SUCCESS", "ERROR"])
            return [by_id[pk] for pk in rows.values_list("pk", flat=True)]

        until(lambda: lost or not unended(), str(unended()))


def test_whatever_fails_in_the_dispatcher_for_one_job_is_that_job_s_failure(monkeypatch: Any) -> None:
    def refuse(options: str) -> None:
        raise RuntimeError("not readable")

    monkeypatch.setattr(time_limits, "of_text", refuse)
    jobs = [JobFactory(task=add.module_path, args=[1], options=options) for options in ({}, {"timeout": 5}, {})]
    with working():
        assert ended(*jobs) == ["SUCCESS", "ERROR", "SUCCESS"]
    jobs[1].refresh_from_db()
    assert "not readable" in jobs[1].message
