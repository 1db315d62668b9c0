"""The option `timeout`: how it comes into the job's row, and where a person sees it."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client, override_settings
from django.urls import reverse

from jobqueue import compat, enqueue_job, enqueue_many
from jobqueue.core import time_limits
from jobqueue.models import Job
from jobqueue.testing import run_until_idle
from tests.tasks_layer import samples

pytestmark = pytest.mark.django_db


def options_of(result: Any) -> Any:
    return Job.objects.get(pk=result.job_id).options


@pytest.mark.parametrize(("given", "seconds"), [(5, 5.0), (0.25, 0.25), (timedelta(minutes=2), 120.0)])
def test_a_limit_is_kept_with_the_job_in_seconds(given: Any, seconds: float) -> None:
    limited = samples.plain.using(timeout=given)
    assert options_of(limited.enqueue()) == {"timeout": seconds}
    assert [options_of(one) for one in enqueue_many(limited, [((1,), {}), ((2,), {})])] == [{"timeout": seconds}] * 2
    assert options_of(enqueue_job("tests.tasks_layer.samples.plain", timeout=given)) == {"timeout": seconds}


def test_without_one_the_job_has_that_of_the_settings_or_none() -> None:
    assert options_of(samples.plain.enqueue()) == {}
    values = {"priority": 0, "func": samples.plain.func, "queue_name": "default", "backend": "default", "run_after": None}
    foreign = compat.Task(**values, takes_context=False)
    with override_settings(JOBQUEUE={"DEFAULT_TIMEOUT_SECONDS": 60}):
        assert options_of(samples.plain.enqueue()) == {"timeout": 60}
        assert options_of(samples.plain.using(timeout=5).enqueue()) == {"timeout": 5}
        assert options_of(foreign.enqueue()) == {"timeout": 60}


def test_jobs_run_in_the_calling_thread_have_no_limit() -> None:
    result = samples.plain.using(timeout=1e-9).enqueue(1)
    assert run_until_idle() == 1
    result.refresh()
    assert result.return_value == [1]


@pytest.mark.parametrize(
    "options", [None, [], "5", {"timeout": None}, {"timeout": "5"}, {"timeout": True}, {"timeout": 0}, {"timeout": float("nan")}]
)
def test_an_invalid_value_in_the_row_is_no_limit(options: Any) -> None:
    assert time_limits.of_options(options) is None


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("{}", None),
        ("", None),
        ("no json", None),
        ('{"timeout": 5}', 5),
        ('{"unknown_since": "x"}', None),
        ("[" * 3000 + "]" * 3000, None),
        ('{"timeout": ' + "9" * 5000 + "}", None),
        ('{"timeout": 1e400}', None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_options_as_text_are_read_whatever_they_are(text: str, limit: float | None) -> None:
    assert time_limits.of_text(text) == limit


def test_it_is_shown_in_the_report_and_on_the_page(admin_client: Client) -> None:
    limited, free = (Job.objects.get(pk=task.enqueue().job_id) for task in (samples.plain.using(timeout=90), samples.plain))
    assert (limited.report()["timeout_seconds"], free.report()["timeout_seconds"]) == (90, None)
    pages = [admin_client.get(reverse("admin:jobqueue_job_change", args=[job.pk])).text for job in (limited, free)]
    assert ["Time limit of a run" in page for page in pages] == [True, False]
    assert "90 s" in pages[0]
