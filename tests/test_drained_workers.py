"""Drained workers: the request from the command line and REST, and where it is shown."""

from __future__ import annotations

import logging
from uuid import uuid4

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.management.base import CommandError
from django.test import Client

from jobqueue import why_waiting
from jobqueue.exceptions import WorkerDoesNotExist
from jobqueue.insight.problems import problems
from jobqueue.lifecycle.workers import drain_worker
from jobqueue.models import Worker
from jobqueue.worker.claim_policy import ClaimPolicy
from tests.command import run, told
from tests.factories import JobFactory, WorkerFactory


@pytest.mark.django_db
def test_a_worker_is_named_by_its_id_or_its_process_and_a_wrong_name_says_how() -> None:
    worker, twin = WorkerFactory(host="web-1", pid=7), WorkerFactory(host="web-2", pid=8)
    assert drain_worker("web-1:7").changed
    assert not drain_worker(str(worker.pk)).changed
    assert drain_worker(str(worker.pk), drained=False).changed
    WorkerFactory(host="web-2", pid=8)
    with pytest.raises(WorkerDoesNotExist, match=r"Several workers are called 'web-2:8': name one by its id\."):
        drain_worker("web-2:8")
    for name in ("", "web-1", "web-1:x", "web-1:-7", ":7", str(uuid4()), "web-1:99999999999999", "\x00:7", "\ud800:7", "x" * 5000):
        with pytest.raises(WorkerDoesNotExist, match="There is no worker"):
            drain_worker(name)
    assert not Worker.objects.filter(drain_requested=True).exists()
    assert twin.takes_jobs


@pytest.mark.django_db
def test_the_command_and_rest_drain_and_show_workers(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    worker = WorkerFactory(host="web-1", pid=7)
    caplog.set_level(logging.INFO, "jobqueue.audit")
    assert run("drain", "web-1:7") == ("Worker web-1:7 is drained: it starts no more jobs, and its running jobs continue.\n", 0)
    assert told("drain", "web-1:7")[0]["changed"] is False
    assert told("status")[0]["workers"][0]["state"] == "DRAINED"
    with pytest.raises(CommandError, match="There is no worker 'web-9:9'"):
        run("drain", "web-9:9")
    user = get_user_model().objects.create_user("operator")
    client.force_login(user)
    assert client.get("/jobqueue/workers/").status_code == 403
    user.user_permissions.add(*Permission.objects.filter(codename__in=["view_worker", "drain_worker"]))
    assert [one["state"] for one in client.get("/jobqueue/workers/").json()["workers"]] == ["DRAINED"]
    answer = client.post(f"/jobqueue/workers/{worker.pk}/undrain/")
    assert (answer.status_code, answer.json()["drained"], answer.json()["changed"]) == (200, False, True)
    assert client.post("/jobqueue/workers/web-9%3A9/drain/").status_code == 404
    said = [record.getMessage() for record in caplog.records if record.name == "jobqueue.audit"]
    assert [text for text in said if "drain worker web-1:7" in text and ": done" in text]
    assert [text for text in said if "undrain" in text and "over REST" in text]


@pytest.mark.django_db
def test_without_another_worker_a_job_says_why_it_waits_and_health_says_that_no_job_starts() -> None:
    WorkerFactory(drain_requested=True)
    why = why_waiting(JobFactory())
    assert why is not None
    assert (why.gate, "1 worker for queue 'default' is drained or about to stop" in why.text) == ("no_worker", True)
    [problem] = [one for one in problems() if one.code == "no_worker"]
    assert problem.text == "All live workers are drained, so no job starts."
    WorkerFactory()
    assert not [one for one in problems() if one.code == "no_worker"]


def test_a_drained_worker_claims_from_no_queue() -> None:
    policy = ClaimPolicy((), None, lambda slots: None, lambda: None)
    assert (policy.is_open("default"), policy.scope("") is None) == (True, False)
    assert policy.drain(drained=True)
    assert not policy.drain(drained=True)
    assert (policy.is_open("default"), policy.scope(""), policy.is_selective) == (False, None, True)
    assert policy.drain(drained=False)
    assert policy.is_open("default")
