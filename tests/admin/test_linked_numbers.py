"""Each number in a link leads to a page with exactly that many rows; a walk over all pages of the admin that have numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from django.test import Client

from jobqueue.admin import delivery_list, listing
from jobqueue.core.error_kinds import error_key
from jobqueue.models import Job, Queue
from tests.factories import DeliveryFactory, JobFactory, ScheduleFactory, WorkerFactory, ahead

pytestmark = pytest.mark.django_db

ROOT = "/admin/jobqueue/"
NUMBER = re.compile(r"(?:All )?([\d,]+)(?:$| )")
PAGES = (
    "",
    "job/",
    "job/errors/",
    "job/errors/?range=1h",
    "job/targets/",
    "job/tasks/",
    "job/tasks/tests.tasks.add/",
    "job/bulk/",
    "queue/",
)
PAGES += ("queue/mail/change/", "worker/", "schedule/", "webhookdelivery/", "auditrecord/", "backgroundjoblease/")


class Links(HTMLParser):
    """The links of a page with their texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self._href: str | None = None
        self._text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self._href, self._text = dict(attrs).get("href"), ""

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "a" and self._href:
            self.found.append((self._href, " ".join(self._text.split())))
            self._href = None


def numbers(client: Client, url: str) -> Iterator[tuple[str, int]]:
    """Yield the links of a page whose text begins with a number."""
    response = client.get(url)
    assert response.status_code == 200, url
    for href, text in Links(response.text).found:
        found = NUMBER.match(text)
        if found and "range=" not in href:  # "24 hours" is no number of rows
            yield urljoin(url, href), int(found[1].replace(",", ""))


def rows_of(client: Client, url: str) -> int:
    """Return the number of rows that a page says it has."""
    response: Any = client.get(url)
    assert response.status_code == 200, url
    context, path = response.context, urlsplit(url).path
    if urlsplit(url).fragment == "blocked":
        return len(context["lines"])
    if path == f"{ROOT}job/errors/":
        [text] = re.findall(r"(\d+) kinds", response.text)
        return int(text)
    if path.startswith(f"{ROOT}job/errors/"):
        assert f">{context['row'].number} job" in response.text
        return int(context["row"].number)
    if path == f"{ROOT}job/targets/":
        return len(context["targets"])
    cl = context["cl"]
    assert len(cl.result_list) == cl.result_count
    paginator = re.search(r'class="paginator"[^>]*>(.*?)</(?:p|nav)>', response.text, re.DOTALL)  # a paragraph before Django 6
    assert paginator is not None, url
    assert re.search(rf"(?:^|>)\s*{cl.result_count} ", paginator[1]), url
    return int(cl.result_count)


def failed(number: int, message: str, hours: float = 0, **values: Any) -> None:
    key = error_key("tests.tasks.add", "ValueError", message)
    for _ in range(number):
        history = [{"attempt": 1, "outcome": "ERROR", "exception": "ValueError", "message": message, "traceback": message}]
        JobFactory(error=True, error_key=key, message=message, history=history, finished_at=ahead(hours=-hours), **values)


@pytest.fixture(params=[200_000, 4], ids=["all jobs are searched", "the newest four jobs are searched"])
def rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make rows of every state, most of them older than the newest that a search without an index covers."""
    for module in (listing, delivery_list):
        monkeypatch.setattr(module, "WINDOW", request.param)
    Queue.objects.create(name="mail", max_running=5)
    for number in range(3):
        JobFactory(queue="mail", enqueued_at=ahead(hours=-2), priority=number)
    for queue, number in (("mail", 2), ("images", 1)):
        for _ in range(number):
            JobFactory(queue=queue, running=True, started_at=ahead(seconds=-9))
    failed(3, "ValueError: card declined for order 1", queue="mail")
    failed(2, "ValueError: card declined for order 2", hours=2)
    failed(1, "KeyError: no", hours=48)
    for number in range(9):
        failed(1, f"ValueError: {'abcdefghi'[number]} is missing")
    failed(1, "ValueError: stuck", target="customer:7")
    JobFactory(waiting_for_target=True, target="customer:7")
    for trait in ("paused", "scheduled", "canceled", "waiting_for_retry", "waiting_for_children"):
        JobFactory(**{trait: True})
    for _ in range(8):
        JobFactory(success=True)
    job = JobFactory(success=True)
    for trait in ("failed", "failed", "delivered"):
        DeliveryFactory(job=job, **{trait: True})
    for attempts in (1, 2):
        DeliveryFactory(job=job, attempts=attempts, error="no", next_attempt_at=ahead(hours=1))
    ScheduleFactory(), ScheduleFactory(retry_at=ahead(), last_error="no such task")
    WorkerFactory(stuck=1), WorkerFactory(heartbeat_at=ahead(hours=-1))


@pytest.mark.long
def test_each_number_in_a_link_is_the_number_of_rows_behind_it(admin_client: Client, rows: None) -> None:
    queries = ["status:ERROR", "queue:mail status:QUEUED"]
    kinds = [href for href, _text in Links(admin_client.get(f"{ROOT}job/errors/").text).found if re.search(r"/errors/\w+/$", href)]
    pages = [*(ROOT + page for page in PAGES), *kinds, *(f"{ROOT}job/bulk/new/?verb=cancel&q={query}" for query in queries)]
    found = {(page, url): number for page in pages for url, number in numbers(admin_client, page) if "/jobqueue/" in url}
    said = {url: rows_of(admin_client, url) for _page, url in found}
    assert {where: (number, said[where[1]]) for where, number in found.items() if number != said[where[1]]} == {}
    assert len(found) > 60


def test_the_number_of_a_tab_is_that_of_the_rows_it_names(admin_client: Client, rows: None) -> None:
    response = admin_client.get(ROOT)
    tabs = dict(re.findall(r'data-go="(\w)"[^>]*>\w+ <span class="jq-tab-number">(\d+) ', response.text))

    def listed(page: str) -> list[Any]:
        context: Any = admin_client.get(ROOT + page).context
        return list(context["cl"].result_list)

    errors: Any = admin_client.get(f"{ROOT}job/errors/").context
    assert {key: int(number) for key, number in tabs.items()} == {
        "e": sum(row.kind.number for row in errors["kinds"]),
        "w": sum(worker.stuck for worker in listed("worker/")),  # that with a stuck thread is the one that is alive
        "s": sum(bool(schedule.last_error) for schedule in listed("schedule/")),
        "h": sum(delivery.status == "FAILED" for delivery in listed("webhookdelivery/")),
    }


def test_the_number_of_a_problem_is_that_of_the_rows_to_which_it_leads(admin_client: Client, rows: None) -> None:
    context: Any = admin_client.get(ROOT).context
    numbered = {one.problem.code: one for one in context["page"]["findings"] if one.problem.count and not one.problem.subject}
    assert {code: one.problem.count for code, one in numbered.items()} == {
        code: rows_of(admin_client, one.url) for code, one in numbered.items()
    }
    assert {"failed_jobs", "blocked_targets", "failing_schedules", "failed_webhooks", "retried_webhooks"} <= {*numbered}


def test_each_filter_by_status_leads_to_the_jobs_of_that_status(admin_client: Client, rows: None) -> None:
    links = [href for href, _text in Links(admin_client.get(f"{ROOT}job/").text).found if re.fullmatch(r"\?status=\w+", href)]
    found = {href.partition("=")[2]: rows_of(admin_client, urljoin(f"{ROOT}job/", href)) for href in links}
    assert found.keys() == {*Job.Status.values}
    del found["SUCCESS"]  # has no index: the page says that only the newest were searched
    assert found == {status: Job.objects.filter(status=status).count() for status in found}
