"""The page of queues: what it shows, who may change a queue, and what is recorded."""

import io
import re
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import call_command
from django.test import Client
from django.utils.html import escape

from jobqueue.admin import QueueAdmin, listing
from jobqueue.models import Queue
from tests.admin.conftest import Login, told
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db
PAGE = "/admin/jobqueue/queue/"
DECIDE = {what: f"{PAGE}decide/{what}/" for what in ("pause", "resume", "limit")}
PERMISSIONS = {"pause": "pause_queue", "resume": "resume_queue", "limit": "change_queue"}
EVIL = "<img src=x onerror=alert(1)>'\"&/?"


@pytest.fixture
def chief(login: Login) -> Client:
    return login("view_queue", "view_job", "view_worker", *PERMISSIONS.values())


def rows() -> list[Any]:
    return list(Queue.objects.order_by("pk").values_list("pk", "paused", "max_running"))


def audit() -> list[tuple[str, str]]:
    return [(entry.object_id, entry.get_change_message()) for entry in LogEntry.objects.order_by("pk")]


def names(client: Client) -> list[str]:
    return [one.state.name for one in client.get(PAGE).context["queues"]]


def test_queues_with_jobs_are_listed_though_they_have_no_row(chief: Client) -> None:
    JobFactory(queue="mail")
    JobFactory(queue="images", running=True)
    Queue.objects.create(name="reports", paused=True, max_running=3)
    assert names(chief) == ["reports", "images", "mail"]
    page = chief.get(PAGE).content.decode()
    assert page.count("jq-paused") == 1
    assert 'value="3"' in page
    assert "/admin/jobqueue/queue/reports/history/" in page
    assert "/admin/jobqueue/queue/mail/history/" not in page


def test_each_number_links_to_this_many_jobs_however_old_they_are(chief: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "WINDOW", 2)
    JobFactory.create_batch(2, queue="mail & more")
    JobFactory(queue="mail & more", running=True)
    JobFactory.create_batch(4, success=True)
    page = chief.get(PAGE).content.decode()
    links = re.findall(r'<td data-label="\w+" class="jq-number"><a href="([^"]+)">(\d+)</a>', page)
    assert [number for _, number in links] == ["2", "1"]
    for address, number in links:
        assert chief.get(unescape(address)).context["cl"].result_count == int(number)
    assert chief.get("/admin/jobqueue/job/?queue=mail+%26+more").context["cl"].result_count == 3


def test_a_queue_is_paused_resumed_and_limited_and_who_did_it_is_kept(chief: Client) -> None:
    assert told(chief.post(DECIDE["pause"], {"queue": "mail"})) == ["Queue mail: Paused."]
    assert rows() == [("mail", True, None)]
    assert told(chief.post(DECIDE["pause"], {"queue": "mail"}))[-1] == "Queue mail: Paused (no change)."
    assert told(chief.post(DECIDE["limit"], {"queue": "mail", "max_running": " 12 "}))[-1] == "Queue mail: At most 12 running at once."
    chief.post(DECIDE["resume"], {"queue": "mail"})
    assert rows() == [("mail", False, 12)]
    assert chief.post(DECIDE["limit"], {"queue": "mail", "max_running": ""}).url == PAGE
    assert rows() == [("mail", False, None)]
    assert audit() == [
        ("mail", "Paused."),
        ("mail", "At most 12 running at once."),
        ("mail", "Not paused."),
        ("mail", "No limit."),
    ]
    assert "At most 12 running" in chief.get(f"{PAGE}mail/history/").content.decode()


@pytest.mark.parametrize("what", DECIDE)
def test_each_decision_has_its_own_permission(login: Login, what: str) -> None:
    others = [name for each, name in PERMISSIONS.items() if each != what]
    data = {"queue": "mail", "max_running": "3"}
    assert login("view_queue", *others).post(DECIDE[what], data).status_code == 403
    if what != "limit":  # users who may change a queue may view it, too
        assert login(PERMISSIONS[what]).post(DECIDE[what], data).status_code == 403
    assert login("view_queue", *PERMISSIONS.values(), enforce_csrf_checks=True).post(DECIDE[what], data).status_code == 403
    assert Client().post(DECIDE[what], data).status_code == 302
    assert login("view_queue", PERMISSIONS[what]).get(DECIDE[what]).url == PAGE
    assert (rows(), audit()) == ([], [])


def test_a_user_with_only_the_view_permission_sees_no_form(login: Login) -> None:
    Queue.objects.create(name="mail", paused=True, max_running=3)
    page = login("view_queue").get(PAGE).content.decode()
    assert "decide/" not in page
    assert login("view_job").get(PAGE).status_code == 403
    assert login("view_queue").post(PAGE).status_code == 403


@pytest.mark.parametrize(
    ("what", "data", "text"),
    [
        ("pause", {"queue": ""}, "The name of the queue is ''; it must be text of 1 to 200 characters"),
        ("pause", {}, "The name of the queue is ''"),
        ("resume", {"queue": "x" * 201}, "it must be text of 1 to 200 characters"),
        ("pause", {"queue": "a\0b"}, "without NUL"),
        (
            "limit",
            {"queue": "mail", "max_running": "many"},
            "max_running is 'many'; it must be a whole number from 0 to 2147483647, or empty",
        ),
        ("limit", {"queue": "mail", "max_running": "-1"}, "max_running is '-1'"),
        ("limit", {"queue": "mail", "max_running": "9" * 5000}, "max_running is '999"),
        ("limit", {"queue": "mail", "max_running": str(2**31)}, "max_running is 2147483648"),
    ],
)
def test_bad_input_is_reported_and_changes_nothing(chief: Client, what: str, data: dict[str, str], text: str) -> None:
    response = chief.post(DECIDE[what], data)
    assert response.url == PAGE
    assert text in told(response)[0]
    assert (rows(), audit()) == ([], [])


@pytest.mark.urls("demo_project.urls")  # the page of a 404 is the demo's, and links to its other pages
def test_an_unknown_decision_is_not_found(chief: Client) -> None:
    assert chief.post(f"{PAGE}decide/delete/", {"queue": "mail"}).status_code == 404


def test_hostile_names_are_escaped(chief: Client) -> None:
    chief.post(DECIDE["pause"], {"queue": EVIL})
    page = chief.get(PAGE).content.decode()
    assert EVIL not in page
    assert escape(EVIL) in page
    assert chief.get(f"{PAGE}{'%3Cimg src=x'}/change/").status_code == 302


def test_rows_cannot_be_added_edited_or_deleted_by_a_form(chief: Client) -> None:
    Queue.objects.create(name="mail")
    assert chief.get(f"{PAGE}add/").status_code == 403
    assert chief.post(f"{PAGE}mail/change/", {"paused": "on"}).status_code == 403
    assert chief.post(f"{PAGE}mail/delete/", {"post": "yes"}).status_code == 403
    assert "mail" in chief.get(f"{PAGE}mail/change/").content.decode()
    assert rows() == [("mail", False, None)]


def test_a_queue_that_a_project_hides_is_neither_shown_nor_changed(chief: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    Queue.objects.create(name="hidden")
    Queue.objects.create(name="seen")
    everything = QueueAdmin.get_queryset
    monkeypatch.setattr(QueueAdmin, "get_queryset", lambda self, request: everything(self, request).exclude(pk="hidden"))
    assert names(chief) == ["seen"]
    assert chief.post(DECIDE["pause"], {"queue": "hidden"}).status_code == 403
    assert rows() == [("hidden", False, None), ("seen", False, None)]


def test_an_unknown_name_is_warned_of_and_its_row_can_be_forgotten(login: Login, chief: Client) -> None:
    response = chief.post(DECIDE["pause"], {"queue": "mial"})
    assert told(response)[-1].startswith("No task, setting, schedule, worker or recent job has a queue 'mial'.")
    assert "Forget queue mial" not in chief.get(PAGE).content.decode()
    assert chief.post(f"{PAGE}decide/forget/", {"queue": "mial"}).status_code == 403
    forgetful = login("view_queue", "delete_queue")
    assert "Forget queue mial" in forgetful.get(PAGE).content.decode()
    response = forgetful.post(f"{PAGE}decide/forget/", {"queue": "mial"})
    assert told(response)[-1] == "Queue mial: forgotten, with its pause, limit and webhook."
    assert rows() == []
    assert audit()[-1] == ("mial", "Forgotten.")


def test_paused_limited_and_busy_queues_come_first_and_the_page_says_that_there_are_more(
    chief: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        Queue.objects.create(name=f"a{number}")
    Queue.objects.create(name="y", max_running=3)
    Queue.objects.create(name="z", paused=True)
    JobFactory(queue="x")
    for module in ("jobqueue.insight.queues", "jobqueue.insight.queue_names", "jobqueue.admin.queues"):
        monkeypatch.setattr(f"{module}.MAX_QUEUES", 3)
    assert names(chief) == ["z", "y", "x", "a0"]
    assert "Only 3 queues are shown" in chief.get(PAGE).content.decode()
    for address, name in (("queues", "more"), ("status", "more_queues")):
        assert chief.get(f"/jobqueue/{address}/").json()[name] is True
    out = io.StringIO()
    call_command("jobqueue", "status", stdout=out)
    assert "More queues are left out" in out.getvalue()
    Queue.objects.filter(pk__startswith="a").delete()
    assert chief.get("/jobqueue/queues/").json()["more"] is False


@pytest.mark.parametrize("name", ["", "/", "..", "?#%_", "a\nb\x01", "new/"])
def test_no_name_of_a_queue_breaks_a_page(chief: Client, name: str) -> None:
    if name:
        Queue.objects.create(name=name, paused=True, max_running=3)
    JobFactory(queue=name, running=True)
    JobFactory(queue=name, task=name, error=True, error_key="a" * 16)
    for page in (PAGE, "/admin/jobqueue/", "/admin/jobqueue/job/", "/admin/jobqueue/job/tasks/", "/admin/jobqueue/job/errors/"):
        answer = chief.get(page)
        assert answer.status_code == 200
        for link in set(re.findall(r'href="(/admin/jobqueue/(?:queue|job/tasks)/[^"]+)"', answer.content.decode())):
            assert chief.get(unescape(link)).status_code in (200, 302), link
