"""REST takes a job's public id wherever it takes its number, and answers with both."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from jobqueue.db.eventlog import EventRow
from jobqueue.events.wire import described
from jobqueue.public_ids import public_id
from tests.api.conftest import ROOT, error
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db


def test_a_job_is_read_by_its_public_id(viewer: Client) -> None:
    job = JobFactory(tenant="acme", target="t")
    found = viewer.get(f"{ROOT}jobs/{public_id(job.pk)}/").json()
    assert (found["id"], found["public_id"]) == (job.pk, public_id(job.pk))
    assert viewer.get(f"{ROOT}jobs/{public_id(job.pk)}/?tenant=other").status_code == 404


def test_the_verbs_take_a_public_id(login: Any) -> None:
    client, job = login("view_job", "cancel_job"), JobFactory(target="t")
    address = f"{ROOT}targets/t/jobs/{public_id(job.pk)}/cancel/"
    assert client.post(address).json() == {"job": job.pk, "public_id": public_id(job.pk), "verdict": "done", "status": "CANCELED"}
    refused = client.post(address)
    assert (refused.status_code, error(refused)["public_id"]) == (409, public_id(job.pk))


def test_a_job_that_is_gone_or_never_was_is_not_found_and_its_number_is_not_shown(viewer: Client) -> None:
    text = public_id(4711)
    for wrong in (text, f"{text[:-1]}{'0' if text[-1] != '0' else '1'}", text.upper()):
        response = viewer.get(f"{ROOT}jobs/{wrong}/")
        assert response.status_code == 404
        assert wrong in error(response)["message"]
        assert "4711" not in error(response)["message"]


def test_the_job_in_the_way_and_the_holder_of_a_target_have_a_public_id(login: Any) -> None:
    client = login("view_job")
    holder = JobFactory(error=True, target="t", holds_target=True)
    parked = JobFactory(waiting_for_target=True, target="t")
    why = client.get(f"{ROOT}jobs/{public_id(parked.pk)}/").json()["why_waiting"]
    assert (why["job_id"], why["job_public_id"]) == (holder.pk, public_id(holder.pk))
    [line] = client.get(f"{ROOT}targets/").json()["targets"]
    assert (line["holder_id"], line["holder_public_id"]) == (holder.pk, public_id(holder.pk))


def test_events_name_the_job_by_both() -> None:
    job = JobFactory()
    told = described(EventRow(1, job.pk, "job.completed", datetime.now(UTC), 1, "", "", None), None)
    assert (told["job_id"], told["public_id"]) == (job.pk, public_id(job.pk))
