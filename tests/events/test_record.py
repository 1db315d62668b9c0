"""Each move of the table of states has its events, in its own transaction, and the messages of webhooks with them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from jobqueue import clock, signals
from jobqueue.core import event_names as names
from jobqueue.core.retention_rules import OUTCOMES, Rules, after
from jobqueue.core.targets import Target
from jobqueue.db import Lease, LeaseHolder, Mark, leases
from jobqueue.db import events as db_events
from jobqueue.events.record import record
from jobqueue.lifecycle import control, expire
from jobqueue.lifecycle.enqueue import Call, JobSpec, enqueue, enqueue_many
from jobqueue.lifecycle.finish import finish, finish_with_work
from jobqueue.lifecycle.outcome import Failure, HandOver, Kind, Outcome
from jobqueue.models import Job, JobEvent, Queue, WebhookDelivery
from jobqueue.retention.apply import Sweep
from tests.claiming import claim
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db
NO = Failure("builtins.ValueError", "ValueError: no, password=hunter2", "Traceback: hunter2")
URL = "https://hooks.example.org/1"


def told(job_id: int) -> list[str]:
    return [name.removeprefix("job.") for name in JobEvent.objects.filter(job_id=job_id).order_by("pk").values_list("name", flat=True)]


def last(job_id: int) -> JobEvent:
    found = JobEvent.objects.filter(job_id=job_id).order_by("pk").last()
    assert found is not None
    return found


def end(job: Job, kind: Kind, **values: Any) -> None:
    now = time.monotonic()
    finish([Outcome(Lease(job.pk, job.lease_token), kind, now - 1, now, target=job.tenant_target if job.target else None, **values)])


def enqueued(job: Job) -> int:
    return enqueue(JobSpec("tests.tasks.add", target="customer:7", tenant="t")).job_id


# Each: the job, the verb, and the events in addition to those that the factory does not write.
MOVES: dict[str, tuple[dict[str, Any], Callable[[Job], Any], list[str]]] = {
    "success": ({"running": True}, lambda job: end(job, Kind.SUCCESS), ["started", "completed"]),
    "success of a run that shows": (
        {"running": True, "started_at": clock.now()},
        lambda job: end(job, Kind.SUCCESS),
        ["completed"],
    ),
    "success behind a target": ({"running": True, "target": "t"}, lambda job: end(job, Kind.SUCCESS), ["started", "completed"]),
    "success in the task's transaction": (
        {"running": True},
        lambda job: finish_with_work(Outcome(Lease(job.pk, 1), Kind.SUCCESS, 1.0, 2.0)),
        ["started", "completed"],
    ),
    "error": ({"running": True}, lambda job: end(job, Kind.ERROR, failure=NO), ["started", "failed"]),
    "retry": ({"running": True}, lambda job: end(job, Kind.RETRY, failure=NO, delay_seconds=3.0), ["started", "retrying"]),
    "interrupted, the request withdrawn": ({"running": True}, lambda job: end(job, Kind.INTERRUPTED), ["started", "handed_back"]),
    "handed back": ({"running": True}, lambda job: finish([Outcome(Lease(job.pk, 1), Kind.HANDED_BACK)]), ["handed_back"]),
    "unknown task": ({"running": True}, lambda job: finish([Outcome(Lease(job.pk, 1), Kind.UNKNOWN_TASK)]), ["handed_back"]),
    "stopped by its worker": ({"running": True}, lambda job: end(job, Kind.STOPPED), ["started", "paused"]),
    "pause of a run": ({"pause_requested": True}, lambda job: end(job, Kind.INTERRUPTED), ["started", "paused"]),
    "cancel of a run": ({"cancel_requested_": True}, lambda job: end(job, Kind.RETRY, failure=NO), ["started", "canceled"]),
    "pause": ({"queued": True}, lambda job: job.pause(), ["paused"]),
    "cancel": ({"scheduled": True}, lambda job: job.cancel(), ["canceled"]),
    "cancel of one that waits for its target": ({"waiting_for_target": True}, lambda job: job.cancel(), ["canceled"]),
    "resume": ({"paused": True}, lambda job: job.resume(), ["resumed"]),
    "resume after an error": ({"error": True}, lambda job: job.resume(), ["resumed"]),
    "clear a target": ({"error": True, "target": "t"}, lambda job: control.clear_target("t"), ["canceled"]),
    "first crash": ({"expired": True}, lambda job: expire.expire_stale_running_jobs(), ["lease_expired", "retrying"]),
    "last crash": ({"expired": True, "crashes": 2}, lambda job: expire.expire_owner("worker-1"), ["lease_expired", "failed"]),
    "crash of one that is held": (
        {"expired": True, "recovery": "hold"},
        lambda job: expire.expire_stale_running_jobs(),
        ["lease_expired", "failed"],
    ),
    "crash of one that is to be canceled": (
        {"expired": True, "cancel_requested": True, "cancel_outcome": "CANCELED"},
        lambda job: expire.expire_stale_running_jobs(),
        ["lease_expired", "canceled"],
    ),
    "crash before it had begun": (
        {"expired": True, "crashes": 1, "started_at": None},
        lambda job: expire.expire_stale_running_jobs(),
        ["lease_expired", "handed_back"],
    ),
    "a run shows": ({"running": True}, lambda job: leases.mark(Job.objects.database, [Mark(job.pk, 1, 0.3, 5, "on", None)]), ["started"]),
    "a run shows more": (
        {"running": True, "started_at": clock.now()},
        lambda job: leases.mark(Job.objects.database, [Mark(job.pk, 1, 0.3, 5, "on", None)]),
        [],
    ),
    "claim": ({"queued": True}, lambda job: claim("worker-1", (), 1, 30.0), []),
    "stale": ({"success": True}, lambda job: Sweep(after(OUTCOMES, 0), Rules()).run(), ["stale"]),
    "deleted by retention": ({"success": True}, lambda job: Sweep(Rules(), after(OUTCOMES, 0)).run(), ["deleted"]),
    "deleted by a person": ({"paused": True, "target": "t"}, lambda job: job.delete(), ["deleted"]),
    "deleted among many": ({"queued": True}, lambda job: Job.objects.filter(pk=job.pk).delete(), ["deleted"]),
    "a late end": ({"running": True, "lease_token": 2}, lambda job: finish([Outcome(Lease(job.pk, 1), Kind.SUCCESS, 1.0, 2.0)]), []),
}


@pytest.mark.parametrize("move", MOVES)
def test_a_move_sends_its_events_and_none_if_it_is_rolled_back(move: str) -> None:
    values, verb, expected = MOVES[move]
    job = JobFactory(**values)
    with transaction.atomic():
        verb(job)
        transaction.set_rollback(True)
    assert told(job.pk) == []
    verb(job)
    assert told(job.pk) == expected


@pytest.mark.parametrize("move", MOVES)
def test_nothing_is_written_where_the_log_is_off(move: str, settings: Any) -> None:
    settings.JOBQUEUE = {"EVENT_LOG": "none"}
    values, verb, _ = MOVES[move]
    verb(JobFactory(**values))
    assert not JobEvent.objects.exists()


@pytest.mark.parametrize("run_after", [None, timedelta(hours=1)])
@pytest.mark.parametrize("key", ["", "k"])
def test_an_enqueued_job_has_its_event_unless_its_key_is_taken(run_after: timedelta | None, key: str) -> None:
    spec = JobSpec("tests.tasks.add", tenant="t", target="customer:7", unique_key=key, run_after=run_after)
    made = enqueue(spec)
    event = last(made.job_id)
    assert (event.name, event.at, event.attempt, event.tenant, event.target) == ("job.enqueued", made.created_at, 0, "t", "customer:7")
    again = enqueue(spec)
    assert JobEvent.objects.count() == 1 + again.created


def test_many_enqueued_jobs_have_their_events_in_their_order() -> None:
    calls = [Call("[1]", "{}", target=f"t{number % 3}" if number else "") for number in range(50)]
    made = enqueue_many(JobSpec("tests.tasks.add", tenant="a"), calls)
    rows = list(JobEvent.objects.order_by("pk").values_list("job_id", "name", "tenant", "target"))
    assert rows == [(one.job_id, "job.enqueued", "a", call.target) for one, call in zip(made, calls, strict=True)]


def test_a_success_in_a_batch_has_its_start_and_its_end() -> None:
    jobs = [JobFactory(running=True, started_at=clock.now() if number % 2 else None) for number in range(20)]
    now = time.monotonic()
    finish([Outcome(Lease(job.pk, 1), Kind.SUCCESS, now - 2, now - 1) for job in jobs])
    for number, job in enumerate(jobs):
        assert told(job.pk) == ["started", "completed"][number % 2 :]
        job.refresh_from_db()
        event = last(job.pk)
        assert (event.at, event.attempt, event.data) == (job.finished_at, 1, None)


def test_the_start_is_reported_once_although_its_acknowledgement_was_lost() -> None:
    job = JobFactory(running=True)
    for _ in range(2):
        leases.mark(Job.objects.database, [Mark(job.pk, 1, 0.3, None, None, None)])
    end(job, Kind.SUCCESS)
    end(job, Kind.SUCCESS)
    assert told(job.pk) == ["started", "completed"]


def test_the_job_that_is_handed_over_has_only_its_own_start_event() -> None:
    first, second = JobFactory(running=True, target="t"), JobFactory(queued=True, target="t")
    now = time.monotonic()
    lease = Lease(first.pk, 1)
    hand_over = HandOver(LeaseHolder("worker-1", 30.0), [lease])
    [settled] = finish([Outcome(lease, Kind.SUCCESS, now - 1, now, target=Target("", "t"))], hand_over)
    assert settled.following is not None
    assert settled.following.id == second.pk
    assert (told(first.pk), told(second.pk)) == (["started", "completed"], [])


def test_the_data_of_an_event_has_no_secret_and_no_traceback() -> None:
    job = JobFactory(running=True, max_attempts=2, args=["hunter2"])
    end(job, Kind.RETRY, failure=NO, delay_seconds=3.0)
    event = last(job.pk)
    assert event.data is not None
    assert (event.data["delay_seconds"], event.data["message"][:14]) == (3.0, "ValueError: no")
    assert "hunter2" not in json.dumps(event.data)
    job = JobFactory(running=True)
    end(job, Kind.ERROR, failure=NO)
    event = last(job.pk)
    assert event.data is not None
    assert event.data.keys() == {"message", "exception"}
    assert event.data["exception"] == "builtins.ValueError"
    assert "hunter2" not in json.dumps(event.data)


def test_progress_is_an_event_only_where_all_are_wanted(settings: Any) -> None:
    settings.JOBQUEUE = {"EVENT_LOG": "all"}
    job = JobFactory(running=True)
    for progress, message in ((5, "on"), (5, "on"), (9, None), (9, "off")):
        leases.mark(Job.objects.database, [Mark(job.pk, 1, 0.3, progress, message, None)])
    record(job, names.PROGRESS, {"progress": 50, "message": "half"})
    assert told(job.pk) == ["started", "progress", "progress", "progress", "progress"]
    found = JobEvent.objects.filter(job=job, name=names.PROGRESS).order_by("pk").values_list("data", flat=True)
    shown = [(data["progress"], data["message"]) for data in found if data]
    assert shown == [(5, "on"), (9, "on"), (9, "off"), (50, "half")]
    settings.JOBQUEUE = {}
    record(job, names.PROGRESS, {"progress": 51})
    assert len(told(job.pk)) == 5


def test_the_names_of_the_tables_are_those_of_the_models() -> None:
    assert tuple(model._meta.db_table for model in (JobEvent, Queue, WebhookDelivery)) == (
        db_events.EVENTS,
        db_events.QUEUES,
        db_events.DELIVERIES,
    )


# Signals


def test_receivers_are_called_after_the_commit_and_not_after_a_rollback(django_capture_on_commit_callbacks: Any) -> None:
    heard: list[tuple[str, int, Any]] = []

    def listen(sender: Any, name: str, job_id: int, at: Any, data: Any, **rest: Any) -> None:
        assert rest.keys() == {"signal", "attempt", "tenant", "target"}
        assert clock.now() - at < timedelta(minutes=1)
        heard.append((name, job_id, data))

    signals.job_event.connect(listen)
    try:
        with django_capture_on_commit_callbacks(execute=True):
            job = Job.objects.get(pk=enqueue(JobSpec("tests.tasks.add")).job_id)
            [many] = enqueue_many(JobSpec("tests.tasks.add"), [Call("[]", "{}")])
            with transaction.atomic():
                job.cancel()
                transaction.set_rollback(True)
            claim("w", (), 1, 30.0)
            job.refresh_from_db()
            end(job, Kind.SUCCESS)
            control.pause(many.job_id)
            assert heard == []
        assert [(name, job_id) for name, job_id, _ in heard] == [
            ("job.enqueued", job.pk),
            ("job.enqueued", many.job_id),
            ("job.started", job.pk),
            ("job.completed", job.pk),
            ("job.paused", many.job_id),
        ]
        assert heard[-1][2] == {"message": "Job was interrupted by user"}
    finally:
        signals.job_event.disconnect(listen)


# Webhooks


def facts(job: Job) -> list[tuple[str, str, Any]]:
    return [(one.event, one.url, one.facts) for one in WebhookDelivery.objects.filter(job_id=job.pk).order_by("pk")]


@pytest.mark.parametrize("log", ["lifecycle", "none"])
@pytest.mark.parametrize(
    ("values", "verb", "event", "status"),
    [
        ({"running": True}, lambda job: end(job, Kind.SUCCESS), "job.completed", "SUCCESS"),
        ({"running": True, "target": "t"}, lambda job: end(job, Kind.SUCCESS), "job.completed", "SUCCESS"),
        ({"running": True}, lambda job: end(job, Kind.ERROR, failure=NO), "job.failed", "ERROR"),
        ({"expired": True, "recovery": "hold"}, lambda job: expire.expire_stale_running_jobs(), "job.failed", "ERROR"),
        ({"queued": True}, lambda job: job.cancel(), "job.canceled", "CANCELED"),
    ],
)
def test_the_end_of_a_job_with_a_url_leaves_one_message(
    settings: Any, log: str, values: dict[str, Any], verb: Callable[[Job], Any], event: str, status: str
) -> None:
    settings.JOBQUEUE = {"EVENT_LOG": log}
    Queue.objects.create(name="default", webhook_url="https://queue.example.org")
    job = JobFactory(webhook_url=URL, tenant="x", **values)
    with transaction.atomic():
        verb(job)
        transaction.set_rollback(True)
    assert facts(job) == []
    verb(job)
    [(name, url, told_of)] = facts(job)
    assert (name, url, told_of["status"], told_of["job_id"], told_of["task"]) == (event, URL, status, job.pk, "tests.tasks.add")
    assert told_of.keys() - {"message"} == {"job_id", "task", "queue", "tenant", "target", "status", "attempt", "at"}
    assert ("message" in told_of) == (event == "job.failed")
    assert "hunter2" not in json.dumps(told_of)
    assert datetime.fromisoformat(told_of["at"]).tzinfo is not None


def test_the_url_of_the_queue_is_for_the_events_that_it_names() -> None:
    Queue.objects.create(name="mail", webhook_url=URL, webhook_events=["job.started", "job.retrying", "job.deleted"])
    job = Job.objects.get(pk=enqueue(JobSpec("tests.tasks.add", queue="mail", max_attempts=2)).job_id)
    enqueue(JobSpec("tests.tasks.add"))
    enqueue_many(JobSpec("tests.tasks.add", queue="mail"), [Call("[]", "{}")])
    claim("w", ("mail",), 1, 30.0)
    job.refresh_from_db()
    end(job, Kind.RETRY, failure=NO, delay_seconds=1.0)
    job.cancel()
    job.delete()
    assert [name for name, _, _ in facts(job)] == ["job.started", "job.retrying", "job.deleted"]
    assert WebhookDelivery.objects.count() == 3
    assert len(set(WebhookDelivery.objects.values_list("message_id", flat=True))) == 3


def test_a_message_that_is_still_to_be_sent_outlives_its_job() -> None:
    job = JobFactory(success=True, webhook_url=URL)
    for status in ("PENDING", "DELIVERED"):
        WebhookDelivery.objects.create(job=job, event="job.completed", queue="default", url=URL, status=status, message_id=f"{1:032}")
    job.delete()
    assert [one.status for one in WebhookDelivery.objects.all()] == ["PENDING"]


# Costs


@pytest.mark.parametrize(("kind", "most"), [(Kind.SUCCESS, 1), (Kind.RETRY, 1)])
@pytest.mark.postgresql
def test_the_events_of_a_batch_take_no_statement_for_each_job(kind: Kind, most: int) -> None:
    counts = []
    for number in (2, 12):
        jobs = [JobFactory(running=True) for _ in range(number)]
        now = time.monotonic()
        with CaptureQueriesContext(connection) as captured:
            finish([Outcome(Lease(job.pk, 1), kind, now - 1, now, failure=NO) for job in jobs])
        counts.append(sum("jobqueue_jobevent" in query["sql"] for query in captured))
    assert counts == [most, most]


@pytest.mark.parametrize("kind", [Kind.SUCCESS, Kind.ERROR, Kind.RETRY, Kind.HANDED_BACK, Kind.INTERRUPTED])
@pytest.mark.postgresql
def test_a_batch_takes_as_many_statements_as_two_jobs_however_their_runs_ended(kind: Kind) -> None:
    counts = []
    for number in (2, 12):
        jobs = [JobFactory(running=True, history=[{"attempt": n}] * (n % 2)) for n in range(number)]
        now = time.monotonic()
        with CaptureQueriesContext(connection) as captured:
            finish([Outcome(Lease(job.pk, 1), kind, now - 1, now, failure=NO, delay_seconds=7) for job in jobs])
        counts.append(len([query for query in captured if "pg_notify" not in query["sql"]]))
    assert counts[0] == counts[1], counts


@pytest.mark.fast_path
@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)  # inside of a transaction there are savepoints
def test_a_success_takes_one_statement_and_so_does_an_enqueue() -> None:
    job = JobFactory(running=True)
    with CaptureQueriesContext(connection) as captured:
        end(job, Kind.SUCCESS)
    assert len(captured) == 1
    with CaptureQueriesContext(connection) as captured:
        enqueue(JobSpec("tests.tasks.add"))
    assert len(captured) == 1
