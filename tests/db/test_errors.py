"""Which errors of the database are an outage, which are a refusal of values, and what each writer does while nothing can be written."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import DatabaseError, DataError, InternalError, connection, connections, transaction
from django.test import Client

from jobqueue import db
from jobqueue.db import Lease, LeaseHolder, Mark, Scope, hygiene, leases
from jobqueue.lifecycle.claim import claim
from jobqueue.lifecycle.expire import expire_stale_running_jobs
from jobqueue.lifecycle.finish import finish
from jobqueue.lifecycle.outcome import Kind, Outcome
from jobqueue.models import BackgroundJobLease, Job
from jobqueue.webhooks import outbox
from tests.factories import JobFactory
from tests.tasks import add

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]

# What each kind of error is: whether another connection may do it (outage), and whether the values are to blame (refusal).
KINDS = {
    "08006": ("outage", "connection failure"),
    "25006": ("outage", "cannot execute in a read-only transaction, or during recovery"),
    "25P03": ("outage", "terminated after standing idle in a transaction"),
    "25P04": ("outage", "terminated after a transaction timeout"),
    "40001": ("outage", "canceled by a standby for its replay"),
    "53300": ("outage", "too many connections"),
    "57P01": ("outage", "terminated by an administrator"),
    "57P02": ("outage", "terminated by a crash of another session"),
    "57P03": ("outage", "starting up, shutting down, or in recovery"),
    "40P01": ("given up", "deadlock"),
    "55P03": ("given up", "lock not available"),
    "57014": ("given up", "statement timeout"),
    "25P02": ("behind another", "the transaction is aborted"),
    "22P05": ("refusal", "a character that the database cannot store"),
    "23514": ("refusal", "a constraint"),
    "42501": ("refusal", "no permission"),
}


def error_of(number: str) -> DatabaseError:
    """Return the error that Django makes of one that the server raises."""
    with pytest.raises(DatabaseError) as caught, transaction.atomic():
        connection.cursor().execute(f"DO $$ BEGIN RAISE EXCEPTION 'of a test' USING ERRCODE = '{number}'; END $$")
    return caught.value


@pytest.mark.parametrize("number", KINDS)
def test_an_error_is_judged_by_what_it_says_of_the_server(number: str) -> None:
    kind, error = KINDS[number][0], error_of(number)
    assert db.is_outage(error) is (kind == "outage")
    assert db.was_given_up(error) is (kind == "given up")
    assert db.is_connection_error(error) is (kind in ("outage", "given up"))
    assert db.is_refusal(error) is (kind == "refusal")


def test_a_statement_behind_an_error_of_the_same_transaction_refuses_no_values() -> None:
    with transaction.atomic():
        with pytest.raises(DataError):
            connection.cursor().execute("SELECT 1/0")
        with pytest.raises(InternalError) as caught:
            connection.cursor().execute("SELECT 1")
        assert not db.is_refusal(caught.value)
        assert not db.is_outage(caught.value)
        transaction.set_rollback(True)


@pytest.fixture
def read_only() -> Iterator[Callable[[], None]]:
    """Return what lets this thread's server take no more writes; it takes them again afterwards."""
    yield lambda: connection.cursor().execute("SET default_transaction_read_only = on")  # type: ignore[func-returns-value]
    connection.close()


def running() -> Job:
    """Return a job that runs, with a lease that has run out."""
    job: Job = JobFactory(running=True)
    Job.objects.filter(pk=job.pk).update(lease_expires_at="2026-01-01T00:00Z")
    job.refresh_from_db()
    return job


def success(job: Job) -> Outcome:
    now = time.monotonic()
    return Outcome(Lease(job.pk, job.lease_token), Kind.SUCCESS, result="1", began=now, ended=now)


WRITERS: dict[str, Callable[[Job], Any]] = {
    "claim": lambda job: claim(LeaseHolder("worker-1", 30.0), Scope("", ()), 10),
    "renew": lambda job: Job.objects.renew([Lease(job.pk, job.lease_token)], 30.0),
    "success": lambda job: finish([success(job)]),
    "another end": lambda job: finish([Outcome(Lease(job.pk, job.lease_token), Kind.HANDED_BACK)]),
    "mark": lambda job: leases.mark(Job.objects.database, [Mark(job.pk, job.lease_token, 1.0, 40, "half", None)]),
    "expire": lambda job: expire_stale_running_jobs(),
    "contend": lambda job: BackgroundJobLease.objects.acquire("worker-1", ["promote_due_jobs"]),
    "webhooks": lambda job: outbox.DeliveryClaimer().claim(10, lambda receiver: 10),
    "enqueue": lambda job: add.enqueue(1, 2),
}


@pytest.mark.session
@pytest.mark.parametrize("name", WRITERS)
def test_nothing_takes_a_read_only_server_for_a_fault_of_what_it_writes(name: str, read_only: Callable[[], None]) -> None:
    job = running()
    JobFactory()
    before = list(Job.objects.order_by("pk").values())
    BackgroundJobLease.objects.add(["promote_due_jobs"])
    read_only()
    with pytest.raises(DatabaseError) as caught:
        WRITERS[name](job)
    assert db.is_outage(caught.value)
    connection.close()
    assert list(Job.objects.order_by("pk").values()) == before


@pytest.mark.session
def test_the_api_asks_to_try_again_while_the_server_is_read_only(read_only: Callable[[], None]) -> None:
    job, client = JobFactory(), Client(raise_request_exception=False)
    client.force_login(get_user_model().objects.create_superuser("boss"))
    read_only()
    answer = client.post(f"/jobqueue/jobs/{job.pk}/pause/")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")


@pytest.mark.session
def test_the_thread_of_a_task_keeps_no_connection_to_a_server_that_takes_no_writes(read_only: Callable[[], None]) -> None:
    read_only()
    with pytest.raises(InternalError):
        Job.objects.update(message="x")
    hygiene.after_task()
    assert connection.connection is None
    with pytest.raises(DatabaseError):
        connection.cursor().execute("SELECT no_such_column")
    hygiene.after_task()
    assert connection.connection is not None, "a fault of the task's own costs no connection"


@pytest.mark.session
def test_a_pool_does_not_lend_again_what_led_to_a_server_that_takes_no_writes() -> None:
    usual = connections["default"]
    settings = copy.deepcopy(usual.settings_dict)
    settings["CONN_MAX_AGE"], settings["OPTIONS"] = 0, {"pool": {"min_size": 1, "max_size": 1, "timeout": 5}}
    connections["default"] = type(usual)(settings, alias="default")
    try:
        connection.cursor().execute("SET default_transaction_read_only = on")
        with pytest.raises(InternalError):
            Job.objects.update(message="x")
        hygiene.after_task()
        Job.objects.update(message="x")
    finally:
        connection.close()
        connection.close_pool()
        connections["default"] = usual


@pytest.mark.session
def test_the_workers_own_connections_are_made_to_the_primary_alone() -> None:
    usual = connections["default"]
    try:
        Job.objects.database.reserve_connection("test")
        assert connection.settings_dict["OPTIONS"]["target_session_attrs"] == "read-write"
        connection.settings_dict["OPTIONS"]["options"] = "-c default_transaction_read_only=on"  # as a standby says of itself
        with pytest.raises(DatabaseError, match="session is read-only") as caught:
            connection.cursor()
        assert db.is_outage(caught.value)
    finally:
        connection.close()
        connections["default"] = usual
