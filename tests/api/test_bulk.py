"""Bulk actions over REST: request, dry run, state, stop, and who may do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db.models import Q
from django.test import Client

from jobqueue.clock import now
from jobqueue.duties.run_bulk_actions import RunBulkActions
from jobqueue.models import BulkAction, Job
from tests.api.conftest import ROOT, error
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db


def post(client: Client, place: str = "", **query: str) -> Any:
    return client.post(f"{ROOT}bulk/{place}", query_params=query)


def test_an_action_is_counted_requested_and_done(operator: Client) -> None:
    jobs = [JobFactory(error=True, queue="mail") for _ in range(3)]
    dry = post(operator, verb="resume", q="status:ERROR queue:mail", dry_run="1")
    assert (dry.status_code, dry.json()["preview"]["number"], dry.json()["action"]) == (200, 3, None)
    assert not BulkAction.objects.exists()
    made = post(operator, verb="resume", q="status:ERROR queue:mail")
    assert (made.status_code, made.json()["action"]["state"]) == (202, "OPEN")
    while RunBulkActions().run_once(now()).again:
        pass
    place = f"{made.json()['action']['id']}/"
    shown = operator.get(f"{ROOT}bulk/{place}").json()
    assert (shown["state"], shown["done"], shown["counted"]) == ("DONE", 3, 3)
    assert {*Job.objects.values_list("status", flat=True)} == {"QUEUED"}
    assert len(jobs) == 3
    refused = post(operator, f"{place}stop/")
    assert (refused.status_code, error(refused)["reason"]) == (409, "a bulk action in state DONE cannot be stopped")


def test_an_open_action_is_stopped(operator: Client) -> None:
    JobFactory(error=True)
    number = post(operator, verb="cancel", q="status:ERROR").json()["action"]["id"]
    assert post(operator, f"{number}/stop/").json()["stop"] is True
    while RunBulkActions().run_once(now()).again:
        pass
    assert operator.get(f"{ROOT}bulk/{number}/").json()["state"] == "STOPPED"
    assert Job.objects.get().status == "ERROR"


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ({"verb": "retry", "q": "7"}, "verb is 'retry'; it must be one of"),
        ({"q": "7"}, "verb is None"),
        ({"verb": "resume"}, "at least one condition"),
        ({"verb": "resume", "q": "sort:x"}, "'sort' is no field"),
        ({"verb": "resume", "q": "7", "dry_run": "yes"}, "dry_run is 'yes'"),
    ],
)
def test_a_wrong_request_is_named(operator: Client, query: dict[str, str], named: str) -> None:
    response = post(operator, **query)
    assert response.status_code == 400
    assert named in error(response)["message"]
    assert not BulkAction.objects.exists()


def test_a_verb_needs_its_permission_and_a_narrowed_user_sees_only_own_actions(login: Callable[..., Client], settings: Any) -> None:
    viewer = login("view_job")
    assert error(post(viewer, verb="resume", q="status:ERROR"))["permission"] == "jobqueue.resume_job"
    mine, other = JobFactory(error=True, tenant="acme"), JobFactory(error=True)
    settings.JOBQUEUE = {"VISIBLE_JOBS": lambda user: Q(tenant="acme")}
    client = login("view_job", "resume_job")
    made = post(client, verb="resume", q="status:ERROR").json()
    assert made["preview"]["sample"] == [mine.pk]
    while RunBulkActions().run_once(now()).again:
        pass
    assert Job.objects.get(pk=other.pk).status == "ERROR"
    assert client.get(f"{ROOT}bulk/{made['action']['id']}/").json()["done"] == 1
    assert login("view_job").get(f"{ROOT}bulk/{made['action']['id']}/").status_code == 404
    assert client.get(f"{ROOT}bulk/x/").status_code == 404
