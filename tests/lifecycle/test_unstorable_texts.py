"""Texts that no database stores are cleaned in one place, and no decision is lost with them."""

from __future__ import annotations

import contextlib
import io
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command

from jobqueue import clear_target, task
from jobqueue.exceptions import InvalidOption, Retry
from jobqueue.insight.targets import target_summaries
from jobqueue.lifecycle.queues import pause_queue
from jobqueue.models import Job
from jobqueue.testing import run_until_idle
from tests.factories import JobFactory, WorkerFactory

pytestmark = pytest.mark.django_db
NAMES = ["x\ud800", "a\0b", "\udfff"]


@task(max_attempts=3, retry_on=(ValueError,))
def raise_odd_class(name: str) -> None:
    odd = {"surrogate": "x\ud800", "nul": "a\0b"}[name]
    raise type("E", (ValueError,), {"__module__": odd, "__qualname__": f"E{odd}"})(f"reason {odd}")


@task(max_attempts=3)
def ask_for_a_retry() -> None:
    raise Retry("reason a\0b\ud800", delay=60)


@pytest.mark.parametrize("name", ["surrogate", "nul"])
def test_a_class_of_an_odd_name_keeps_its_reason_and_its_retries(name: str) -> None:
    raise_odd_class.enqueue(name)
    assert run_until_idle() == 1
    job = Job.objects.get()
    assert (job.status, job.failures) == ("PENDING", 1)
    assert "reason" in job.message
    assert "reason" in job.history[0]["message"]


def test_a_retry_with_an_odd_message_is_a_retry() -> None:
    ask_for_a_retry.enqueue()
    run_until_idle()
    job = Job.objects.get()
    assert (job.status, job.message) == (
        "PENDING",
        "jobqueue.exceptions.Retry: reason a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}",
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_no_row_can_have_is_the_name_of_nothing(name: str) -> None:
    JobFactory(error=True, target="customer:7")
    assert clear_target(name) == []
    assert clear_target("customer:7", tenant=name) == []
    assert target_summaries(search=name) == []
    assert target_summaries(tenant=name) == []


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("what", ["status", "leaders", "health"])
def test_the_command_answers_on_an_output_that_takes_little(encoding: str, what: str, monkeypatch: Any) -> None:
    WorkerFactory(host="w\N{SNOWMAN}eb", pid=1)
    JobFactory(queue="\N{SNOWMAN}")
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", output := io.TextIOWrapper(raw, encoding))
    with contextlib.suppress(SystemExit):
        call_command("jobqueue", what)
    output.flush()
    if what == "status":
        assert b"\\u2603" in raw.getvalue()


@pytest.mark.parametrize("until", [timedelta(days=365 * 8000), timedelta.max])
def test_a_pause_that_ends_beyond_the_calendar_is_refused(until: Any) -> None:
    with pytest.raises(InvalidOption, match=r"until is .*; it must lie between"):
        pause_queue("mail", until=until)
