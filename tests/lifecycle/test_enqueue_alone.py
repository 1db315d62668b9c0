"""Enqueue outside of any transaction: the job, its commit and the notification are one message, and each can fail alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import DatabaseError, DataError, connection, transaction
from django.test.utils import CaptureQueriesContext

from jobqueue import signals
from jobqueue.db import fast_path, inserts
from jobqueue.db.fast_path import prepared
from jobqueue.lifecycle import wakeup
from jobqueue.lifecycle.enqueue import JobSpec, enqueue
from jobqueue.models import Job, JobEvent
from tests.pooler import POOLED
from tests.rivals import Rival, wait_until_somebody_waits_for_a_lock

pytestmark = [pytest.mark.fast_path, pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]
SPEC = JobSpec("tests.tasks.add", args="[1]")
BROKEN = JobSpec("tests.tasks.add", args="[")
COLUMNS = {"task": "tests.tasks.add", "queue": "default", "args": "[]", "kwargs": "{}", "priority": 0}


@pytest.fixture(autouse=True)
def nothing_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the first notification of a test the first one after a long time, so that the following ones are held back."""
    monkeypatch.setattr(wakeup, "_last", {})
    monkeypatch.setattr(wakeup, "PAUSE_SECONDS", 60.0)


@pytest.fixture
def listener(rival: Rival) -> Rival:
    rival.do(Job.objects.database.listen, wakeup.CHANNEL)
    return rival


def hears(listener: Rival, seconds: float = 5.0) -> list[str]:
    found: list[str] = listener.do(Job.objects.database.wait_for_notifications, seconds)
    return found


def is_idle() -> bool:
    raw: Any = connection.connection
    return bool(raw.info.transaction_status == 0) and Job.objects.count() >= 0


@pytest.mark.session
@pytest.mark.parametrize(("tenant", "told"), [("", "queue:mail"), ("acme", 'tenant:["acme", "mail"]')])
def test_workers_are_notified_of_the_job_by_the_statement_that_stored_it(listener: Rival, tenant: str, told: str) -> None:
    with CaptureQueriesContext(connection) as captured:
        made = enqueue(JobSpec("tests.tasks.add", queue="mail", tenant=tenant))
    assert [query["sql"].count("INSERT INTO jobqueue_job ") for query in captured] == [1]
    assert hears(listener) == [told]
    job = Job.objects.get(pk=made.job_id)
    assert (job.created_at, job.queue, job.tenant) == (made.created_at, "mail", tenant)
    assert is_idle()


@pytest.mark.session
def test_the_next_is_held_back(listener: Rival) -> None:
    enqueue(SPEC)
    assert hears(listener) == ["queue:default"]
    enqueue(SPEC)
    assert hears(listener, 0.2) == []
    assert Job.objects.count() == 2


def test_a_notification_that_fails_fails_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    row = inserts.insert_and_commit(Job.objects.database, COLUMNS, (wakeup.CHANNEL, "x" * 9000))
    assert row == Job.objects.values_list("pk", "created_at").get()
    assert JobEvent.objects.get().job_id == row[0]
    assert "the workers were not notified: payload string too long" in caplog.text
    assert is_idle()


def test_a_job_that_the_database_refuses_leaves_no_transaction_behind() -> None:
    with pytest.raises(DataError, match="invalid input syntax for type json"):
        enqueue(BROKEN)
    assert is_idle()
    assert not Job.objects.exists()


@pytest.mark.session
def test_a_job_that_the_database_refuses_holds_back_nothing(listener: Rival) -> None:
    with pytest.raises(DataError):
        enqueue(BROKEN)
    assert hears(listener, 0.2) == []
    enqueue(SPEC)
    assert hears(listener) == ["queue:default"]


def test_one_after_the_other_goes_by_a_kept_plan_where_the_session_is_its_own_and_all_are_made() -> None:
    connection.close()
    made = [enqueue(SPEC) for _ in range(2 * prepared.PREPARED_AFTER + 2)]
    assert list(Job.objects.order_by("id").values_list("pk", "created_at")) == [(one.job_id, one.created_at) for one in made]
    assert (getattr(connection.connection, prepared.KNOWN) is None) == POOLED


@pytest.fixture
def refused_at_the_commit() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$")
        cursor.execute(
            "CREATE CONSTRAINT TRIGGER refusal AFTER INSERT ON jobqueue_job DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER refusal ON jobqueue_job")
        cursor.execute("DROP FUNCTION refuse()")


def test_a_commit_that_fails_is_an_error_and_leaves_no_transaction_behind(refused_at_the_commit: None) -> None:
    with pytest.raises(DatabaseError, match="not this one"):
        enqueue(SPEC)
    assert is_idle()
    assert not Job.objects.exists()


@contextlib.contextmanager
def begun() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        yield
        cursor.execute("ROLLBACK")


@contextlib.contextmanager
def rolled_back() -> Iterator[None]:
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.mark.session
@pytest.mark.parametrize("opened", [begun, rolled_back])
def test_a_transaction_of_the_caller_is_left_to_the_caller(listener: Rival, opened: Callable[[], Any]) -> None:
    with opened():
        assert enqueue(SPEC).created
        assert listener.do(Job.objects.count) == 0
    assert not Job.objects.exists()
    assert is_idle()


@pytest.mark.session
def test_inside_a_transaction_workers_are_notified_after_its_commit(listener: Rival) -> None:
    with transaction.atomic():
        enqueue(SPEC)
        assert hears(listener, 0.2) == []
    assert hears(listener) == ["queue:default"]


def test_a_caller_who_commits_by_hand_or_sends_many_at_once_gets_no_message_of_several_statements() -> None:
    database = Job.objects.database
    assert fast_path.can_commit(database)
    raw: Any = connection.connection
    with raw.pipeline():
        assert not fast_path.can_commit(database)
    transaction.set_autocommit(False)
    try:
        assert not fast_path.can_commit(database)
    finally:
        transaction.set_autocommit(True)
    assert fast_path.can_commit(database)


@pytest.mark.session
def test_with_server_side_binding_it_takes_two_messages(listener: Rival, monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue(SPEC)
    assert hears(listener) == ["queue:default"]
    connection.close()
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "server_side_binding", True)
    monkeypatch.setattr(wakeup, "_last", {})
    try:
        assert not fast_path.can_commit(Job.objects.database)
        assert enqueue(SPEC).created
        assert hears(listener) == ["queue:default"]
    finally:
        connection.close()


def test_a_job_with_a_key_that_waits_for_its_rival_holds_back_no_other(rival: Rival) -> None:
    keyed = JobSpec("tests.tasks.add", unique_key="k")
    third = Rival()
    try:
        with rival.transaction():
            first = rival.do(enqueue, keyed)
            waiting = third.start(enqueue, keyed)
            wait_until_somebody_waits_for_a_lock()
            assert wakeup.work_behind("default") == "queue:default"
        assert waiting.result(5).job_id == first.job_id
    finally:
        third.close()


def test_an_execute_wrapper_of_the_project_gets_one_statement_and_may_add_to_it() -> None:
    seen: list[str] = []

    def comment(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append(sql)
        return execute(f"{sql} -- by 100%% of the team", params, many, context)

    with connection.execute_wrapper(comment):
        made = enqueue(SPEC)
    assert [sql.count("pg_notify") for sql in seen] == [0]
    assert Job.objects.get().pk == made.job_id


@pytest.mark.parametrize("log", ["none", "lifecycle"])
@pytest.mark.parametrize("listening", [False, True])
def test_its_event_is_written_and_sent(settings: Any, log: str, listening: bool) -> None:
    settings.JOBQUEUE = {**settings.JOBQUEUE, "EVENT_LOG": log}
    heard: list[tuple[str, int, bool]] = []

    def listen(sender: Any, name: str, job_id: int, **rest: Any) -> None:
        heard.append((name, job_id, connection.in_atomic_block))

    if listening:
        signals.job_event.connect(listen)
    try:
        made = enqueue(JobSpec("tests.tasks.add", tenant="t", target="customer:7"))
    finally:
        signals.job_event.disconnect(listen)
    assert Job.objects.get().pk == made.job_id
    assert heard == ([("job.enqueued", made.job_id, False)] if listening else [])
    told = list(JobEvent.objects.values_list("job_id", "name", "at", "attempt", "tenant", "target", "data"))
    assert told == ([(made.job_id, "job.enqueued", made.created_at, 0, "t", "customer:7", None)] if log == "lifecycle" else [])
