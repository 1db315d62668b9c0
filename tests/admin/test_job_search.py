"""The search field of the list of jobs: the search language, what was searched, and how a search continues."""

from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from django.test import Client

from jobqueue.admin import columns, listing
from tests.admin.conftest import LIST
from tests.factories import JobFactory, WorkerFactory, ahead

pytestmark = pytest.mark.django_db


def shown(client: Client, q: str = "", **filters: Any) -> Any:
    response = client.get(f"{LIST}?{urlencode({**({'q': q} if q else {}), **filters})}")
    assert response.status_code == 200
    return response.context["cl"]


def found(client: Client, q: str = "", **filters: Any) -> list[int]:
    return [job.pk for job in shown(client, q, **filters).result_list]


def test_the_search_language_finds_jobs(viewer: Client) -> None:
    worker = WorkerFactory(host="web-1", pid=4121)
    one = JobFactory(args=[], kwargs={"order_id": 7, "user": {"id": 8}}, queue="mail", target="customer:7", tenant="acme")
    two = JobFactory(args=[7], task="tests.tasks.add", worker_ids=[str(worker.pk)])
    three = JobFactory(error=True, message="OSError: it timed out", finished_at=ahead(hours=-3), error_key="0123456789abcdef")
    for q, wanted in (
        (f"#{one.pk}", [one]),
        ("order_id=7", [one]),
        ("args.user.id=8 queue:mail", [one]),
        ("a=7", [two]),
        ('error:"timed out"', [three]),
        ("target:customer:7", [one]),
        ("tenant:acme", [one]),
        ("status:ERROR kind:0123456789abcdef", [three]),
        ("since:2h", [two, one]),
        ("until:2h", [three]),
        ("ended:4h", [three]),
        ("ended:2h", []),
        ("worker:web-1:4121", [two]),
        ("task:=tests.tasks.ad", []),
        ("order_id=7 status:ERROR", []),
    ):
        assert found(viewer, q) == [job.pk for job in wanted], q
    assert found(viewer, "order_id=7", queue="mail") == [one.pk]
    assert found(viewer, "order_id=7", queue="other") == []


@pytest.mark.parametrize(
    ("q", "filters", "text"),
    [
        ("password=hunter2", {}, "is the name of a secret, which no search can find"),
        ("nofield:x", {}, "is no field of a search; the fields are error, kind"),
        ("status:NONE", {}, "it must be one of PENDING"),
        ("two words", {}, "is no part of a search"),
        ("queue:mail", {"queue": "mail"}, "queue: is given twice"),
    ],
)
def test_a_search_that_cannot_be_read_finds_nothing_and_says_why(viewer: Client, q: str, filters: dict[str, str], text: str) -> None:
    JobFactory(queue="mail", args=[], kwargs={"password": "hunter2"})
    cl = shown(viewer, q, **filters)
    assert list(cl.result_list) == []
    assert text in cl.nothing_found.text
    assert "No job was searched for." in cl.nothing_found.text


@pytest.mark.usefixtures("small_table")
def test_a_search_that_finds_nothing_names_the_fields_and_offers_other_searches(viewer: Client) -> None:
    ended = JobFactory(success=True, target="customer:7")
    note = shown(viewer, "order_id=7 since:1h").nothing_found
    assert note.text == "No job found. The search covered all 1 job, by since, the argument order_id."
    offers = dict(shown(viewer, "customer:7").nothing_found.offers)
    assert found(viewer, **{name: value[0] for name, value in parse_qs(offers["Search for target:customer:7"][1:]).items()}) == [ended.pk]


def test_a_search_by_argument_continues_further_back_and_finds_each_job_once(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "WINDOW", 4)
    monkeypatch.setattr(listing, "MAX_MATCHED", 2)
    jobs = [JobFactory(args=[], kwargs={"n": number % 2}) for number in range(10)]
    wanted = [job.pk for number, job in enumerate(jobs) if number % 2]
    url, pages = f"{LIST}?q=n%3D1", list[int]()
    for _ in range(20):
        response = viewer.get(url)
        cl = response.context["cl"]
        pages += [job.pk for job in cl.result_list]
        assert bool(cl.further_url) == bool(cl.window_note or cl.nothing_found)
        if not cl.further_url or (pages and pages[-1] == wanted[0]):
            break
        url = f"{LIST}{cl.further_url}"
    assert pages == wanted[::-1]


def test_a_search_that_reads_arguments_says_that_it_stopped(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_MATCHED", 2)
    for _ in range(3):
        JobFactory(args=[], kwargs={"n": 1})
    cl = shown(viewer, "n=1")
    assert cl.summary == "2+ jobs; only the newest 2 are listed"
    assert cl.window_note == "The search stopped after 2 jobs."


def test_the_oldest_jobs_can_come_first_also_beyond_the_newest(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "WINDOW", 2)
    jobs = [JobFactory(queue="mail") for _ in range(4)]
    cl = shown(viewer, "queue:mail")
    assert [job.pk for job in cl.result_list] == [job.pk for job in reversed(jobs)]
    response = viewer.get(f"{LIST}{cl.order_url}")
    assert [job.pk for job in response.context["cl"].result_list] == [job.pk for job in jobs]
    assert "newest first" in response.content.decode()


def test_the_arguments_are_brief_masked_and_in_the_order_of_the_signature(viewer: Client) -> None:
    JobFactory(task="tests.tasks.add", args=[], kwargs={"b": 2, "a": 1, "password": "hunter2"})
    JobFactory(task="shop.gone", args=[1, "x" * 500], kwargs={})
    JobFactory(args=[], kwargs={"text": "".join(map(str, range(5000)))})
    text = viewer.get(LIST).content.decode()
    assert "a=1, b=2, password=********" in text
    assert f"1, {'x' * 40}…" in text
    assert "x" * 41 not in text
    assert "hunter2" not in text
    assert "1234567891011" not in text


def test_queue_task_target_and_worker_are_links_to_their_jobs(viewer: Client) -> None:
    worker = WorkerFactory(host="web-1", pid=4121)
    job = JobFactory(queue="mail & co", task="shop.tasks.send", target="customer 7", worker_ids=[str(worker.pk)])
    JobFactory(queue="other")
    [row] = shown(viewer, queue="mail & co").result_list
    for column in (columns.queue, columns.task, columns.worker):
        address = str(column(row)).split('href="')[1].split('"')[0].replace("&amp;", "&")
        assert [one.pk for one in viewer.get(address).context["cl"].result_list] == [job.pk], address
    assert dict(parse_qs(urlsplit(str(columns.worker(row)).split('href="')[1].split('"')[0]).query)) == {"q": ["worker:web-1:4121"]}


def test_filters_are_above_the_list_and_each_chosen_one_can_be_removed(viewer: Client) -> None:
    JobFactory(queue="mail")
    response = viewer.get(f"{LIST}?queue=mail&status=QUEUED")
    text = response.content.decode()
    assert text.index('<details class="jq-filters">') < text.index('id="result_list"')
    assert [(name, value) for name, value, _ in response.context["cl"].chips] == [("status", "QUEUED"), ("queue", "mail")]
    chips = viewer.get(f"{LIST}?ended_within=3600").context["cl"].chips
    assert [(name, value) for name, value, _ in chips] == [("ended", "in the last hour")]
