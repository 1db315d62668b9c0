"""The page of one job: what an operator needs, no secrets, and no form."""

import re
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from jobqueue import clock, task
from jobqueue.admin import task_choices
from jobqueue.core.masking import MASK
from jobqueue.events.record import record
from jobqueue.models import Job, LeftWorker
from tests.admin.conftest import LIST, VERBS, Login, button, detail, told
from tests.factories import JobFactory, WorkerFactory

pytestmark = pytest.mark.django_db
XSS = "</pre><script>alert(1)</script>"


@task(takes_context=True)
def charge(context: object, customer: int, api_key: str, *rest: str) -> None: ...


CHARGE = charge.module_path


def shown(client: Client, job: Any) -> str:
    response = client.get(detail(job))
    assert response.status_code == 200
    return response.content.decode()


def failed(**values: Any) -> dict[str, Any]:
    times = {"started_at": "2026-01-02T03:04:05+00:00", "finished_at": "2026-01-02T03:04:09+00:00"}
    return {"attempt": 1, "worker": "worker-0", "outcome": "RETRY", **times, "exception": "shop.Oops", "message": "Oops: no", **values}


def test_the_page_shows_what_when_budget_lease_and_control(viewer: Client) -> None:
    owner = WorkerFactory(host="batch-1", pid=977)
    job = JobFactory(
        pause_requested=True,
        lease_owner=str(owner.pk),
        lease_token=12,
        queue="reports",
        priority=3,
        unique_key="report:7",
        max_attempts=5,
        failures=2,
        crashes=1,
        progress=40,
        started_at=clock.now(),
        message="page 4",
        options={"timeout": 9},
        metadata={"asked_by": "ann"},
    )
    page = shown(viewer, job)
    texts = (
        "reports",
        "report:7",
        "2 of 5",
        "batch-1:977",
        str(owner.pk),
        "yes, to be paused",
        "page 4",
        'value="40"',
        "asked_by",
        "timeout",
        "12",
    )
    assert [text for text in texts if text not in page] == []


def test_arguments_are_named_by_the_task_and_secret_ones_hidden(viewer: Client) -> None:
    page = shown(viewer, JobFactory(task=CHARGE, args=[7, "sk_live", "more"], kwargs={"db_password": "hunter2", "currency": "EUR"}))
    assert all(name in page for name in ("customer", "api_key", "argument 3", "db_password", "currency", "EUR"))
    assert MASK in page
    assert "sk_live" not in page
    assert "hunter2" not in page


def test_secrets_are_hidden_in_result_metadata_options_message_history_and_key(viewer: Client) -> None:
    job = JobFactory(
        error=True,
        result={"access_token": "s1"},
        metadata={"nested": [{"secret": "s2"}]},
        options={"auth": "s3"},
        message="login failed: password=s4",
        history=[failed(message="token=s5", traceback='  connect(password="s6")', exception="x.Y")],
        unique_key="token=s7",
        webhook_url="https://user:s8@example.org/",
    )
    page = shown(viewer, job)
    assert [
        secret
        for secret in ("s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8")
        if f"{secret}<" in page or f'"{secret}' in page or f"&quot;{secret}" in page or f"={secret}" in page or f":{secret}" in page
    ] == []


@pytest.mark.usefixtures("shown_in_utc")
def test_each_run_that_failed_is_reported_with_its_traceback(viewer: Client) -> None:
    runs = [failed(traceback="Traceback one"), failed(attempt=2, outcome="ERROR", traceback="Traceback two")]
    page = shown(viewer, JobFactory(error=True, history=runs))
    assert "Traceback one" in page
    assert page.index("Traceback two") < page.index("Traceback one")
    assert all(text in page for text in ("Run 2", "RETRY", "shop.Oops", "Oops: no", "2026-01-02 03:04:05 UTC", "4.0 s", "worker-0"))


def test_the_worker_of_a_run_is_a_process_and_a_link_if_it_is_alive(viewer: Client, login: Login) -> None:
    alive, gone = WorkerFactory(host="batch-1", pid=977), uuid.uuid4()
    LeftWorker.objects.create(worker=gone, host="batch-0", pid=12, how="stopped", version="0.1.0")
    unknown = str(uuid.uuid4())
    runs = [failed(worker=str(worker), attempt=number) for number, worker in enumerate((alive.pk, gone, unknown), 1)]
    job = JobFactory(error=True, history=runs)
    page = shown(viewer, job).split('data-part="runs"')[1].split("</section>")[0]
    link = f'<a href="/admin/jobqueue/worker/{alive.pk}/change/"><bdi title="{alive.pk}">batch-1:977</bdi></a>'
    assert link in page
    assert f'<bdi title="{gone}">batch-0:12</bdi>' in page
    assert f'<span title="{unknown}">{unknown[:8]}…</span>' in page
    assert "/worker/" not in shown(login("view_job"), job)


def test_markup_is_escaped_everywhere(viewer: Client) -> None:
    job = JobFactory(
        error=True,
        task=f"x.{XSS}",
        args=[XSS],
        kwargs={XSS: XSS},
        result={XSS: XSS},
        metadata={XSS: XSS},
        options={XSS: XSS},
        message=XSS,
        queue=XSS,
        tenant=XSS,
        target=XSS,
        phase=XSS,
        unique_key=XSS,
        worker_ids=[XSS],
        history=[failed(**dict.fromkeys(("attempt", "worker", "outcome", "started_at", "exception", "message", "traceback"), XSS))],
    )
    page = shown(viewer, job)
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;alert(1)") >= 15


@pytest.mark.parametrize("column", ["args", "kwargs", "options", "metadata", "history", "worker_ids", "result"])
@pytest.mark.parametrize(
    "text", ["null", "7", '"text"', "[]", "{}", "[null, 3, [4]]", '{"a": {"b": null}}', '[{"attempt": {"deep": [1]}, "traceback": 5}]']
)
def test_columns_of_a_wrong_shape_are_shown_as_they_are(operator_of_rows: Client, column: str, text: str) -> None:
    job = JobFactory(error=True)
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE jobqueue_job SET {column} = %s WHERE id = %s", [text, job.pk])
    shown(operator_of_rows, job)
    assert operator_of_rows.get(LIST).status_code == 200


@pytest.fixture
def operator_of_rows(login: Login) -> Client:
    return login("view_job", *VERBS)


@pytest.mark.slow
def test_huge_texts_are_shortened_with_a_mark(viewer: Client) -> None:
    huge = "y" * 1_000_000
    job = JobFactory(error=True, args=[huge], result=huge, message=huge, history=[failed(traceback=huge)] * 30)
    page = shown(viewer, job)
    assert len(page) < 1_000_000
    assert "characters left out" in page


def test_an_unknown_task_is_said_to_be_unknown(viewer: Client) -> None:
    page = shown(viewer, JobFactory(task="gone.tasks.old", args=[1, 2]))
    assert "no such task" in page
    assert "argument 2" in page


def test_a_task_module_that_cannot_be_imported_breaks_no_page(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise SyntaxError("tasks.py, line 3")

    monkeypatch.setattr(task_choices.registry, "discover", broken)
    job = JobFactory()
    shown(viewer, job)
    assert viewer.get(LIST).status_code == 200


@pytest.mark.parametrize("number", ["0", "99999999", "9" * 25, "9" * 5000, "abc", "_00", "-1", "1_5F2"])
def test_a_job_that_is_not_there_leads_back_to_the_list(viewer: Client, number: str) -> None:
    response = viewer.get(f"{LIST}{number}/change/")
    assert response.status_code == 302
    assert response.url == LIST
    assert "There is no job" in told(response)[0]


def test_a_submitted_form_changes_nothing(admin_client: Client) -> None:
    job = JobFactory(running=True)
    before = Job.objects.filter(pk=job.pk).values().get()
    for url in (detail(job), f"{LIST}{job.pk}/delete/", f"{LIST}add/"):
        assert admin_client.post(url, {"status": "QUEUED", "queue": "other", "post": "yes"}).status_code == 403
    assert admin_client.get(f"{LIST}add/").status_code == 403
    assert admin_client.get(f"{LIST}{job.pk}/delete/").status_code == 403
    assert Job.objects.filter(pk=job.pk).values().get() == before


@pytest.mark.long
def test_every_address_is_safe_by_get(admin_client: Client) -> None:
    jobs = [JobFactory(running=True), JobFactory(paused=True), JobFactory(scheduled=True), JobFactory()]
    before = [*Job.objects.values()]
    for job in jobs:
        for verb in ("cancel", "pause", "resume", "run_now"):
            assert admin_client.get(button(job, verb)).status_code == 302
            admin_client.get(LIST, {"action": verb, "_selected_action": job.pk, "index": 0, "confirmed": job.pk})
        for name in ("change", "history", "delete"):
            admin_client.get(f"{LIST}{job.pk}/{name}/")
    assert [*Job.objects.values()] == before


@pytest.mark.long
def test_buttons_show_what_is_possible_and_allowed(operator: Client, viewer: Client, login: Login) -> None:
    def offered(client: Client, **traits: Any) -> list[str]:
        return [verb.name for verb in client.get(detail(JobFactory(**traits))).context["verbs"]]

    assert offered(operator, queued=True) == ["cancel", "pause", "delete"]
    assert offered(operator, running=True) == ["cancel", "pause"]
    assert offered(operator, pause_requested=True) == ["cancel", "resume"]
    assert offered(operator, cancel_requested_=True) == ["resume"]
    assert offered(operator, paused=True) == ["cancel", "resume", "delete"]
    assert offered(operator, error=True) == ["cancel", "resume", "delete"]
    assert offered(operator, scheduled=True) == ["cancel", "pause", "run_now", "delete"]
    assert offered(operator, success=True) == ["delete"]
    assert offered(operator, canceled=True) == ["delete"]
    assert offered(viewer, running=True) == offered(viewer, queued=True) == []
    assert offered(login("view_job", "pause_job"), running=True) == ["pause"]


def test_without_the_permission_to_view_there_is_no_page(login: Login) -> None:
    job = JobFactory()
    stranger = login(*VERBS)
    assert [stranger.get(url).status_code for url in (LIST, detail(job), f"{LIST}{job.pk}/history/")] == [403] * 3


def test_the_report_shows_the_outcome_of_a_job_in_a_few_lines(viewer: Client) -> None:
    begun = clock.now() - timedelta(minutes=5)
    run = {
        "attempt": 1,
        "outcome": "ERROR",
        "message": "OSError: <b>no route</b>",
        "started_at": begun.isoformat(),
        "finished_at": (begun + timedelta(seconds=75)).isoformat(),
    }
    job = JobFactory(
        error=True,
        attempt=3,
        failures=2,
        crashes=1,
        max_attempts=2,
        enqueued_at=begun - timedelta(seconds=3),
        started_at=begun,
        history=[run, run],
    )
    page = viewer.get(detail(job)).content.decode()
    card = page[page.index("jq-report") :].partition("</section>")[0]
    texts = ["Error", "3 started, 2 failed of at most 2, 1 lost with a worker", "3.0 s before the last run"]
    texts += ["1 min 15 s in the last run, 2 min 30 s in all", "2; the last: OSError: &lt;b&gt;no route&lt;/b&gt;"]
    assert [text for text in texts if text not in card] == []


def test_the_times_of_the_last_run_are_on_the_page_once(viewer: Client) -> None:
    begun = clock.now() - timedelta(minutes=5)
    run = {"outcome": "ERROR", "started_at": begun.isoformat(), "finished_at": (begun + timedelta(seconds=0.034)).isoformat()}
    times = {"enqueued_at": begun, "started_at": begun, "finished_at": begun + timedelta(seconds=0.036)}
    page = viewer.get(detail(JobFactory(error=True, history=[run], **times))).content.decode()
    assert "0.03 s in the last run" in page
    assert "0.04 s" not in page.replace("0.04 s ago", "")
    queued = viewer.get(detail(JobFactory(enqueued_at=begun))).content.decode()
    assert "5 min 0" in queued
    assert "Webhook</th>" not in queued


def test_a_job_that_failed_without_a_run_shows_its_message_as_the_error(viewer: Client) -> None:
    page = viewer.get(detail(JobFactory(error=True, message="Set aside: password=hunter2 is no number", history=[]))).content.decode()
    card = page[page.index("jq-report") :].partition("</section>")[0]
    assert "Set aside: password=********" in card
    assert "none" not in card


@pytest.mark.parametrize(("trait", "shown"), [("queued", False), ("success", True), ("error", True), ("canceled", True)])
def test_a_job_that_has_neither_begun_nor_ended_has_no_report(viewer: Client, trait: str, shown: bool) -> None:
    job = JobFactory(**{trait: True})
    assert ("jq-report" in viewer.get(detail(job)).content.decode()) == shown


@pytest.mark.parametrize("status", ["canceled", "paused"])
def test_a_run_that_was_stopped_is_no_error_and_its_abandoned_thread_is_named(viewer: Client, status: str) -> None:
    entry = {"attempt": 1, "worker": "w-1", "outcome": status.upper(), "abandoned": "its thread is still at /srv/tasks.py:12, in work"}
    page = shown(viewer, JobFactory(attempt=1, history=[entry], **{status: True}))
    assert "the last: " not in page
    assert "its thread is still at /srv/tasks.py:12, in work" in page
    assert re.search(r"<th scope=\"row\">Errors</th>\s*<td><bdi>none</bdi></td>", page)


@task
def transfer(zebra: int, apple: int, mango: int) -> None: ...


def test_arguments_have_the_order_of_the_signature(viewer: Client) -> None:
    job = JobFactory(task=transfer.module_path, args=[], kwargs={"apple": 2, "mango": 3, "zebra": 1, "old": 4})
    page = shown(viewer, job)
    places = [page.index(f'<th scope="row">{name}</th>') for name in ("zebra", "apple", "mango", "old")]
    assert places == sorted(places)
    assert [*job.report()["arguments"]["kwargs"]] == ["zebra", "apple", "mango", "old"]


def test_the_seconds_of_an_event_are_rounded(viewer: Client) -> None:
    job = JobFactory(waiting_for_retry=True)
    record(job, "job.retrying", {"delay_seconds": 1.1271447518961408})
    assert "delay: 1.1 s" in shown(viewer, job)
