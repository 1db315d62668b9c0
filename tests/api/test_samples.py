"""The endpoints that read samples: loads, series, metrics, the autoscaling signal."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from prometheus_client.parser import text_string_to_metric_families

from jobqueue.core import histograms
from jobqueue.core.loads import QUEUE, TASK, TOTAL, Load
from jobqueue.core.scaling import slots_wanted
from jobqueue.insight import prometheus
from jobqueue.insight.scaler import queue_demands
from jobqueue.models import Queue, Sample
from tests.api.conftest import ROOT, error
from tests.command import run, told

pytestmark = pytest.mark.django_db

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana.json"
LOAD = Load(4, 2, 1.5, 90, 60, 3, 1, 12.6, 126.0, histograms.of([0.2] * 63), histograms.of([2.0] * 63))


def sample(name: str = "mail", kind: str = QUEUE, ago: float = 60, load: Load = LOAD, seconds: int = 10) -> None:
    begins = int(time.time() - ago) // max(seconds, 1) * max(seconds, 1)
    slot = begins // seconds % 360 if seconds else 0
    Sample.objects.create(kind=kind, name=name, seconds=seconds, slot=slot, begins=begins, **load.columns())


@pytest.fixture
def client(login: Callable[..., Client]) -> Client:
    return login("view_queue")


def test_the_recent_loads_are_those_of_all_queues_or_tasks(client: Client) -> None:
    for number in range(3):
        sample(ago=60 + 10 * number)
    sample("shop.tasks.add", TASK)
    sample("old", ago=1000)
    [mail] = client.get(f"{ROOT}samples/queues/").json()["loads"]
    assert (mail["name"], mail["queued"], mail["enqueued"], mail["succeeded"]) == ("mail", 4, 270, 180)
    assert mail["wait_p95"] == pytest.approx(0.2, rel=0.4)
    assert [one["name"] for one in client.get(f"{ROOT}samples/tasks/").json()["loads"]] == ["shop.tasks.add"]


def test_a_series_has_a_point_for_each_span_and_rest_is_0(client: Client) -> None:
    sample(ago=60)
    found = client.get(f"{ROOT}samples/queues/mail/").json()
    assert (found["name"], found["period"], len(found["points"])) == ("mail", "1h", 360)
    assert sum(point["succeeded"] for point in found["points"]) == found["total"]["succeeded"] == 60
    assert sum(point["enqueued"] == point["queued"] == 0 and point["run_p50"] is None for point in found["points"]) == 359
    assert client.get(f"{ROOT}samples/tasks/shop.tasks.add/").json()["total"]["succeeded"] == 0
    assert client.get(f"{ROOT}samples/queues/{501 * 'a'}/").status_code == 404
    assert len(client.get(f"{ROOT}samples/queues/mail/?period=14d").json()["points"]) == 1344


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("samples/queues/a/?period=2h", "period is '2h'; it must be one of: 1h, 24h, 14d"),
        ("scaler/?within=5", "within is '5'; it must be a whole number from 60 to 86400"),
    ],
)
def test_a_wrong_parameter_is_refused_with_the_rule(client: Client, query: str, text: str) -> None:
    response = client.get(ROOT + query)
    assert response.status_code == 400
    assert error(response)["message"].startswith(text)


def test_a_user_who_may_not_see_all_jobs_sees_no_samples(client: Client, settings: Any) -> None:
    settings.JOBQUEUE = {"VISIBLE_JOBS": "tests.test_visible_jobs.of_acme"}
    sample()
    for place in ("samples/tasks/", "samples/queues/mail/", "scaler/", "metrics/"):
        response = client.get(ROOT + place)
        assert (response.status_code, "all tenants" in error(response)["message"]) == (403, True)


# Prometheus


def families(body: bytes) -> dict[str, Any]:
    return {one.name: one for one in text_string_to_metric_families(body.decode())}


def test_prometheus_own_parser_reads_the_metrics(client: Client) -> None:
    awkward = 'a "b"\\c\nd'
    for name in ("mail", awkward):
        sample(name, seconds=TOTAL)
        sample(name, ago=15)
    sample("shop.tasks.add", TASK, seconds=TOTAL)
    response = client.get(f"{ROOT}metrics/")
    assert response["Content-Type"] == prometheus.CONTENT_TYPE
    found = families(response.content)
    assert {value.labels["queue"]: value.value for value in found["jobqueue_queue_queued_jobs"].samples} == {"mail": 4, awkward: 4}
    ended = {(one.labels["task"], one.labels["status"]): one.value for one in found["jobqueue_task_ended_jobs"].samples}
    assert ended == {("shop.tasks.add", status): number for status, number in (("SUCCESS", 60), ("ERROR", 3), ("CANCELED", 1))}
    waits = [one for one in found["jobqueue_queue_wait_seconds"].samples if one.labels["queue"] == "mail"]
    buckets = [(float(one.labels["le"]), one.value) for one in waits if one.name.endswith("_bucket")]
    assert buckets == sorted(buckets)
    assert [value for bound, value in buckets if bound > 0.26] == [63] * sum(bound > 0.26 for bound, _ in buckets)
    assert [value for bound, value in buckets if bound < 0.2] == [0] * sum(bound < 0.2 for bound, _ in buckets)
    assert {one.name.rpartition("_")[2]: one.value for one in waits if "le" not in one.labels} == {"count": 63, "sum": 12.6}
    assert all(one.documentation for one in found.values())


def test_secrets_in_names_are_masked_and_no_labels_come_twice(client: Client) -> None:
    for number in range(2):
        sample(f"password=s3cret{number}x", seconds=TOTAL)
    body = client.get(f"{ROOT}metrics/").content
    assert b"s3cret" not in body
    assert [one.value for one in families(body)["jobqueue_queue_enqueued_jobs"].samples] == [180]


def test_a_queue_at_rest_has_gauges_of_0_and_keeps_its_counters(client: Client) -> None:
    sample(seconds=TOTAL)
    sample(ago=200)
    found = families(client.get(f"{ROOT}metrics/").content)
    assert [one.value for one in found["jobqueue_queue_queued_jobs"].samples] == [0]
    assert [one.value for one in found["jobqueue_queue_enqueued_jobs"].samples] == [90]


def test_without_the_extra_the_error_says_what_to_install(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    response = client.get(f"{ROOT}metrics/")
    assert (response.status_code, error(response)["code"]) == (503, "no_metrics")
    assert "pip install 'jobqueue[prometheus]'" in error(response)["message"]


def test_the_metrics_read_the_samples_only() -> None:
    sample(seconds=TOTAL)
    with CaptureQueriesContext(connection) as queries:
        prometheus.text()
    assert not [one["sql"] for one in queries.captured_queries if '"jobqueue_job"' in one["sql"] or " jobqueue_job " in one["sql"]]
    assert len(queries.captured_queries) < 10


def test_the_queries_of_the_dashboard_name_only_metrics_that_exist() -> None:
    sample(seconds=TOTAL)
    sample("shop.tasks.add", TASK, seconds=TOTAL)
    sample()
    exported = {one.name: {*one.labels} for family in families(prometheus.text()).values() for one in family.samples}
    queries = re.findall(r'"expr": "((?:[^"\\]|\\.)*)"', DASHBOARD.read_text())
    assert len(queries) > 8
    for query in map(json.loads, [f'"{one}"' for one in queries]):
        named = re.findall(r"\b(jobqueue_\w+)", query)
        assert named
        assert {*named} <= {*exported}, query
        for label in re.findall(r"by \((.*?)\)", query):
            assert {one.strip() for one in label.split(",")} <= {label for name in named for label in exported[name]}, query


# The autoscaling signal


def test_the_signal_has_the_slots_of_each_queue(client: Client) -> None:
    for minutes in range(10, 3, -1):
        sample(ago=60 * minutes, seconds=60, load=Load(0, 2, 0, 120, 120, wait_seconds=6, run_seconds=240, runs=histograms.of([2.0] * 120)))
    sample(ago=0, load=Load(queued=600, running=4, enqueued=600))
    sample("idle", ago=3000, seconds=60, load=Load(succeeded=1, runs=[1], run_seconds=0.1))
    found = client.get(f"{ROOT}scaler/").json()
    one = {entry["queue"]: entry for entry in found["queues"]}
    assert one["mail"]["run_seconds"] == 2.0
    assert one["mail"]["queued"] == 600
    assert one["mail"]["slots_wanted"] > 600 * 2 / 270
    assert one["idle"]["slots_wanted"] == 0
    assert found["slots_wanted"] == one["mail"]["slots_wanted"]
    [sooner] = [entry for entry in client.get(f"{ROOT}scaler/?within=60").json()["queues"] if entry["queue"] == "mail"]
    assert sooner["slots_wanted"] > 3 * one["mail"]["slots_wanted"]


def test_a_paused_queue_wants_no_slots_and_a_limited_one_not_more_than_its_limit() -> None:
    for name in ("paused", "limited", "free"):
        sample(name, ago=0, load=Load(queued=50))
    Queue.objects.create(name="paused", paused=True)
    Queue.objects.create(name="limited", max_running=3)
    free = slots_wanted([Load(queued=50)], 300)
    assert {one.queue: one.slots_wanted for one in queue_demands()} == {"paused": 0, "limited": 3, "free": free}


# The commands


def test_the_command_shows_samples_and_the_signal() -> None:
    sample()
    sample("shop.tasks.add", TASK)
    lines = run("samples")[0].splitlines()
    assert [line.split()[0] for line in lines] == ["The", "queue", "mail"]
    assert "shop.tasks.add" in run("samples", "--kind", "task")[0]
    assert len(run("samples", "mail")[0].splitlines()) == 4
    assert len(told("samples", "mail", "--period", "24h")[0]["points"]) == 1440
    assert told("scaler")[0]["queues"][0]["queue"] == "mail"
    assert "mail" in run("scaler", "--within", "600")[0]
