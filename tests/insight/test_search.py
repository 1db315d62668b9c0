"""Which jobs a search finds, in which order, and how far back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from jobqueue import public_ids
from jobqueue.db import Now
from jobqueue.insight import search
from jobqueue.models import Job, Worker
from tests.factories import JobFactory, ahead
from tests.unchecked import unchecked, write

pytestmark = pytest.mark.django_db


def found(text: str, **given: Any) -> list[int]:
    return [job.pk for job in search.page(Job.objects.current, search.parsed(text), 100, **given).jobs]


def test_a_job_is_found_by_its_number_and_its_public_id() -> None:
    one, other = JobFactory(success=True), JobFactory()
    assert found(str(one.pk)) == found(public_ids.public_id(one.pk)) == [one.pk]
    assert found(f"{one.pk} status:QUEUED") == []
    assert found("") == [other.pk, one.pk]


def test_an_argument_is_found_by_its_name_and_by_its_position() -> None:
    named = JobFactory(task="shop.gone", args=[], kwargs={"a": 7})
    text = JobFactory(task="shop.gone", args=[], kwargs={"a": "7"})
    placed = JobFactory(task="tests.tasks.add", args=[7])
    JobFactory(task="tests.tasks.add", args=[8, 7])
    JobFactory(task="shop.gone", args=[7])
    JobFactory(task="shop.gone", args=[], kwargs={"a": True, "b": {"a": 7}})
    with_context = JobFactory(task="tests.tasks.count_slowly", args=[7])
    assert found("a=7") == [placed.pk, text.pk, named.pk]
    assert found('a="7"') == [text.pk]
    assert found("seconds=7") == [with_context.pk]
    assert found("a=1") == []  # true equals 1 on SQLite


def test_a_path_leads_into_an_argument() -> None:
    one = JobFactory(args=[], kwargs={"user": {"id": 7, "tags": ["x", None], "exact": "é'\""}})
    other = JobFactory(task="tests.tasks.log_in", args=["anna", "secret-of-anna", {"id": 8}])
    assert found("args.user.id=7") == found("user.tags.0=x") == found("user.tags.1=null") == [one.pk]
    assert found('user.exact="é\'\\""') == [one.pk]
    assert found("options.id=8") == [other.pk]
    assert found("user.tags.2=x") == found("user.id.x=7") == found("user=7") == []


def test_fields_are_found() -> None:
    worker = Worker.objects.create(pk=UUID(int=7), host="web1", pid=4711, release="r1")
    owner = str(worker.pk)
    job = JobFactory(
        error=True,
        queue="mail",
        tenant="acme",
        target="customer:7",
        worker_ids=["x", owner],
        message="TimeoutError: It timed out",
        error_key="0123456789abcdef",
    )
    ran = JobFactory(running=True, lease_owner=owner, worker_ids=["x"])
    JobFactory(queue="other", worker_ids=[owner, "x"])
    retried = JobFactory(waiting_for_retry=True, history=[{"release": "r0"}, {"release": "r1"}])
    for text in (
        'error:"Timed Out"',
        "kind:0123456789abcdef",
        "target:customer:7",
        "queue:mail",
        "tenant:acme",
        "status:error",
        "task:add status:ERROR",
    ):
        assert found(text) == [job.pk], text
    assert found("worker:web1:4711") == found(f"worker:{owner}") == [ran.pk, job.pk]
    assert found("release:r1") == [retried.pk, ran.pk, job.pk]
    assert found("worker:nowhere") == found("task:unknown") == []


def test_times_are_those_of_the_end_or_of_the_creation() -> None:
    old, new = JobFactory(error=True, finished_at=ahead(hours=-3)), JobFactory(error=True, finished_at=ahead(hours=-1))
    waiting = JobFactory()
    Job.objects.filter(pk=waiting.pk).update(created_at=Now() - timedelta(hours=3))
    assert found("since:2h") == [new.pk]
    assert found("until:2h") == [waiting.pk, old.pk]
    assert found("since:4h until:2h status:ERROR") == [old.pk]


def test_no_search_finds_a_masked_value() -> None:
    JobFactory(
        args=[],
        kwargs={"password": "hunter22", "variables": [{"name": "token", "value": "hunter22"}], "url": "https://u:hunter22@x.example"},
        error=True,
        message="ValueError: hunter22 is wrong",
    )
    assert found("error:hunter") == found("variables.0.value=hunter22") == found("url=https://u:hunter22@x.example") == []
    assert found('error:"is wrong"') != []


def test_pages_follow_one_another_without_gaps_and_report_how_far_they_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "WINDOW", 5)
    old = [JobFactory(error=True, queue="mail").pk, JobFactory(queue="mail").pk, JobFactory(paused=True, queue="mail", target="t").pk]
    ended = JobFactory(success=True, queue="mail").pk
    new = [JobFactory(success=number % 2 == 0, queue="mail").pk for number in range(5)]
    wanted, pages, after = [*reversed(new), *reversed(old)], list[int](), None
    for _ in range(10):
        page = search.page(Job.objects.current, search.parsed("queue:mail"), 2, after)
        assert page.scope == "The newest 5 jobs, and up to 50,000 older ones of each open state."
        pages += [job.pk for job in page.jobs]
        after = page.after
        if after is None:
            break
    assert pages == wanted
    assert found("target:t") == [old[2]]
    twice = JobFactory(paused=True, target="new").pk
    assert found("target:new") == [twice]
    assert found('error:"no"') == found("status:ERROR since:1h") == [old[0]]  # no column of the index is wanted
    assert found(f"{ended}") == [ended]
    assert search.page(Job.objects.current, search.parsed("status:ERROR"), 2).scope == ""


def test_a_row_whose_arguments_cannot_be_read_stops_no_search() -> None:
    bad, good = JobFactory(error=True), JobFactory(args=[], kwargs={"a": 7})
    text = "'{'" if connection.vendor == "sqlite" else "'7'"  # PostgreSQL stores only JSON
    with unchecked():
        for column in ("args", "kwargs", "worker_ids", "history"):
            write(Job, bad.pk, column, text)
    assert found("a=7") == [good.pk]
    assert found("release:r1") == []
    assert found("") == [good.pk, bad.pk]
