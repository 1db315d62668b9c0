"""The kept plan of the statement that stores one job: the result is the same, and no job is lost with the plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DataError, connection, transaction

from jobqueue.db import pooler
from jobqueue.db.fast_path import prepared
from jobqueue.lifecycle import wakeup
from jobqueue.lifecycle.enqueue import JobSpec, enqueue
from jobqueue.models import Job, JobEvent

pytestmark = [pytest.mark.fast_path, pytest.mark.postgresql, pytest.mark.session, pytest.mark.django_db(transaction=True)]
SPEC = JobSpec("tests.tasks.add", args="[1]")
BEFORE = prepared.PREPARED_AFTER + 1  # the number of calls before the first one that can use the plan


@pytest.fixture(autouse=True)
def fresh_connection(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start without plans; the first enqueue of a test notifies, all further notifications are held back."""
    monkeypatch.setattr(wakeup, "_last", {})
    monkeypatch.setattr(wakeup, "PAUSE_SECONDS", 60.0)
    connection.close()
    yield
    connection.close()


def execute(sql: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall()) if cursor.description else []


def plans() -> dict[str, int]:
    """Return how often each kept plan was used."""
    return dict(execute("SELECT name, generic_plans + custom_plans FROM pg_prepared_statements WHERE name LIKE 'jobqueue%'"))


def made(number: int) -> list[dict[str, Any]]:
    """Return what the last jobs say, in the order in which they were made."""
    columns = ("queue", "args", "priority", "task", "kwargs", "status", "claim_rank", "options", "max_attempts")
    return list(Job.objects.order_by("-id")[:number].values(*columns))[::-1]


def prepare(spec: JobSpec = SPEC) -> None:
    for _ in range(BEFORE):
        enqueue(spec)


def test_after_some_jobs_the_next_ones_go_by_a_kept_plan() -> None:
    prepare()
    assert list(plans().values()) == [0]
    made = [enqueue(SPEC) for _ in range(3)]
    assert list(plans().values()) == [3]
    assert Job.objects.count() == BEFORE + 3
    assert list(Job.objects.order_by("id").values_list("pk", "created_at"))[-3:] == [(one.job_id, one.created_at) for one in made]
    assert list(JobEvent.objects.order_by("id").values_list("job_id", "name"))[-3:] == [(one.job_id, "job.enqueued") for one in made]


@pytest.mark.parametrize("notified", [False, True])
def test_a_kept_plan_stores_the_same_row_as_the_statement(notified: bool) -> None:
    texts = ["'; DROP TABLE x; --", "back\\slash \\' \"", "100 % %s $1 {}", "naïve ☃ 𝄞", "-1"]
    specs = [JobSpec("tests.tasks.add", args=f'["{number}"]', queue=text, priority=-5) for number, text in enumerate(texts)]
    prepare()
    calls = sum(plans().values())
    for spec in specs:
        if notified:
            wakeup._last.clear()
        enqueue(spec)
    assert sum(plans().values()) == calls + len(specs)
    by_plan = made(len(specs))
    connection.close()
    for spec in specs:
        enqueue(spec)
    assert plans() == {}
    assert made(len(specs)) == by_plan
    assert [row["queue"] for row in by_plan] == texts


@pytest.mark.parametrize("lose", ["DEALLOCATE ALL", "DISCARD ALL"])
@pytest.mark.parametrize("notified", [False, True])
def test_a_session_that_has_lost_its_plans_still_stores_the_job_and_keeps_no_more_plans(lose: str, notified: bool) -> None:
    prepare()
    execute(lose)
    if notified:
        wakeup._last.clear()
    made = enqueue(SPEC)
    assert (Job.objects.count(), Job.objects.latest("id").pk) == (BEFORE + 1, made.job_id)
    assert getattr(connection.connection, prepared.KNOWN) is None
    prepare()
    assert plans() == {}
    connection.close()
    prepare()
    assert len(plans()) == 1


def test_a_table_that_has_changed_meanwhile_still_stores_the_job() -> None:
    prepare()
    execute("ALTER TABLE jobqueue_jobevent ALTER COLUMN at TYPE timestamptz(3)")
    try:
        enqueue(SPEC)
        assert Job.objects.count() == BEFORE + 1
    finally:
        execute("ALTER TABLE jobqueue_jobevent ALTER COLUMN at TYPE timestamptz")


def test_a_plan_name_that_is_already_taken_does_not_prevent_the_job() -> None:
    prepare()
    setattr(connection.connection, prepared.KNOWN, {})  # as if this were another client of a pooler that was not recognized
    prepare()
    enqueue(SPEC)
    assert Job.objects.count() == 2 * BEFORE + 1
    assert list(plans().values()) == [0]


def test_behind_a_pooler_no_plan_is_kept() -> None:
    connection.ensure_connection()
    setattr(connection.connection, pooler.ATTRIBUTE, True)
    prepare()
    enqueue(SPEC)
    assert plans() == {}


def test_if_the_project_has_no_sessions_of_its_own_no_plan_is_kept(settings: Any) -> None:
    settings.JOBQUEUE = {**settings.JOBQUEUE, "NOTIFY": False}
    prepare()
    enqueue(SPEC)
    assert plans() == {}


def test_inside_a_transaction_nothing_could_be_sent_again_so_no_plan_is_used() -> None:
    prepare()
    with transaction.atomic():
        enqueue(SPEC)
        assert list(plans().values()) == [0]
        execute("DEALLOCATE ALL")
        enqueue(SPEC)
    assert Job.objects.count() == BEFORE + 2


@pytest.mark.parametrize("args", ["[", '["\0"]', '["\udc80"]'])
def test_values_that_the_database_refuses_are_refused_in_the_same_way(args: str) -> None:
    refused = JobSpec("tests.tasks.add", args=args)
    found = []
    for _ in range(2):
        with pytest.raises((DataError, UnicodeEncodeError)) as caught:
            enqueue(refused)
        found.append((caught.type, str(caught.value)))
        prepare()
    assert found[0][0] is found[1][0]
    assert found[0][1].splitlines()[0] == found[1][1].splitlines()[0]
    assert Job.objects.count() == 2 * BEFORE


def test_a_plan_follows_the_search_path() -> None:
    prepare()
    enqueue(SPEC)
    execute("CREATE SCHEMA elsewhere")
    try:
        execute("CREATE TABLE elsewhere.jobqueue_job (LIKE public.jobqueue_job INCLUDING ALL)")
        execute("SET search_path = elsewhere, public")
        made = enqueue(SPEC)
        assert execute("SELECT id FROM elsewhere.jobqueue_job") == [(made.job_id,)]
    finally:
        execute("SET search_path = public")
        execute("DROP SCHEMA elsewhere CASCADE")
    enqueue(SPEC)
    assert (Job.objects.count(), sum(plans().values())) == (BEFORE + 2, 3)


def test_each_statement_has_its_own_and_their_number_is_bounded(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "MOST", 2)
    prepare()
    settings.JOBQUEUE = {**settings.JOBQUEUE, "EVENT_LOG": "none"}
    prepare()
    assert len(plans()) == 2
    prepare(JobSpec("tests.tasks.add", tenant="t"))
    assert len(plans()) == 2
    enqueue(SPEC)
    assert JobEvent.objects.filter(job=Job.objects.latest("id")).count() == 0
