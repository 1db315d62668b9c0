"""The log lines about jobs: what they contain, and what they mask."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from jobqueue import fixed, receivers, task
from jobqueue.core import repeats
from jobqueue.lifecycle.outcome import Kind
from jobqueue.models import Job
from jobqueue.testing import run_until_idle

SECRET = "hunter2"  # noqa: S105
TEXT = f"login failed: password={SECRET} at https://anna:{SECRET}@db.example.com/shop?token={SECRET}"


@task()
def tells_its_secret() -> None:
    raise ValueError(TEXT)


@task(max_attempts=2, retry_on=(ValueError,), backoff=fixed(60, jitter=False))
def tells_its_secret_and_tries_again() -> None:
    raise ValueError(TEXT)


@pytest.mark.django_db
@pytest.mark.parametrize(("failing", "status"), [(tells_its_secret, "ERROR"), (tells_its_secret_and_tries_again, "PENDING")])
def test_the_log_of_a_job_that_fails_has_the_reason_and_masks_secrets(failing: Any, status: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "jobqueue"):
        failing.enqueue()
        run_until_idle()
    assert Job.objects.get().status == status
    lines = [record.getMessage() for record in caplog.records if f" {status} in " in record.getMessage()]
    assert len(lines) == 1
    assert "ValueError: login failed: password=********" in lines[0]
    # Trackers get the exception itself, as it is.
    fields = [{key: value for key, value in record.__dict__.items() if key != "exc_info"} for record in caplog.records]
    logged = [text for record in caplog.records for text in (logging.Formatter().format(record), str(fields))]
    assert not [text for text in logged if SECRET in text]


def test_the_tries_of_an_unknown_task_are_one_line_and_a_count(caplog: pytest.LogCaptureFixture) -> None:
    settled = {"task": "shop.tasks.not_deployed", "queue": "default", "status": "PENDING", "seconds": 0.0, "delay_seconds": 5.0}
    for job_id in (1, 2, 1):
        receivers.log_settled(None, job_id=job_id, kind=Kind.UNKNOWN_TASK, worker_id="worker-1", message="No task is registered", **settled)
    repeats.flush(0.0)
    first, last = [record for record in caplog.records if record.name == "jobqueue"]
    assert (first.levelname, first.job_id, first.worker_id) == ("WARNING", 1, "worker-1")  # type: ignore[attr-defined]
    assert first.getMessage().startswith("Job 1 shop.tasks.not_deployed PENDING")
    assert last.getMessage().startswith("2 more")
