"""The pages of errors: the kinds with their numbers and links, and the page of one kind."""

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from jobqueue.admin import JobAdmin, errors
from jobqueue.models import Job
from tests.admin.conftest import LIST, Login
from tests.factories import JobFactory, WorkerFactory, ahead

pytestmark = pytest.mark.django_db
ERRORS = f"{LIST}errors/"
KEY, OTHER = "0123456789abcdef", "fedcba9876543210"
TRACEBACK = 'Traceback (most recent call last):\n  File "x.py", line 1, in pay\nValueError: no money'


def failed(key: str = KEY, hours: float = 0.1, **given: Any) -> Job:
    entry = {"attempt": 1, "exception": "shop.errors.NoMoney", "message": "no money", "traceback": TRACEBACK, "release": "v7"}
    values = {"task": "tests.tasks.add", "history": [entry], "message": "NoMoney: no money", **given}
    job: Job = JobFactory(error=True, error_key=key, finished_at=ahead(hours=-hours), **values)
    return job


def rows(client: Client, query: str = "") -> list[Any]:
    response = client.get(f"{ERRORS}{query}")
    assert response.status_code == 200
    found: list[Any] = response.context["kinds"]
    return found


def found_by(client: Client, url: str) -> int:
    number: int = client.get(url).context["cl"].result_count
    return number


def test_each_kind_is_shown_with_its_numbers_and_each_number_leads_to_that_many_jobs(operator: Client) -> None:
    for hours in (0.1, 0.2, 5, 200):
        failed(hours=hours)
    failed(OTHER, hours=0.05)
    failed("", hours=300)
    JobFactory(success=True)
    [other, one, unknown] = rows(operator)
    assert (one.exception, one.message, one.task) == ("NoMoney", "no money", "tests.tasks.add")
    assert (one.number, one.in_last_hour, one.in_last_day) == ("4", "2", "3")
    assert tuple(found_by(operator, url) for url in (one.jobs_url, one.hour_url, one.day_url, other.jobs_url)) == (4, 2, 3, 1)
    assert (unknown.number, found_by(operator, unknown.jobs_url), unknown.url) == ("1", 1, "")
    assert "verb=resume" in one.retry_url
    assert "verb=cancel" in one.cancel_url


def test_kinds_are_ordered_and_narrowed_by_the_links(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    failed(), failed()
    failed(OTHER, hours=0.05)
    failed("1111111111111111", hours=30)
    failed("2222222222222222", hours=24 * 20)
    assert [row.kind.key[0] for row in rows(operator)] == ["f", "0", "1", "2"]
    assert rows(operator, "?sort=most")[0].kind.key == KEY
    assert len(rows(operator, "?range=1h")) == 2
    assert len(rows(operator, "?range=24h")) == 2
    assert len(rows(operator, "?range=14d&sort=x")) == 3
    assert len(rows(operator, "?range=nonsense")) == 4
    monkeypatch.setattr(errors, "MAX_SHOWN", 1)
    assert "Only the first 1 kinds are shown." in operator.get(ERRORS).content.decode()


def test_without_errors_the_page_says_so(operator: Client) -> None:
    assert "No job is in ERROR." in operator.get(ERRORS).content.decode()
    failed(hours=2)
    assert "No job that is in ERROR ended in this range." in operator.get(f"{ERRORS}?range=1h").content.decode()
    gone = operator.get(f"{ERRORS}{OTHER}/")
    assert gone.status_code == 200
    assert "now. Its jobs may have been retried, canceled or deleted." in gone.content.decode()


def test_targets_that_wait_behind_a_kind_are_counted_and_named(operator: Client) -> None:
    failed(target="customer:7")
    JobFactory(waiting_for_target=True, target="customer:7")
    failed(target="nobody-waits")
    [row] = rows(operator)
    assert row.lines == 1
    text = operator.get(f"{ERRORS}{KEY}/").content.decode()
    assert "customer:7" in text
    assert "nobody-waits" not in text


def test_a_kind_has_its_newest_traceback_its_runs_its_arguments_and_its_jobs(operator: Client) -> None:
    worker = WorkerFactory(host="web-1", pid=4121)
    old = failed(hours=3, args=[], kwargs={"customer": 7, "password": "hunter2"}, worker_ids=[str(worker.pk)])
    new = failed(hours=1, args=[7], kwargs={"customer": 7}, worker_ids=[str(worker.pk)])
    response = operator.get(f"{ERRORS}{KEY}/")
    text = response.content.decode()
    assert response.context["newest"].pk == new.pk
    assert "File &quot;x.py&quot;, line 1, in pay" in text
    tables = {title: [(name, percent) for name, _, percent in found] for title, found in response.context["tables"]}
    assert tables == {"Workers": [("web-1:4121", 100)], "Releases": [("v7", 100)], "Arguments": [("customer=7", 100)]}
    assert [job.pk for job, *_ in response.context["jobs"]] == [new.pk, old.pk]
    assert "a=7, customer=7" in text
    assert "hunter2" not in text


def test_large_arguments_are_not_read(operator: Client) -> None:
    failed(args=[], kwargs={"text": "".join(map(str, range(5000)))})
    assert [brief for _, brief, *_ in operator.get(f"{ERRORS}{KEY}/").context["jobs"]] == ["…"]


def test_the_pages_show_only_jobs_that_the_user_may_see(operator: Client, login: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    failed(tenant="mine"), failed(tenant="other"), failed(OTHER, tenant="other")
    assert login("view_worker").get(ERRORS).status_code == 403
    assert login("view_worker").get(f"{ERRORS}{KEY}/").status_code == 403
    assert operator.post(ERRORS).status_code == 403
    assert rows(login("view_job"))[0].retry_url == ""
    everything = JobAdmin.get_queryset
    monkeypatch.setattr(JobAdmin, "get_queryset", lambda self, request: everything(self, request).filter(tenant="mine"))
    [row] = rows(operator)
    assert (row.kind.key, row.number, row.retry_url) == (KEY, "1", "")
    assert "now. Its jobs may have been" in operator.get(f"{ERRORS}{OTHER}/").content.decode()


def test_secrets_and_markup_of_an_error_do_not_reach_the_pages(operator: Client) -> None:
    failed(history=[{"exception": "x.<b>E</b>", "message": "password=hunter2 <script>", "traceback": "password=hunter2 <script>"}])
    for url in (ERRORS, f"{ERRORS}{KEY}/"):
        text = operator.get(url).content.decode()
        assert "hunter2" not in text
        assert not re.search(r"<script>(?!\s*</script>)", text)
        assert "<b>E" not in text


def test_the_number_of_statements_does_not_depend_on_the_number_of_kinds(operator: Client) -> None:
    def statements() -> list[int]:
        numbers = []
        for url in (ERRORS, f"{ERRORS}{0:016x}/"):
            with CaptureQueriesContext(connection) as captured:
                operator.get(url)
            numbers.append(len(captured))
        return numbers

    failed(f"{0:016x}")
    statements()  # the first request fills caches
    few = statements()
    for number in range(1, 20):
        failed(f"{number:016x}", hours=number / 10)
    assert statements() == few
