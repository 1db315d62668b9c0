"""The receiver of a job's webhooks: on the task, or for one job, by every way to enqueue; without one nothing is written of it."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobqueue import enqueue_job, enqueue_many, pipeline, task
from jobqueue.models import Job, WebhookDelivery
from jobqueue.testing import DummyBackend, ImmediateBackend, run_until_idle
from tests.tasks_layer import samples

pytestmark = pytest.mark.django_db
URL = "https://example.com/hook?a=%09&b='x'"
PATH = "tests.tasks_layer.samples.plain"

WAYS: dict[str, Callable[[], Any]] = {
    "one": lambda: samples.plain.using(webhook_url=URL).enqueue(),
    "one with a key": lambda: samples.plain.using(webhook_url=URL, unique_key="k").enqueue(),
    "later": lambda: samples.plain.using(webhook_url=URL, target="t").enqueue(),
    "many": lambda: enqueue_many(samples.plain.using(webhook_url=URL), [((), {})])[0],
    "many with keys": lambda: enqueue_many(samples.keyed.using(webhook_url=URL), [((1,), {})])[0],
    "by path": lambda: enqueue_job(PATH, webhook_url=URL),
    "by an unknown path": lambda: enqueue_job("nowhere.at.all", webhook_url=URL),
    "declared": lambda: task(webhook_url=URL)(samples.undeclared).enqueue(),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_url_is_kept_with_the_job(way: str) -> None:
    assert Job.objects.get(pk=WAYS[way]().job_id).webhook_url == URL


def test_a_pipeline_takes_it_too() -> None:
    declared = pipeline(phases=[_step], webhook_url=URL)(_whole)
    assert Job.objects.get(pk=declared.enqueue().job_id).webhook_url == URL


def _step(context: Any) -> None: ...


def _whole(context: Any) -> None: ...


def test_a_declared_url_gives_way_to_that_of_one_job() -> None:
    declared = task(webhook_url="https://example.com/declared")(samples.undeclared)
    assert Job.objects.get(pk=declared.using(webhook_url=URL).enqueue().job_id).webhook_url == URL


def test_the_end_of_the_job_is_sent_to_its_url() -> None:
    job_id = samples.plain.using(webhook_url=URL).enqueue().job_id
    samples.plain.enqueue()
    assert run_until_idle() == 2
    assert list(WebhookDelivery.objects.values_list("job_id", "event", "url")) == [(job_id, "job.completed", URL)]


def test_a_job_without_a_url_is_enqueued_without_a_word_of_it() -> None:
    with CaptureQueriesContext(
        connection,
    ) as queries:
        samples.plain.enqueue()
    [made] = [
        query["sql"] for query in queries if 'INSERT INTO "jobqueue_job"' in query["sql"] or "INSERT INTO jobqueue_job " in query["sql"]
    ]
    columns = made.split("jobqueue_job")[1].partition(")")[0]
    assert "kwargs" in columns
    assert "webhook_url" not in columns


@pytest.mark.parametrize("backend", [DummyBackend, ImmediateBackend])
def test_the_backends_for_tests_show_it(backend: Any, settings: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": f"jobqueue.testing.{backend.__name__}", "QUEUES": []}}
    samples.plain.using(webhook_url=URL).enqueue()
    [result] = samples.plain.get_backend().results
    assert result.task.webhook_url == URL
