"""Ends of runs that failed: many are written by one statement, whether or not their rows were read before."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobqueue import signals
from jobqueue.db import Lease
from jobqueue.lifecycle import finish as module
from jobqueue.lifecycle import history
from jobqueue.lifecycle.finish import finish
from jobqueue.lifecycle.outcome import Failure, Kind, LastProgress, Outcome, PhaseProgress, Settled
from jobqueue.models import Job, JobEvent, Queue, WebhookDelivery
from tests.factories import JobFactory
from tests.rivals import Rival

FAILURE = Failure("builtins.ValueError", "ValueError: password=hunter2 was refused", "Traceback …\n  Zeile 'ä'\n")
FULL = [{"attempt": number, "outcome": "RETRY"} for number in range(history.LONGEST)]
# What the row contains before, and what the run reports.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "begun before": ({"started_at": timezone.now(), "first_started_at": timezone.now()}, {}),
    "begun in an earlier run": ({"first_started_at": timezone.now() - timedelta(hours=1), "failures": 2, "attempt": 3}, {}),
    "ended before": ({"finished_at": timezone.now()}, {}),
    "at once": ({}, {"delay_seconds": 0.0}),
    "after a part of seconds": ({}, {"delay_seconds": 3.25}),
    "with a message": ({"message": "old"}, {"message": 'api_key=abc, and ä \\ "quoted"', "progress": 40}),
    "with metadata": ({"metadata": {"old": 1}}, {"metadata": '{"cursor": [7, null]}'}),
    "with a webhook": ({"webhook_url": "https://example.org/hook"}, {}),
    "of a queue with webhooks": ({"queue": "told"}, {}),
    "of a tenant": ({"tenant": "acme"}, {}),
    "with a history": ({"history": FULL[:3], "worker_ids": ["worker-0", "worker-9"]}, {}),
    "with a long history": ({"history": FULL}, {}),
    "with a history that was edited by hand": ({"history": {"a": 1}}, {}),
    "with workers that was edited by hand": ({"worker_ids": "nobody"}, {}),
    "with options that was edited by hand": ({"options": [1]}, {}),
    "to be paused": ({"cancel_requested": True, "cancel_outcome": "PAUSED"}, {}),
    "to be canceled": ({"cancel_requested": True, "cancel_outcome": "CANCELED"}, {}),
    "unknown before": ({"options": {"unknown_since": "2026-11-28T00:00:00+00:00", "timeout": 5}}, {}),
    "in a phase": ({"phase": "load"}, {"phase": PhaseProgress("load", 10, "loading")}),
    "in a phase of a plain task": ({"phase": "load"}, {}),
    "with progress that was reported": ({"progress": 3}, {"told": LastProgress(9, "nine")}),
    "never begun": ({}, {"began": None}),
    "without a failure": ({}, {"failure": None, "message": "why"}),
}
# Those whose rows are read first.
READ_FIRST = ("in a phase", "in a phase of a plain task", "with progress that was reported", "to be paused", "to be canceled")


def outcome(job: Job, kind: Kind, **fields: Any) -> Outcome:
    now = time.monotonic()
    values = {"began": now - 1.0, "ended": now, "failure": FAILURE, "delay_seconds": 60.0 if kind is Kind.RETRY else 0.0, **fields}
    return Outcome(Lease(job.pk, job.lease_token), kind, **values)


def told(job: Job) -> dict[str, Any]:
    """Return all that the database stores about a job; for times, whether they are set, and their distance from the last event."""
    row = Job.objects.filter(pk=job.pk).values().get()
    events = list(JobEvent.objects.filter(job_id=job.pk).order_by("id").values("name", "at", "attempt", "tenant", "target", "data"))
    last = events[-1]["at"] if events else timezone.now()
    sent = list(WebhookDelivery.objects.filter(job_id=job.pk).order_by("pk").values("event", "queue", "url", "facts"))
    for one in sent:
        one["facts"] = {key: value for key, value in one["facts"].items() if key not in ("job_id", "at")}
    everything = _plain({"row": row, "events": events, "sent": sent}, last)
    del everything["row"]["id"]
    return everything  # type: ignore[no-any-return]


def _plain(value: Any, last: datetime) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one, last) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one, last) for one in value]
    if isinstance(value, str) and value[:2] == "20" and "T" in value:
        at = datetime.fromisoformat(value)
        assert value in (at.isoformat(), at.isoformat(timespec="microseconds")), "as Python writes it"
        assert at.tzinfo == UTC
        return ("text", round((at - last).total_seconds()))
    return round((value - last).total_seconds()) if isinstance(value, datetime) else value


@pytest.mark.django_db
@pytest.mark.parametrize("kind", [Kind.RETRY, Kind.ERROR])
@pytest.mark.parametrize("case", CASES)
def test_a_row_that_was_not_read_is_written_like_one_that_was(case: str, kind: Kind) -> None:
    Queue.objects.create(name="told", webhook_url="https://example.org/queue", webhook_events=["job.retrying", "job.failed"])
    before, run = CASES[case]
    moment = timezone.now()
    before = {name: moment - timedelta(seconds=2) if isinstance(value, datetime) else value for name, value in before.items()}
    together, alone = JobFactory.create_batch(2, running=True, max_attempts=5, **before)
    [settled] = finish([outcome(together, kind, **run)])
    [expected] = module._read_and_write([outcome(alone, kind, **run)])
    assert settled.status == expected.status != ""
    assert told(together) == told(alone)


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)  # inside of a transaction there are savepoints
@pytest.mark.parametrize("kind", [Kind.RETRY, Kind.ERROR])
def test_any_number_of_plain_failures_takes_one_statement(kind: Kind) -> None:
    jobs = JobFactory.create_batch(50, running=True)
    with CaptureQueriesContext(connection) as sent:
        settled = finish([outcome(job, kind) for job in jobs])
    assert len(sent) == 1
    assert {one.status for one in settled} == {"PENDING" if kind is Kind.RETRY else "ERROR"}
    assert len(settled) == 50


@pytest.mark.postgresql
@pytest.mark.django_db
@pytest.mark.parametrize("case", CASES)
def test_a_row_is_read_first_if_the_decision_depends_on_it(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, run = CASES[case]
    job = JobFactory(running=True, max_attempts=5, **before)
    decided: list[Outcome] = []
    read_and_write = module._read_and_write

    def remember(outcomes: Any) -> list[Settled]:
        decided.extend(outcomes)
        return read_and_write(outcomes)

    monkeypatch.setattr(module, "_read_and_write", remember)
    finish([outcome(job, Kind.RETRY, **run)])
    assert bool(decided) == (case in READ_FIRST)


@pytest.mark.django_db
def test_a_batch_of_all_kinds_is_settled_once_each() -> None:
    kinds = [Kind.RETRY, Kind.ERROR, Kind.SUCCESS, Kind.HANDED_BACK, Kind.RETRY, Kind.ERROR]
    jobs = JobFactory.create_batch(6, running=True)
    Job.objects.filter(pk=jobs[4].pk).update(cancel_requested=True, cancel_outcome="CANCELED")
    settled = finish([outcome(job, kind) for job, kind in zip(jobs, kinds, strict=True)])
    found = {one.outcome.lease.job_id: one.status for one in settled}
    assert len(settled) == 6
    assert [found[job.pk] for job in jobs] == ["PENDING", "ERROR", "SUCCESS", "QUEUED", "CANCELED", "ERROR"]
    assert JobEvent.objects.filter(job_id=jobs[0].pk).count() == 2, "that it has started, and that it is tried again"


@pytest.mark.django_db(transaction=True)
def test_receivers_get_the_start_and_the_end(django_capture_on_commit_callbacks: Any) -> None:
    heard: list[tuple[int, str, Any]] = []

    def listen(sender: Any, name: str, job_id: int, data: Any, **more: Any) -> None:
        heard.append((job_id, name, data))

    jobs = JobFactory.create_batch(3, running=True)
    signals.job_event.connect(listen)
    try:
        settled = finish([outcome(job, Kind.RETRY, delay_seconds=7.5) for job in jobs])
    finally:
        signals.job_event.disconnect(listen)
    assert [one.status for one in settled] == ["PENDING"] * 3
    for job in jobs:
        mine = [(name, data) for job_id, name, data in heard if job_id == job.pk]
        data = {"delay_seconds": 7.5, "message": "ValueError: password=******** was refused"}
        assert mine == [("job.started", None), ("job.retrying", data)]


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_row_that_is_locked_delays_no_other(rival: Rival) -> None:
    locked, free = JobFactory.create_batch(2, running=True)
    with rival.locking(locked):
        settled = finish([outcome(locked, Kind.RETRY), outcome(free, Kind.RETRY)])
    found = {one.outcome.lease.job_id: one for one in settled}
    assert (found[locked.pk].status, found[locked.pk].later) == ("", True)
    assert found[free.pk].status == "PENDING"


@pytest.mark.django_db(transaction=True)
def test_one_refused_value_takes_none_of_its_kind_or_of_another_with_it() -> None:
    jobs = JobFactory.create_batch(5, running=True)
    fields: list[tuple[Kind, dict[str, Any]]] = [
        (Kind.RETRY, {}),
        (Kind.ERROR, {"progress": 101}),
        (Kind.ERROR, {}),
        (Kind.RETRY, {"metadata": "{"}),
        (Kind.RETRY, {}),
    ]
    settled = finish([outcome(job, kind, **more) for job, (kind, more) in zip(jobs, fields, strict=True)])
    found = {one.outcome.lease.job_id: one.status for one in settled}
    assert [found[job.pk] for job in jobs] == ["PENDING", "ERROR", "ERROR", "PENDING", "PENDING"]
    assert not Job.objects.filter(message="outcome could not be stored").exists()
    assert all(len(job.history) == 1 for job in Job.objects.all()), "each run is recorded once"


def wakes(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seconds: list[float] = []
    monkeypatch.setattr("jobqueue.lifecycle.wakeup.due", seconds.append)
    return seconds


@pytest.mark.postgresql
@pytest.mark.django_db
def test_the_promotion_is_notified_once_of_the_first_due_job(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = wakes(monkeypatch)
    jobs = JobFactory.create_batch(3, running=True)
    finish([outcome(job, Kind.RETRY, delay_seconds=delay) for job, delay in zip(jobs, (9.0, 0.5, 3.0), strict=True)])
    assert seconds == [0.5]
    finish([outcome(job, Kind.ERROR) for job in JobFactory.create_batch(2, running=True)])
    assert seconds == [0.5], "an error does not wait for other jobs"
