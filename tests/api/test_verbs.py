"""Requests for a job over REST: done, requested, refused with the reason, or not found."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from jobqueue.models import Job
from jobqueue.public_ids import public_id
from tests.api.conftest import ROOT, error, url
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db


def named(job: Job) -> dict[str, Any]:
    return {"job": job.pk, "public_id": public_id(job.pk)}


def status(job: Job) -> str:
    return str(Job.objects.get(pk=job.pk).status)


@pytest.mark.parametrize(
    ("verb", "before", "after"),
    [
        ("cancel", "queued", "CANCELED"),
        ("pause", "queued", "PAUSED"),
        ("resume", "paused", "QUEUED"),
        ("resume", "error", "QUEUED"),
        ("run-now", "scheduled", "QUEUED"),
    ],
)
@pytest.mark.parametrize("target", [None, "customer:7"])
def test_a_job_that_does_not_run_changes_at_once(operator: Client, verb: str, before: str, after: str, target: str | None) -> None:
    job = JobFactory(**{before: True}, target=target or "")
    response = operator.post(url(job, verb, target))
    assert (response.status_code, response.json()) == (200, {**named(job), "verdict": "done", "status": after})
    assert status(job) == after


@pytest.mark.parametrize(("verb", "outcome"), [("cancel", "CANCELED"), ("pause", "PAUSED")])
def test_a_running_job_is_asked_to_stop(operator: Client, verb: str, outcome: str) -> None:
    job = JobFactory(running=True)
    response = operator.post(url(job, verb))
    assert (response.status_code, response.json()) == (202, {**named(job), "verdict": "requested", "status": "RUNNING"})
    job.refresh_from_db()
    assert (job.status, job.cancel_requested, job.cancel_outcome) == ("RUNNING", True, outcome)


def test_resume_takes_the_request_back(operator: Client) -> None:
    job = JobFactory(pause_requested=True)
    response = operator.post(url(job, "resume"))
    assert (response.status_code, response.json()["status"]) == (200, "RUNNING")
    assert not Job.objects.get(pk=job.pk).cancel_requested


@pytest.mark.parametrize(
    ("verb", "state", "reason"),
    [
        ("cancel", "success", "a job in state SUCCESS cannot be canceled"),
        ("pause", "error", "a job in state ERROR cannot be paused"),
        ("resume", "queued", "a job in state QUEUED cannot be resumed"),
        ("run-now", "queued", "a job in state QUEUED does not wait for a time"),
    ],
)
def test_a_move_that_is_not_allowed_is_refused_with_the_reason(operator: Client, verb: str, state: str, reason: str) -> None:
    job = JobFactory(**{state: True})
    response = operator.post(url(job, verb))
    told = error(response)
    assert response.status_code == 409
    assert (told["code"], told["reason"], told["status"], told["job"]) == ("refused", reason, state.upper(), job.pk)
    assert status(job) == state.upper()
    assert not LogEntry.objects.exists()


def test_a_unique_key_that_is_taken_is_reported_with_the_other_job(operator: Client) -> None:
    job, rival = JobFactory(error=True, unique_key="k"), JobFactory(unique_key="k")
    response = operator.post(url(job, "resume"))
    assert response.status_code == 409
    assert f"job {rival.pk}" in error(response)["reason"]


def test_a_job_is_deleted(operator: Client) -> None:
    job = JobFactory(error=True)
    response = operator.delete(url(job))
    assert (response.status_code, response.json()["verdict"]) == (200, "done")
    assert not Job.objects.exists()
    assert operator.delete(url(job)).status_code == 404


def test_a_running_job_is_not_deleted(operator: Client) -> None:
    job = JobFactory(running=True)
    response = operator.delete(url(job))
    assert (response.status_code, error(response)["status"]) == (409, "RUNNING")
    assert status(job) == "RUNNING"


def test_canceling_or_deleting_the_holder_releases_the_line(operator: Client) -> None:
    for end in ("cancel", "delete"):
        holder = JobFactory(error=True, target=f"t:{end}", holds_target=True)
        waiting = JobFactory(waiting_for_target=True, target=f"t:{end}")
        response = operator.post(url(holder, "cancel")) if end == "cancel" else operator.delete(url(holder))
        assert response.status_code == 200
        assert status(waiting) == "QUEUED"


@pytest.mark.parametrize("target", ["customer:7", "a b", "50% off?", "ü+ß#&=;", "ключ", ".", "a.b~c", "'\"<x>", "😀"])
def test_a_target_may_hold_anything_but_a_slash(operator: Client, target: str) -> None:
    job = JobFactory(target=target)
    assert operator.post(url(job, "pause", quote(target, safe=""))).status_code == 200
    assert status(job) == "PAUSED"


@pytest.mark.parametrize("wrong", ["customer:8", "customer", "customer%3A77", "Customer:7", "%00", "%ED%A0%80", "x" * 300])
@pytest.mark.parametrize("verb", ["cancel", "pause", "resume", "run-now"])
def test_another_target_than_the_jobs_is_not_found(operator: Client, verb: str, wrong: str) -> None:
    job = JobFactory(paused=True, target="customer:7")
    response = operator.post(url(job, verb, wrong))
    assert (response.status_code, error(response)["code"]) == (404, "not_found")
    assert status(job) == "PAUSED"


def test_a_job_without_a_target_is_under_none(operator: Client) -> None:
    job = JobFactory()
    assert operator.post(url(job, "pause", "x")).status_code == 404
    assert operator.post(f"{ROOT}targets//jobs/{job.pk}/pause/").status_code == 404
    assert status(job) == "QUEUED"


def test_a_tenants_job_is_named_with_its_tenant(operator: Client) -> None:
    job = JobFactory(target="t", tenant="acme & co")
    named = url(job, "pause", "t")
    for wrong in ("", "?tenant=", "?tenant=globex", "?tenant=acme"):
        assert operator.post(named + wrong).status_code == 404
    assert status(job) == "QUEUED"
    assert operator.post(f"{named}?tenant={quote('acme & co')}").status_code == 200


def test_without_a_target_the_tenant_is_compared_where_it_is_given(operator: Client) -> None:
    job = JobFactory(tenant="acme")
    for wrong in ("?tenant=", "?tenant=globex"):
        assert operator.post(url(job, "pause") + wrong).status_code == 404
        assert operator.delete(url(job) + wrong).status_code == 404
    assert operator.post(url(job, "pause")).status_code == 200
    assert operator.post(url(job, "resume") + "?tenant=acme").status_code == 200


@pytest.mark.parametrize(
    "number", ["0", "-1", "01", "9223372036854775808", "9" * 5000, "abc", "1.0", "1e3", "%00", "%D9%A1", "%ED%A0%80", "%FF", "1%0A"]
)
@pytest.mark.parametrize(("method", "end"), [("post", "cancel/"), ("post", "resume/"), ("get", ""), ("delete", "")])
def test_an_invalid_job_number_is_not_found(operator: Client, method: str, end: str, number: str) -> None:
    JobFactory(pk=1)
    response = getattr(operator, method)(f"{ROOT}jobs/{number}/{end}")
    assert (response.status_code, error(response)["code"]) == (404, "not_found")
    assert Job.objects.filter(status="QUEUED").count() == 1


@pytest.mark.parametrize("name", ["tenant"])
@pytest.mark.parametrize("value", ["%00", "a%0Ab", "x" * 201])
def test_a_query_that_names_nothing_is_reported(operator: Client, name: str, value: str) -> None:
    response = operator.post(f"{url(JobFactory(), 'pause')}?{name}={value}")
    assert (response.status_code, error(response)["code"]) == (400, "bad_request")


def test_changes_are_in_the_admins_log_with_their_user(login: Any) -> None:
    client = login("view_job", "pause_job", "cancel_job", "resume_job", "delete_job")
    queued, running = JobFactory(), JobFactory(running=True)
    for job, verb in ((queued, "pause"), (queued, "resume"), (running, "cancel"), (running, "resume")):
        assert client.post(url(job, verb)).status_code < 300
    client.delete(url(queued))
    texts = list(LogEntry.objects.order_by("pk").values_list("object_id", "change_message", "action_flag"))
    assert texts == [
        (str(queued.pk), "Paused over REST; the job was QUEUED.", 2),
        (str(queued.pk), "Resumed over REST; the job was PAUSED.", 2),
        (str(running.pk), "While it ran: asked to stop (cancel), over REST.", 2),
        (str(running.pk), "Request to stop withdrawn, over REST.", 2),
        (str(queued.pk), "Deleted over REST; the job was QUEUED.", 3),
    ]
    assert set(LogEntry.objects.values_list("user_id", flat=True)) == {int(client.session["_auth_user_id"])}
