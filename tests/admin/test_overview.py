"""The Overview: the index of the app, and the address of its parts."""

import re
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from jobqueue import clock
from jobqueue.admin.overview import view
from jobqueue.core import recent
from jobqueue.core.error_kinds import error_key
from jobqueue.core.loads import Load
from jobqueue.insight import samples
from jobqueue.models import Queue, Sample
from tests.admin.conftest import Login
from tests.factories import JobFactory, ScheduleFactory, WorkerFactory

PAGE = "/admin/jobqueue/"
EVERY = ("view_job", "view_queue", "view_worker", "view_schedule", "view_webhookdelivery", "view_backgroundjoblease")
PART = {"X-Jobqueue-Part": "overview"}
PARTS = ["ranges", "verdict", "tiles", "chart", "queues", "kinds", "tasks", "workers", "schedules"]

pytestmark = pytest.mark.django_db


def parts(response: Any) -> list[str]:
    return re.findall(r'data-part="(\w+)"', response.content.decode())


def text(response: Any, part: str = "") -> str:
    content = response.content.decode()
    if part:
        found = re.search(rf'<(section|ul|div) [^>]*data-part="{part}".*?</\1>', content, re.DOTALL)
        content = found[0] if found else ""
    return " ".join(re.sub(r"<[^>]+>", " ", content).split())


def sampled(kind: str = "queue", name: str = "mail", ago: int = 60, **values: Any) -> None:
    begins = int((samples.now() - ago) // 10) * 10
    Sample.objects.create(kind=kind, name=name, seconds=10, slot=begins // 10 % 360, begins=begins, **Load(**values).columns())


def failed(number: int, message: str = "ValueError: card declined", **more: Any) -> None:
    key = error_key("tests.tasks.add", "ValueError", message)
    history = [{"attempt": 1, "outcome": "ERROR", "exception": "ValueError", "message": message}]
    for _ in range(number):
        JobFactory(error=True, error_key=key, message=message, history=history, **more)


def test_an_installation_without_rows_has_a_clear_page(login: Login) -> None:
    response = login(*EVERY).get(PAGE)
    assert response.status_code == 200
    assert parts(response) == PARTS
    assert "There are no samples in this range" in text(response, "chart")
    assert "No worker is alive" in text(response, "workers")
    assert "No job is in error." in text(response, "kinds")


def test_the_verdict_names_each_problem_with_a_page_and_a_verb(login: Login) -> None:
    WorkerFactory(stuck=2)
    failed(3, target="customer:7")
    JobFactory(waiting_for_target=True)
    ScheduleFactory(retry_at=clock.now(), last_error="no such task")
    verdict = text(login(*EVERY).get(PAGE), "verdict")
    for sentence, verb in (
        ("3 jobs ended in ERROR", "See the jobs"),
        ("The jobs of 1 target wait for an operator", "Free the targets"),
        ("2 threads did not stop", "Open the worker"),
        ("1 schedule could not enqueue", "Correct the schedules"),
    ):
        assert sentence in verdict
        assert verb in verdict


def test_all_is_well_if_there_is_no_problem(login: Login) -> None:
    WorkerFactory()
    assert "All is well" in text(login(*EVERY).get(PAGE), "verdict")


def test_the_numbers_lead_to_exactly_that_many_jobs(login: Login) -> None:
    for _ in range(3):
        JobFactory(queue="mail")
    JobFactory(queue="index")
    JobFactory(running=True, queue="mail")
    client = login(*EVERY)
    content = client.get(PAGE).content.decode()
    links = re.findall(r'<a href="(/admin/jobqueue/job/\?[^"]*)">(?:<bdi>)?(\d+)', content)
    assert len(links) == 5  # two tiles; mail's waiting and running; index's waiting
    for url, number in links:
        page = client.get(url.replace("&amp;", "&"))
        assert page.context["cl"].result_count == int(number), url


def test_never_more_jobs_run_than_there_are_slots(login: Login) -> None:
    worker = WorkerFactory(slots=2)  # its row is up to 10 s old
    JobFactory.create_batch(3, running=True, lease_owner=str(worker.pk))
    assert "3 of 3 slots" in text(login(*EVERY).get(PAGE), "tiles")


def test_the_numbers_of_a_queue_come_from_its_samples(login: Login) -> None:
    for ago, depth in ((290, 100), (280, 100), (270, 100), (50, 400), (40, 400), (30, 400)):
        sampled(ago=ago, queued=depth, enqueued=30, succeeded=14, failed=1, waits=[0] * 20 + [15])
    JobFactory(queue="mail")
    shown = text(login(*EVERY).get(PAGE), "queues")
    assert "mail" in shown
    assert "0.60 0.30 0.02" in shown  # 180, 90 and 6 jobs in 300 s
    assert "grows by" in shown


def test_a_paused_queue_is_marked_in_the_table_and_the_chart(login: Login) -> None:
    sampled(queued=1)
    Queue.objects.create(name="mail", paused=True)
    response = login(*EVERY).get(PAGE)
    assert "Paused" in text(response, "queues")
    assert "queue mail paused" in text(response, "chart")


def test_a_new_release_is_marked_in_the_chart(login: Login) -> None:
    sampled(queued=1)
    WorkerFactory(release="2026.11", started_at=clock.now() - timedelta(minutes=10))
    assert "release 2026.11" in text(login(*EVERY).get(PAGE), "chart")


def test_errors_are_grouped_by_kind(login: Login) -> None:
    failed(3, "ValueError: card declined for order 1")
    failed(1, "ValueError: no")
    shown = text(login(*EVERY).get(PAGE), "kinds")
    assert re.search(r"3 tests.tasks.add ValueError: card declined .* 1 tests.tasks.add ValueError: no", shown)


def test_the_tasks_with_the_most_run_time_come_first(login: Login) -> None:
    sampled("task", "shop.tasks.fast", succeeded=100, run_seconds=10.0, runs=[0] * 12 + [100])
    sampled("task", "shop.tasks.slow", succeeded=2, failed=2, run_seconds=90.0, runs=[0] * 30 + [4])
    shown = text(login(*EVERY).get(PAGE), "tasks")
    assert shown.index("slow") < shown.index("fast")
    assert "90 %" in shown
    assert "50 %" in shown  # failed


@pytest.mark.parametrize("period", ["1h", "24h", "14d"])
def test_each_range_has_a_chart(login: Login, period: str) -> None:
    sampled(enqueued=5)
    response = login(*EVERY).get(PAGE, {"range": period})
    assert response.status_code == 200
    assert "<polyline" in response.content.decode()


@pytest.mark.parametrize("period", ["", "2h", "\0", "1h' OR 1=1", "x" * 5000])
def test_an_unknown_range_is_a_bad_request(login: Login, period: str) -> None:
    client = login(*EVERY)
    for url in (PAGE, reverse("admin:jobqueue_job_overview")):
        assert client.get(url, {"range": period}, headers=PART).status_code == 400


@pytest.mark.parametrize(
    ("permission", "shown"),
    [
        ("view_job", ["ranges", "verdict", "kinds"]),
        ("view_queue", ["ranges", "verdict", "tiles", "chart", "queues", "tasks"]),
        ("view_worker", ["ranges", "verdict", "workers"]),
        ("view_schedule", ["ranges", "verdict", "schedules"]),
    ],
)
def test_a_user_sees_only_the_parts_whose_pages_they_may_view(login: Login, permission: str, shown: list[str]) -> None:
    WorkerFactory(stuck=1)
    failed(1)
    response = login(permission).get(PAGE)
    assert parts(response) == shown
    assert ("did not stop" in text(response)) == (permission == "view_worker")
    assert ("ended in ERROR" in text(response)) == (permission == "view_job")


def test_a_user_who_may_view_nothing_of_it_has_no_overview(login: Login) -> None:
    assert login().get(PAGE).status_code == 404
    assert login().get(reverse("admin:jobqueue_job_overview"), headers=PART).status_code == 403
    assert parts(login("view_webhookdelivery").get(PAGE)) == []


def mine(user: Any) -> Any:
    from django.db.models import Q

    return Q() if user.is_superuser else Q(tenant="mine")


@override_settings(JOBQUEUE={"VISIBLE_JOBS": "tests.admin.test_overview.mine"})
def test_a_user_who_may_see_some_jobs_sees_the_numbers_of_these_only(login: Login, admin_client: Client) -> None:
    sampled(queued=7, name="hidden")
    JobFactory(queue="mail", tenant="mine")
    JobFactory(queue="mail", tenant="other")
    JobFactory(queue="hidden", tenant="other")
    failed(2, tenant="other")
    assert "3 jobs that can be claimed" in text(admin_client.get(PAGE), "tiles")
    response = login(*EVERY).get(PAGE)
    assert parts(response) == ["ranges", "tiles", "queues", "kinds", "workers", "schedules"]
    assert "1 jobs that can be claimed" in text(response, "tiles")
    assert "No job is in error." in text(response, "kinds")
    assert "hidden" not in text(response, "queues")
    assert "You may see some of the jobs only" in text(response)


def test_a_name_with_a_secret_is_masked_and_has_no_link(login: Login) -> None:
    JobFactory(queue="https://user:hunter22@example.com")
    content = login(*EVERY).get(PAGE).content.decode()
    assert "hunter22" not in content
    assert "user:" in content


def test_the_parts_are_those_of_the_page(login: Login) -> None:
    failed(1)
    client = login(*EVERY)
    response = client.get(reverse("admin:jobqueue_job_overview"), {"range": "24h"}, headers=PART)
    assert parts(response) == PARTS
    assert "no-store" in response["Cache-Control"]
    assert "<html" not in response.content.decode()


def test_the_address_of_the_parts_leads_to_the_page_if_it_is_opened_by_hand(login: Login) -> None:
    response = login(*EVERY).get(reverse("admin:jobqueue_job_overview"), {"range": "24h"}, follow=True)
    assert response.redirect_chain == [(f"{PAGE}?range=24h", 302)]
    assert "<html" in response.text


def test_the_parts_need_a_login_and_a_get(client: Client, login: Login) -> None:
    url = reverse("admin:jobqueue_job_overview")
    assert client.get(url, headers=PART).status_code == 403
    assert login(*EVERY).post(url).status_code == 403


def test_the_parts_end_soon_after_a_logout(login: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    client, url = login(*EVERY), reverse("admin:jobqueue_job_overview")
    assert client.get(url, headers=PART).status_code == 200
    session = client.cookies["sessionid"].value
    client.logout()
    client.cookies["sessionid"] = session
    later = time.monotonic() + view.CHECK_SECONDS + 1
    monkeypatch.setattr(recent.time, "monotonic", lambda: later)
    assert client.get(url, headers=PART).status_code == 403


def test_fifty_open_pages_cost_fewer_than_five_statements_a_second(login: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    WorkerFactory(stuck=1)
    sampled(queued=7, enqueued=1, succeeded=1)
    sampled("task", "tests.tasks.add", queued=7, enqueued=1, succeeded=1, run_seconds=1.0)
    failed(2)
    ScheduleFactory()
    JobFactory(queue="mail")
    clients = [login(*EVERY) for _ in range(50)]
    url, now, seconds, step = reverse("admin:jobqueue_job_overview"), time.monotonic(), view.CHECK_SECONDS, 10
    monkeypatch.setattr(recent.time, "monotonic", lambda: now)
    with CaptureQueriesContext(connection) as queries:
        for _ in range(int(seconds) // step):
            for client in clients:  # each fetches twice as often, but what is kept is kept for longer than that
                assert client.get(url, headers=PART).status_code == 200
            now += step
    sent = [query["sql"] for query in queries if "SAVEPOINT" not in query["sql"]]  # only a test reads in a transaction
    assert len(sent) / seconds < 5
