"""The kinds of errors: which errors are of one kind, how they are counted, and where they are shown."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connection
from django.db.models import Q
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobqueue import clock
from jobqueue.core.error_kinds import error_key, normalized
from jobqueue.core.states import Status
from jobqueue.db import Lease
from jobqueue.insight import error_kinds as kinds
from jobqueue.lifecycle import aside, control, expire
from jobqueue.lifecycle.finish import finish
from jobqueue.lifecycle.outcome import Failure, Kind, Outcome
from jobqueue.models import Job
from tests.command import run, told
from tests.db.test_plans_ended import pages
from tests.factories import JobFactory

SAME = (
    ("order 17 has no price", "order 4711 has no price"),
    ("it took 3.5 s", "it took 12 s"),
    ("no row 'a b' in \"x\"", "no row 'it' in \"another one\""),
    ("job 0d9e9f6a-7f0b-4b44-9f0e-1f6b8f7a2d11 is gone", "job A1B2C3D4-0000-4b44-9f0e-1f6b8f7a2d11 is gone"),
    ("hash 9f86d081884c7d65 at 0x7f3a", "hash deadbeef00112233 at 0xff"),
    ("it failed\nwith details", "it failed\nwith more"),
)
OTHER = (("it took 3 s", "it needs 3 s"), ("connection refused", "connection reset"), ("it's late", "it is late"))


@pytest.mark.parametrize(("one", "other"), SAME)
def test_messages_that_differ_in_values_only_are_of_one_kind(one: str, other: str) -> None:
    assert normalized(one) == normalized(other)
    assert error_key("a.b", "ValueError", one) == error_key("a.b", "ValueError", other)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_other_messages_tasks_and_exceptions_are_of_other_kinds(one: str, other: str) -> None:
    assert error_key("a.b", "ValueError", one) != error_key("a.b", "ValueError", other)
    assert len({error_key(task, path, one) for task in ("a.b", "a.c") for path in ("ValueError", "KeyError")}) == 4


@pytest.mark.parametrize("message", ["", "\n", "\ud800", "9" * 100_000, "'" * 5000, "\x00", "a" * 100_000])
def test_any_text_has_a_key(message: str) -> None:
    assert len(error_key("a.b", "ValueError", message)) == 16


def failed(key: str, message: str = "ValueError: no", hours: float = 0, **columns: Any) -> Job:
    entry = {"attempt": 1, "outcome": "ERROR", "exception": "builtins.ValueError", "message": message}
    return JobFactory(error=True, error_key=key, history=[entry], finished_at=timezone.now() - timedelta(hours=hours), **columns)


@pytest.mark.django_db
def test_kinds_are_counted_by_age_with_their_first_last_and_newest_job() -> None:
    old, _, new = failed("a" * 16, hours=30), failed("a" * 16, hours=5), failed("a" * 16, "ValueError: password=hunter2")
    failed("b" * 16, hours=2, task="tests.tasks.other")
    JobFactory(success=True, error_key="a" * 16), JobFactory(queued=True, error_key="c" * 16)
    first, second = kinds.error_kinds()
    assert (first.key, first.number, first.in_last_hour, first.in_last_day) == ("a" * 16, 3, 1, 2)
    assert first.newest_id == new.pk
    assert abs(first.first_at - clock.aware(old.finished_at)) < timedelta(seconds=1)
    assert abs(first.last_at - clock.aware(new.finished_at)) < timedelta(seconds=1)
    assert (first.task, first.exception) == ("tests.tasks.add", "builtins.ValueError")
    assert "hunter2" not in first.message
    assert (second.key, second.number, second.in_last_hour, second.task) == ("b" * 16, 1, 0, "tests.tasks.other")


def end(job: Job, kind: Kind, message: str) -> str:
    failure = Failure("builtins.ValueError", message, "", job.task)
    finish([Outcome(Lease(job.pk, job.lease_token), kind, failure=failure, message="half done")])
    job.refresh_from_db()
    return job.error_key


@pytest.mark.django_db
def test_a_job_that_ends_in_error_stores_its_kind_and_a_retry_does_not() -> None:
    jobs = [JobFactory(running=True) for _ in range(3)]
    ends = ((Kind.ERROR, "ValueError: order 1"), (Kind.ERROR, "ValueError: order 22"), (Kind.RETRY, "ValueError: order 3"))
    keys = [end(job, kind, message) for job, (kind, message) in zip(jobs, ends, strict=True)]
    assert keys == [error_key("tests.tasks.add", "builtins.ValueError", "ValueError: order 9")] * 2 + [""]
    control.resume(jobs[0].pk)
    assert [(kind.number, kind.newest_id) for kind in kinds.error_kinds()] == [(1, jobs[1].pk)]


@pytest.mark.django_db
def test_lost_jobs_and_jobs_that_were_set_aside_have_kinds() -> None:
    lost = [JobFactory(expired=True, recovery="hold") for _ in range(2)]
    expire.expire_stale_running_jobs()
    bad = [JobFactory(queued=True) for _ in range(2)]
    for job in bad:
        assert aside.try_set_aside(Lease(job.pk, job.lease_token), Status.QUEUED, "it cannot be claimed", ValueError(f"no {job.pk}"))
    assert {(kind.number, kind.newest_id) for kind in kinds.error_kinds()} == {(2, lost[1].pk), (2, bad[1].pk)}


@pytest.mark.django_db
def test_one_bad_row_hides_no_kind() -> None:
    bad, good = failed("a" * 16), failed("b" * 16)
    if connection.vendor == "sqlite":
        connection.cursor().execute("PRAGMA ignore_check_constraints = ON")
    value = "{" if connection.vendor == "sqlite" else '"text"'
    connection.cursor().execute("UPDATE jobqueue_job SET history = %s, message = '' WHERE id = %s", [value, bad.pk])
    assert {kind.newest_id: kind.exception for kind in kinds.error_kinds()} == {bad.pk: "", good.pk: "builtins.ValueError"}


@pytest.mark.django_db
def test_rest_and_the_command_list_the_kinds_and_a_user_sees_those_of_visible_jobs(settings: Any, client: Client) -> None:
    for number in range(3):
        failed("a" * 16, tenant="acme" if number else "")
    failed("b" * 16)
    user = get_user_model().objects.create_user("viewer")
    user.user_permissions.add(Permission.objects.get(codename="view_job"))
    client.force_login(user)
    body = client.get("/jobqueue/errors/?limit=1").json()
    assert [(kind["key"], kind["number"]) for kind in body["errors"]] == [("a" * 16, 3)]
    assert body["more"]
    data, status = told("errors")
    assert (status, [kind["number"] for kind in data]) == (0, [3, 1])
    text, status = run("errors")
    assert (status, text.splitlines()[0]) == (0, "Errors")
    assert "ValueError: no" in text
    settings.JOBQUEUE = {**settings.JOBQUEUE, "VISIBLE_JOBS": lambda user: Q(tenant="acme")}
    narrowed = client.get("/jobqueue/errors/").json()["errors"]
    assert [(kind["key"], kind["number"], kind["in_last_hour"]) for kind in narrowed] == [("a" * 16, 2, 2)]


@pytest.mark.django_db
def test_many_jobs_of_a_kind_are_counted_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "MAX_COUNTED", 2)
    for _ in range(3):
        failed("a" * 16)
    [kind] = kinds.error_kinds()
    assert (kind.number, kind.number_is_capped, kind.in_last_hour) == (2, True, 2)


@pytest.mark.postgresql
@pytest.mark.django_db
@pytest.mark.parametrize("known", ["never analyzed", "analyzed"])
def test_the_count_reads_a_bounded_part_of_the_index_of_kinds_only(known: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "MAX_COUNTED", 10)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO jobqueue_job (task, status, error_key, finished_at)"
            " SELECT 'a.b', CASE n % 3 WHEN 0 THEN 'SUCCESS' ELSE 'ERROR' END, 'kind ' || n % 20, now() - n * interval '1 second'"
            " FROM generate_series(1, 20000) AS n"
        )
        if known == "analyzed":
            cursor.execute("ANALYZE jobqueue_job")
    with CaptureQueriesContext(connection) as queries:
        found = kinds.error_kinds()
    assert [(kind.number, kind.number_is_capped) for kind in found] == [(10, True)] * 20
    [sql] = [query["sql"] for query in queries.captured_queries if "count(*)" in query["sql"]]
    assert pages(sql) < 1_500  # 20 kinds, for each the first and the last and three times ten entries; the table has more
