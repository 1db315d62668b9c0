"""What can be read over REST: a job with its report, the targets, the queues."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobqueue import clock
from jobqueue.api.streams import endpoints
from jobqueue.insight.report import report
from jobqueue.models import Job, Queue
from tests.api.conftest import ROOT, error, url
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db


def test_a_job_is_reported_with_its_report(viewer: Client) -> None:
    job = JobFactory(success=True, result={"n": 1}, tenant="acme", target="t")
    response = viewer.get(url(job))
    assert response.status_code == 200
    found = Job.objects.get(pk=job.pk)
    assert response.json() == {**report(found), "why_waiting": None, "reruns": {"original": None, "copies": []}}
    assert viewer.head(url(job)).status_code == 200


def test_a_job_that_waits_says_why(viewer: Client) -> None:
    holder = JobFactory(error=True, target="t", holds_target=True)
    parked = JobFactory(waiting_for_target=True, target="t")
    found = viewer.get(url(parked)).json()
    assert (found["status"], found["waiting_for"]) == ("PENDING", "target")
    assert (found["why_waiting"]["gate"], found["why_waiting"]["job_id"]) == ("target", holder.pk)
    assert str(holder.pk) in found["why_waiting"]["text"]


def test_only_those_who_may_open_the_admin_read_tracebacks(login: Any) -> None:
    job = JobFactory(error=True, history=[{"attempt": 1, "traceback": "Traceback: here"}])
    assert "Traceback: here" not in login("view_job").get(url(job)).content.decode()
    assert login("view_job", is_staff=True).get(url(job)).json()["runs"][0]["traceback"] == "Traceback: here"


def test_arguments_are_masked(viewer: Client) -> None:
    job = JobFactory(kwargs={"api_key": "sk_live"}, args=["password=hunter2"], target="token=abc")
    page = viewer.get(url(job)).content.decode()
    assert [secret for secret in ("sk_live", "hunter2", "abc") if secret in page] == []


def test_text_that_no_encoding_has_breaks_no_answer(viewer: Client) -> None:
    job = JobFactory(success=True, result={"<img src=x onerror=alert(1)>": "\x7f\u2028</script>"}, message="é\U0001f600")
    assert viewer.get(url(job)).json()["outcome"]["result"] == {"<img src=x onerror=alert(1)>": "\x7f\u2028</script>"}


def test_a_job_is_read_in_the_tenant_that_the_query_names(viewer: Client) -> None:
    job = JobFactory(tenant="acme")
    assert viewer.get(url(job)).status_code == viewer.get(url(job) + "?tenant=acme").status_code == 200
    assert error(viewer.get(url(job) + "?tenant=globex"))["code"] == "not_found"


def test_targets_are_listed_with_what_holds_them(viewer: Client) -> None:
    holder = JobFactory(error=True, target="customer:7", holds_target=True, tenant="acme")
    JobFactory.create_batch(3, waiting_for_target=True, target="customer:7", tenant="acme")
    found = viewer.get(f"{ROOT}targets/").json()
    assert found["more"] is False
    (line,) = found["targets"]
    assert (line["tenant"], line["target"], line["holder_id"], line["holder_status"], line["waiting"]) == (
        "acme",
        "customer:7",
        holder.pk,
        "ERROR",
        3,
    )


def test_a_secret_in_the_name_of_a_target_is_masked(viewer: Client) -> None:
    JobFactory(error=True, target="token=zebra", holds_target=True)
    assert "zebra" not in viewer.get(f"{ROOT}targets/").content.decode()


def test_a_job_that_is_deleted_while_it_is_read_is_not_found(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    job = JobFactory()
    look = endpoints.why_for

    def late(user: Any, found: Job) -> Any:
        Job.objects.filter(pk=found.pk).erase()
        return look(user, found)

    monkeypatch.setattr(endpoints, "why_for", late)
    response = viewer.get(url(job))
    assert (response.status_code, error(response)["code"]) == (404, "not_found")


def test_targets_are_found_by_name_and_tenant_and_bounded(viewer: Client) -> None:
    for tenant, target in (("", "a:1"), ("", "b:1"), ("acme", "a:1")):
        JobFactory(error=True, target=target, holds_target=True, tenant=tenant)

    def names(query: str) -> set[tuple[str, str]]:
        return {(line["tenant"], line["target"]) for line in viewer.get(f"{ROOT}targets/{query}").json()["targets"]}

    assert names("?search=a:") == {("", "a:1"), ("acme", "a:1")}
    assert names("?tenant=") == {("", "a:1"), ("", "b:1")}
    assert names("?tenant=acme") == {("acme", "a:1")}
    found = viewer.get(f"{ROOT}targets/?limit=2").json()
    assert (len(found["targets"]), found["more"]) == (2, True)


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "limit=x",
        "limit=",
        "limit=-1",
        "limit=" + "9" * 5000,
        "limit=%00",
        "search=%00",
        "tenant=%00",
        "search=" + "x" * 201,
    ],
)
def test_a_query_that_means_nothing_is_reported(viewer: Client, query: str) -> None:
    response = viewer.get(f"{ROOT}targets/?{query}")
    assert (response.status_code, error(response)["code"]) == (400, "bad_request")


def test_a_queue_is_paused_and_resumed_as_a_whole(login: Any) -> None:
    client = login("view_queue", "pause_queue", "resume_queue")
    JobFactory(queue="mail/out")
    for verb, paused, changed in (("pause", True, True), ("pause", True, False), ("resume", False, True)):
        response = client.post(f"{ROOT}queues/mail%2Fout/{verb}/")
        assert (response.status_code, response.json()) == (
            200,
            {"name": "mail/out", "changed": changed, "paused": paused, "max_running": None, "paused_until": None, "warning": ""},
        )
        assert Queue.objects.get(pk="mail/out").paused is paused
        assert LogEntry.objects.latest("pk").change_message == ("Paused over REST." if paused else "Resumed over REST.")
        assert LogEntry.objects.count() == (1 if paused else 2)
        (state,) = [one for one in client.get(f"{ROOT}queues/").json()["queues"] if one["name"] == "mail/out"]
        assert (state["paused"], state["queued"]) == (paused, 1)


def test_a_pause_of_a_queue_that_nothing_knows_is_warned_of(login: Any) -> None:
    client = login("view_queue", "pause_queue", "resume_queue")
    assert client.post(f"{ROOT}queues/mial/pause/").json()["warning"].startswith("No task, setting, schedule, worker or recent job has")
    assert client.post(f"{ROOT}queues/mial/resume/").json()["warning"] == ""


@pytest.mark.parametrize("until", ["7200", "7201"])
def test_a_pause_ends_at_the_time_that_was_said(login: Any, until: str) -> None:
    client = login("view_queue", "pause_queue")
    before = clock.now()
    told = client.post(f"{ROOT}queues/mail/pause/?until={until}").json()
    stored = Queue.objects.get(pk="mail").paused_until
    assert stored is not None
    assert datetime.fromisoformat(told["paused_until"]) == stored
    assert timedelta(seconds=7195) < stored - before < timedelta(seconds=7300)
    (state,) = client.get(f"{ROOT}queues/").json()["queues"]
    assert state["paused_until"] == told["paused_until"]


@pytest.mark.parametrize("until", ["", "x", "0", "-5", "nan", "1e3", "7.5", "07", "1999-01-01T00:00:00Z", "1000000000"])
def test_a_time_that_is_not_in_the_future_ends_no_pause(login: Any, until: str) -> None:
    response = login("view_queue", "pause_queue").post(f"{ROOT}queues/mail/pause/?until={until}")
    assert (response.status_code, error(response)["code"]) == (400, "bad_request")
    assert not Queue.objects.exists()


def test_the_time_at_which_a_job_expires_is_shown(viewer: Any) -> None:
    ends = datetime(2100, 1, 1, 12, tzinfo=UTC)
    told = viewer.get(f"{ROOT}jobs/{JobFactory(expires_at=ends).pk}/").json()
    assert datetime.fromisoformat(told["times"]["expires_at"]) == ends
    assert "It is canceled if it has not started by" in told["why_waiting"]["text"]
    begun = JobFactory(waiting_for_retry=True, expires_at=ends, first_started_at=timezone.now(), run_at=ends)
    assert "not begun by" not in viewer.get(f"{ROOT}jobs/{begun.pk}/").json()["why_waiting"]["text"]


@pytest.mark.parametrize("name", ["%00", "x" * 201, "%ED%A0%80%00"])
def test_an_invalid_queue_name_is_not_found(login: Any, name: str) -> None:
    response = login("view_queue", "pause_queue").post(f"{ROOT}queues/{name}/pause/")
    assert (response.status_code, error(response)["code"]) == (404, "not_found")
    assert not Queue.objects.exists()


def test_a_verb_reads_no_wide_column(operator: Client) -> None:
    job = JobFactory(result={"n": "x" * 1000}, success=True)
    with CaptureQueriesContext(
        connection,
    ) as captured:
        operator.post(url(job, "cancel", "other"))
    (look,) = [query["sql"] for query in captured.captured_queries if 'FROM "jobqueue_job"' in query["sql"]]
    assert '"jobqueue_job"."result"' not in look
    assert '"jobqueue_job"."history"' not in look
