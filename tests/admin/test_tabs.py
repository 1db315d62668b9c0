"""The tabs on every page of the app's admin."""

import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin import AdminSite
from django.contrib.auth.models import AnonymousUser
from django.test import Client, RequestFactory
from django.urls import reverse

from jobqueue.admin import JobAdmin, tabs
from jobqueue.admin.pages import Pages
from jobqueue.db import counting
from jobqueue.models import Job, Schedule, Worker
from tests.admin.conftest import Login
from tests.factories import JobFactory, ScheduleFactory, WorkerFactory

EVERY = ("view_job", "view_queue", "view_worker", "view_schedule", "view_webhookdelivery", "view_backgroundjoblease")
PAGES = {
    "app_list": "Overview",
    "jobqueue_job_changelist": "Jobs",
    "jobqueue_job_targets": "Targets",
    "jobqueue_queue_changelist": "Queues",
    "jobqueue_worker_changelist": "Workers",
    "jobqueue_backgroundjoblease_changelist": "Workers",
    "jobqueue_schedule_changelist": "Schedules",
    "jobqueue_webhookdelivery_changelist": "Webhooks",
}


def row(response: Any) -> str:
    nav = re.search(r'<nav class="jq-tabs".*?</nav>', response.content.decode(), re.DOTALL)
    return nav[0] if nav else ""


def labels(response: Any) -> list[str]:
    return [re.sub(r"<[^>]+>", "", one).strip() for one in re.findall(r"<li>(.*?)</li>", row(response), re.DOTALL)]


def current(response: Any) -> list[str]:
    return re.findall(r'aria-current="page">([^<]+?) ?<', row(response))


@pytest.mark.parametrize("page", PAGES)
def test_every_page_shows_the_tabs_and_marks_its_own(login: Login, page: str) -> None:
    response = login(*EVERY).get(reverse(f"admin:{page}", args=["jobqueue"] if page == "app_list" else []))
    assert {"Overview", "Jobs", "Queues", "Targets", "Workers", "Schedules", "Webhooks"} <= {*labels(response)}
    assert current(response) == [PAGES[page]]


def test_the_pages_of_one_object_show_the_tabs(login: Login) -> None:
    job, worker, client = JobFactory(), WorkerFactory(), login(*EVERY)
    for url in (
        reverse("admin:jobqueue_job_change", args=[job.pk]),
        reverse("admin:jobqueue_job_history", args=[job.pk]),
    ):
        assert current(client.get(url)) == ["Jobs"]
    assert current(client.get(reverse("admin:jobqueue_worker_change", args=[worker.pk]))) == ["Workers"]


def test_a_tab_is_shown_only_to_users_who_may_view_its_page(login: Login) -> None:
    assert labels(login("view_worker").get(reverse("admin:jobqueue_worker_changelist"))) == ["Overview", "Workers"]
    assert labels(login("view_webhookdelivery").get(reverse("admin:jobqueue_webhookdelivery_changelist"))) == ["Webhooks"]


def test_a_tab_is_shown_only_if_its_page_exists(login: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabs, "TABS", (*tabs.TABS, tabs.Tab("No page", "jobqueue_no_page", Job, "n")))  # type: ignore[arg-type]
    assert "No page" not in labels(login(*EVERY).get("/admin/jobqueue/job/"))


def test_the_tabs_of_another_site_lead_to_its_own_pages(rf: RequestFactory, admin_user: Any) -> None:
    site = AdminSite(name="operations")
    site.register(Job, JobAdmin)
    request = rf.get("/")
    request.user, request.resolver_match = admin_user, None
    request.current_app = "operations"  # type: ignore[attr-defined]
    assert Pages(request).site is site
    assert not any(tab.label == "Workers" for tab in tabs.shown_tabs(request))  # not registered there


def test_a_page_of_no_admin_site_has_no_tabs(rf: RequestFactory) -> None:
    request = rf.get("/")
    request.user, request.resolver_match = AnonymousUser(), None
    assert tabs.shown_tabs(request) == []


def test_the_numbers_say_what_they_count(login: Login) -> None:
    WorkerFactory()
    schedule = ScheduleFactory()
    Schedule.objects.filter(pk=schedule.pk).update(last_error="no such task", retry_at=schedule.changed_at)
    shown = labels(login(*EVERY).get("/admin/jobqueue/job/"))
    assert "Workers 1 alive" in shown
    assert "Schedules 1 failing" in shown
    assert "Jobs" in shown


def test_a_process_counts_once_for_users_with_the_same_rights(
    login: Login, django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    real = counting.count
    monkeypatch.setattr(counting, "count", lambda database, sql, params: counted.append(sql) or real(database, sql, params))
    clients = [login(*EVERY), login(*EVERY)]
    for client in clients:
        client.get("/admin/jobqueue/job/")
    assert len(counted) == 1


@pytest.mark.django_db
def test_the_numbers_are_bounded_counts_in_one_statement(django_assert_num_queries: Any) -> None:
    JobFactory.create_batch(3)
    database = Job.objects.database
    with django_assert_num_queries(1):
        sql, params = counting.statement(database, [Job.objects.all(), Job.objects.filter(pk__in=[]), Worker.objects.all()], 2)
        assert counting.count(database, sql, params) == [2, 0, 0]


def test_a_popup_has_no_tabs(login: Login) -> None:
    assert labels(login(*EVERY).get("/admin/jobqueue/job/", {"_popup": "1"})) == []


def test_the_page_of_an_unknown_filter_has_tabs(login: Login) -> None:
    assert current(login(*EVERY).get("/admin/jobqueue/job/", {"secret__exact": "1"})) == ["Jobs"]


def test_no_tabs_are_shown_before_the_login(client: Client) -> None:
    assert labels(client.get("/admin/jobqueue/job/", follow=True)) == []


def test_each_tab_has_a_key_of_its_own() -> None:
    keys = [tab.key for tab in tabs.TABS]
    assert len({*keys}) == len(tabs.TABS)
    documented = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()
    assert all(re.fullmatch("[a-z]", tab.key) and f"`{tab.key}` {tab.label}" in documented for tab in tabs.TABS)


def test_the_list_of_keys_names_the_tabs_of_the_user(login: Login) -> None:
    text = login("view_worker").get(reverse("admin:jobqueue_worker_changelist")).text
    dialog = text[text.index('<dialog id="jobqueue-keys"') : text.index("</dialog>")]
    assert re.findall(r"<kbd>g</kbd> <kbd>(.)</kbd></dt><dd>(\w+)</dd>", dialog) == [("o", "Overview"), ("w", "Workers")]
