"""Values that PostgreSQL's column types would reject, and unreadable JSON: only the job itself fails, not its neighbors."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection

from jobqueue.core import time_limits
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
FENCE = "lease_token"  # a lost job whose fence is no number takes no change
JSONS = ("args", "kwargs", "options", "metadata", "history", "worker_ids", "result")


def cases() -> list[tuple[str, str]]:
    found = [(column, value) for column in JSONS for value in DEEP]
    if connection.vendor == "sqlite":
        found += [(column, value) for column in (*NUMBERS, *TEXTS) for value in LOOSE]
    return found


@pytest.mark.long
@pytest.mark.parametrize("lost", [False, True], ids=["queued", "lost"])
def test_a_row_that_cannot_be_read_keeps_no_job_of_its_batch_from_its_run(lost: bool, caplog: Any) -> None:
    traits: dict[str, Any] = {"expired": True} if lost else {}
    bad = [JobFactory(task=add.module_path, args=[1], **traits) for _ in cases()]
    with unchecked():
        for job, (column, value) in zip(bad, cases(), strict=True):
            write(Job, job.pk, column, value)
    good = [JobFactory(task=task.module_path, args=[1], **traits) for task in (add, aadd)]
    good.append(JobFactory(task=add.module_path, args=[1], crashes=1))
    with working():
        assert ended(*good) == ["SUCCESS"] * len(good)
        by_id = {job.pk: case for job, case in zip(bad, cases(), strict=True) if case[0] != UNKNOWN and not (lost and case[0] == FENCE)}

        def unended() -> list[tuple[str, str]]:
            rows = Job.objects.filter(pk__in=by_id).exclude(status__in=["SUCCESS", "ERROR"])
            return [by_id[pk] for pk in rows.values_list("pk", flat=True)]

        until(lambda: not unended(), str(unended()))
    assert not [one.getMessage() for one in caplog.records if "failed (try" in one.getMessage()]


@pytest.mark.long
@pytest.mark.parametrize("traits", [{}, {"expired": True}, {"error": True}], ids=str)
def test_a_row_that_cannot_be_read_fails_no_page(client: Any, traits: dict[str, Any]) -> None:
    client.force_login(get_user_model().objects.create_superuser("root"))
    jobs = [JobFactory(task=add.module_path, args=[1], **traits) for _ in cases()]
    with unchecked():
        for job, (column, value) in zip(jobs, cases(), strict=True):
            write(Job, job.pk, column, value)
    addresses = ["/admin/jobqueue/job/", "/jobqueue/jobs/", "/admin/jobqueue/queue/", "/jobqueue/queues/"]
    for job in jobs:
        addresses += [f"/admin/jobqueue/job/{job.pk}/change/", f"/jobqueue/jobs/{job.pk}/"]
    client.raise_request_exception = False
    failed = [one for one in addresses if client.get(one).status_code >= 500]
    assert not failed


@pytest.mark.long
def test_whatever_fails_in_the_dispatcher_for_one_job_is_that_job_s_failure(monkeypatch: Any) -> None:
    def refuse(options: str) -> None:
        raise RuntimeError("not readable")

    monkeypatch.setattr(time_limits, "of_text", refuse)
    jobs = [JobFactory(task=add.module_path, args=[1], options=options) for options in ({}, {"timeout": 5}, {})]
    with working():
        assert ended(*jobs) == ["SUCCESS", "ERROR", "SUCCESS"]
    jobs[1].refresh_from_db()
    assert "not readable" in jobs[1].message
