"""The pages of bulk actions: they ask, show the progress, stop, and list the last actions."""

from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from jobqueue.admin import JobAdmin, actions
from jobqueue.bulk.actions import create
from jobqueue.clock import now
from jobqueue.duties.run_bulk_actions import RunBulkActions
from jobqueue.models import BulkAction, Job
from tests.admin.conftest import LIST, Login, choose, told
from tests.factories import JobFactory, WorkerFactory

pytestmark = pytest.mark.django_db
NEW = f"{LIST}bulk/new/"
ALL = f"{LIST}bulk/"


def page(client: Client, url: str, status: int = 200) -> Any:
    response = client.get(url)
    assert response.status_code == status
    return response


def asked(client: Client, verb: str, query: str) -> Any:
    return page(client, f"{NEW}?{urlencode({'verb': verb, 'q': query})}")


def confirmed(client: Client, verb: str, query: str) -> BulkAction:
    response = client.post(NEW, {"verb": verb, "q": query})
    assert response.status_code == 302
    action = BulkAction.objects.get()
    assert response["Location"] == f"{ALL}{action.pk}/"
    return action


def run_all() -> None:
    duty = RunBulkActions()
    while duty.run_once(now()).again:
        pass


def test_the_confirmation_counts_and_names_what_would_change_and_changes_nothing(operator: Client) -> None:
    failed = [JobFactory(error=True, queue=queue, error_key="0123456789abcdef") for queue in ("mail", "mail", "other")]
    JobFactory(error=True, queue="third"), JobFactory(success=True, queue="mail")
    response = asked(operator, "cancel", "status:ERROR kind:0123456789abcdef")
    text = response.content.decode()
    assert response.context["title"] == "Cancel 3 jobs?"
    assert "This cannot be undone." in text
    assert "a canceled job never runs again" in text
    counts = {title: {name: number for name, _, number in rows} for title, rows in response.context["counts"]}
    assert counts["By queue"] == {"mail": 2, "other": 1}
    assert [job.pk for job, *_ in response.context["rows"]] == [job.pk for job in reversed(failed)]
    assert {job.status for job in Job.objects.all()} == {"ERROR", "SUCCESS"}
    assert not BulkAction.objects.exists()


@pytest.mark.parametrize(
    ("verb", "query"),
    [("cancel", "queue:mail"), ("cancel", "queue:mail status:QUEUED"), ("resume", "status:ERROR"), ("delete", "status:SUCCESS")],
)
def test_each_number_of_the_confirmation_leads_to_that_many_jobs(operator: Client, verb: str, query: str) -> None:
    for queue in ("mail", "other"):
        for traits in ({}, {"error": True, "error_key": "0123456789abcdef"}, {"success": True}, {"paused": True}, {"running": True}):
            JobFactory(queue=queue, task="tests.tasks.fail", **traits)
            JobFactory(queue=queue, **traits)
    linked = 0
    for _, rows in asked(operator, verb, query).context["counts"]:
        for name, url, number in rows:
            if url:
                linked += 1
                assert page(operator, url).context["cl"].result_count == number, name
    assert linked


def test_a_confirmed_action_is_done_by_a_worker_with_a_record_for_it_and_for_each_job(operator: Client) -> None:
    failed = [JobFactory(error=True) for _ in range(3)]
    action = confirmed(operator, "resume", "status:ERROR")
    assert (action.source, action.counted, action.state) == ("admin", 3, "OPEN")
    text = page(operator, f"{ALL}{action.pk}/").content.decode()
    assert "0 of 3 jobs were resumed." in text
    assert 'http-equiv="refresh"' in text
    assert "No worker is alive." in text
    WorkerFactory()
    assert "No worker is alive." not in page(operator, f"{ALL}{action.pk}/").content.decode()
    run_all()
    text = page(operator, f"{ALL}{action.pk}/").content.decode()
    assert "3 of 3 jobs were resumed." in text
    assert 'http-equiv="refresh"' not in text
    assert set(Job.objects.values_list("status", flat=True)) == {"QUEUED"}
    assert LogEntry.objects.count() == 1 + len(failed)


def test_the_script_gets_only_the_part_that_changes(operator: Client) -> None:
    JobFactory(error=True)
    action = confirmed(operator, "resume", "status:ERROR")
    part = operator.get(f"{ALL}{action.pk}/", headers={"X-Jobqueue-Part": "bulk"})
    assert b"<html" not in part.content
    assert b'data-open="yes"' in part.content
    assert "X-Jobqueue-Part" in part["Vary"]


def test_an_action_is_stopped_once(operator: Client) -> None:
    JobFactory(error=True)
    action = confirmed(operator, "resume", "status:ERROR")
    stop = f"{ALL}{action.pk}/stop/"
    assert operator.get(stop).status_code == 302
    assert not BulkAction.objects.get().stop
    operator.post(stop)
    assert "Stopping" in page(operator, f"{ALL}{action.pk}/").content.decode()
    run_all()
    response = operator.post(stop)
    assert told(response)[-1] == "The bulk action has ended, so it cannot be stopped."
    assert BulkAction.objects.get().state == "STOPPED"
    assert Job.objects.get().status == "ERROR"


def test_the_list_shows_the_last_actions_of_all_sources_with_masked_searches(operator: Client) -> None:
    assert "There is no bulk action." in page(operator, ALL).content.decode()
    create("cancel", 'error:"password=hunter2"', actor="operator anna", source="command")
    text = page(operator, ALL).content.decode()
    assert "operator anna" in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"verb": "explode", "q": "status:ERROR"}, 404),
        ({"q": "status:ERROR"}, 404),
        ({"verb": "cancel", "q": ""}, 400),
        ({"verb": "cancel", "q": "nofield:1"}, 400),
        ({"verb": "cancel", "q": "password=x"}, 400),
        ({"verb": "cancel", "q": "a\0b"}, 400),
    ],
)
def test_bad_input_gets_a_clear_answer(operator: Client, query: dict[str, str], status: int) -> None:
    assert operator.get(f"{NEW}?{urlencode(query)}").status_code == status
    assert operator.post(NEW, query).status_code == status
    assert not BulkAction.objects.exists()


def test_an_action_without_jobs_is_not_requested(operator: Client) -> None:
    JobFactory(success=True)
    assert "No job that the search finds can be resumed now." in asked(operator, "resume", "status:ERROR").content.decode()
    assert operator.post(NEW, {"verb": "resume", "q": "status:ERROR"}).status_code == 200
    assert not BulkAction.objects.exists()


def test_each_page_needs_its_permission(login: Login, operator: Client) -> None:
    JobFactory(error=True)
    action = confirmed(operator, "resume", "status:ERROR")
    viewer, stranger = login("view_job"), login("view_worker")
    assert viewer.get(f"{NEW}?verb=resume&q=status:ERROR").status_code == 403
    assert viewer.post(NEW, {"verb": "resume", "q": "status:ERROR"}).status_code == 403
    assert viewer.post(f"{ALL}{action.pk}/stop/").status_code == 403
    assert viewer.get(f"{ALL}{action.pk}/").status_code == viewer.get(ALL).status_code == 200
    assert stranger.get(ALL).status_code == stranger.get(f"{ALL}{action.pk}/").status_code == 403
    assert viewer.get(f"{ALL}{10**30}/").status_code == viewer.get(f"{ALL}{action.pk + 1}/").status_code == 404


def test_a_project_that_restricts_the_list_allows_no_action_on_hidden_jobs(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    JobFactory(error=True, tenant="other")
    everything = JobAdmin.get_queryset
    monkeypatch.setattr(JobAdmin, "get_queryset", lambda self, request: everything(self, request).filter(tenant="mine"))
    assert operator.get(f"{NEW}?verb=resume&q=status:ERROR").status_code == 403
    assert operator.post(NEW, {"verb": "resume", "q": "status:ERROR"}).status_code == 403


def test_all_jobs_of_a_long_list_become_a_bulk_action_with_the_same_jobs(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "MAX_AT_ONCE", 2)
    wanted = [JobFactory(queue="mail", task="shop.send", tenant="acme", target="customer 7") for _ in range(3)]
    for other in ({"queue": "other"}, {"task": "shop.send_all"}, {"tenant": ""}, {"paused": True}, {"target": "customer 8"}):
        JobFactory(**{"queue": "mail", "task": "shop.send", "tenant": "acme", "target": "customer 7", **other})
    filters = {"status": "QUEUED", "queue": "mail", "task": "shop.send", "tenant": "acme", "target": "customer 7"}
    response = choose(operator, "pause", wanted[0], select_across=1, url=f"{LIST}?{urlencode(filters)}")
    assert response.status_code == 302
    given = parse_qs(urlsplit(response["Location"]).query)
    assert response["Location"].startswith(NEW)
    shown = page(operator, response["Location"])
    assert shown.context["found"].number == 3
    confirmed(operator, given["verb"][0], given["q"][0])
    run_all()
    assert set(Job.objects.filter(message__startswith="", status="PAUSED", queue="mail").values_list("pk", flat=True)) >= {
        job.pk for job in wanted
    }
    assert Job.objects.filter(status="QUEUED").count() == 4


def test_the_pages_are_those_of_the_admin_site() -> None:
    assert reverse("admin:jobqueue_job_bulk") == ALL
