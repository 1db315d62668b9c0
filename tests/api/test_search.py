"""The list of jobs over REST: search, pages, permission, masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db.models import Q
from django.test import Client

from jobqueue.core.masking import MASK
from jobqueue.models import Job
from tests.api.conftest import ROOT, error
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db


def listed(client: Client, **query: Any) -> dict[str, Any]:
    response = client.get(f"{ROOT}jobs/", query)
    assert response.status_code == 200, response.content
    return dict(response.json())


@pytest.mark.usefixtures("small_table")
def test_pages_are_the_jobs_of_a_search_newest_first(viewer: Client) -> None:
    ids = [JobFactory(queue="mail").pk for _ in range(5)]
    JobFactory()
    first = listed(viewer, q="queue:mail", limit=2)
    assert ([job["id"] for job in first["jobs"]], first["more"], first["scope"]) == (ids[:2:-1], True, "")
    JobFactory(queue="mail")  # a new job moves no page
    second = listed(viewer, q="queue:mail", limit=2, after=first["after"])
    last = listed(viewer, q="queue:mail", limit=2, after=second["after"])
    assert [job["id"] for page in (second, last) for job in page["jobs"]] == ids[2::-1]
    assert (last["more"], last["after"]) == (False, None)
    assert len(listed(viewer)["jobs"]) == 7


def test_secrets_are_masked_and_cannot_be_searched_for(viewer: Client) -> None:
    JobFactory(task="tests.tasks.log_in", args=["anna", "hunter22"], error=True, message="hunter22 is wrong")
    [job] = listed(viewer, q="user=anna")["jobs"]
    assert job["arguments"] == {"args": ["anna", MASK], "kwargs": {}}
    assert job["message"] == f"{MASK} is wrong"
    assert listed(viewer, q="error:hunter22")["jobs"] == []
    assert "'password' is the name of a secret" in error(viewer.get(f"{ROOT}jobs/", {"q": "password=hunter22"}))["message"]


@pytest.mark.parametrize(("name", "value"), [("q", "sort:x"), ("q", "a\n"), ("q", "x" * 1001), ("after", "x"), ("limit", "0")])
def test_a_wrong_parameter_is_named(viewer: Client, name: str, value: str) -> None:
    response = viewer.get(f"{ROOT}jobs/", {name: value})
    assert response.status_code == 400
    assert name in error(response)["message"]


def test_only_jobs_that_the_user_may_see_are_found(login: Callable[..., Client], settings: Any) -> None:
    settings.JOBQUEUE = {"VISIBLE_JOBS": lambda user: Q(tenant="acme")}
    mine = JobFactory(tenant="acme")
    other = JobFactory()
    assert [job["id"] for job in listed(login("view_job"))["jobs"]] == [mine.pk]
    assert listed(login("view_job"), q=str(other.pk))["jobs"] == []
    assert login().get(f"{ROOT}jobs/").status_code == 403
    assert Job.objects.count() == 2
