"""The endpoints about the whole installation: its health and its status."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from jobqueue.models import Worker
from tests.api.conftest import ROOT, MakeUser, error
from tests.command import told
from tests.factories import JobFactory, WorkerFactory

pytestmark = pytest.mark.django_db
PERMISSIONS = ("view_job", "view_queue", "view_worker")


@pytest.fixture
def operator(client: Client, make_user: MakeUser) -> Client:
    client.force_login(make_user(*PERMISSIONS))
    return client


def test_health_is_503_with_the_problems_of_the_command_if_one_is_an_error(operator: Client, caplog: pytest.LogCaptureFixture) -> None:
    response = operator.get(f"{ROOT}health/")
    assert not caplog.records, "Django mails each 503 to the administrators, and a monitor asks often"
    assert (response.status_code, response.json()["healthy"]) == (503, False)
    [problem] = response.json()["problems"]
    assert (problem["code"], problem["severity"], problem["fix"]) == ("no_worker", "error", "Start one: manage.py runworkers.")
    [expected] = told("health")[0]["problems"]
    assert problem == {name: value for name, value in expected.items() if name != "link"}
    WorkerFactory()
    assert (operator.get(f"{ROOT}health/").status_code, operator.get(f"{ROOT}health/").json()) == (200, {"healthy": True, "problems": []})


def test_a_warning_is_503_only_if_the_query_says_so(operator: Client) -> None:
    WorkerFactory()
    JobFactory(error=True)
    response = operator.get(f"{ROOT}health/")
    assert (response.status_code, [one["code"] for one in response.json()["problems"]]) == (200, ["failed_jobs"])
    assert operator.get(f"{ROOT}health/?fail_on=warning").status_code == 503
    response = operator.get(f"{ROOT}health/?fail_on=nothing")
    assert response.status_code == 400
    assert error(response)["message"] == "fail_on is 'nothing'; it must be one of: error, warning."


def test_the_status_is_that_of_the_command(operator: Client) -> None:
    WorkerFactory()
    JobFactory(queue="mail")
    JobFactory(error=True)
    found, expected = operator.get(f"{ROOT}status/").json(), told("status")[0]
    assert found["jobs"] == expected["jobs"]
    assert [queue["name"] for queue in found["queues"]] == [queue["name"] for queue in expected["queues"]] == ["mail"]
    assert [worker["id"] for worker in found["workers"]] == [str(Worker.objects.get().pk)]


def test_a_user_who_may_not_see_all_jobs_gets_neither(operator: Client, settings: Any) -> None:
    settings.JOBQUEUE = {"VISIBLE_JOBS": "tests.test_visible_jobs.of_acme"}
    for place in ("health/", "status/"):
        response = operator.get(f"{ROOT}{place}")
        assert (response.status_code, "VISIBLE_JOBS" in error(response)["message"]) == (403, True)
