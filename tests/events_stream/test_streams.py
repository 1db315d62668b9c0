"""The content of streams, for clients of the REST API under WSGI."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client as Browser

from jobqueue.api.streams import parts
from jobqueue.api.streams import threads as desk
from jobqueue.db import eventlog
from jobqueue.events import stream as streams
from jobqueue.events import subscription
from jobqueue.events.stream import hub
from jobqueue.models import Job, JobEvent
from jobqueue.public_ids import public_id
from tests.events_stream.listening import ROOT, Listening, places, tell
from tests.factories import JobFactory
from tests.faults.harness import wait_until

pytestmark = [pytest.mark.long, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("quick")]


def at(position: str) -> int:
    """Return the horizon of a position."""
    return int(position.split("-")[1])


def test_a_stream_begins_with_a_snapshot_and_continues_live(listen: Callable[..., Listening], job: Job) -> None:
    for path in places(job):
        one = listen(path)
        first = one.message()
        assert (first["retry"], first["event"]) == ("3000", "jobqueue.snapshot"), "no message without an event, which some clients pass on"
        snapshot = {**json.loads(first["data"]), "position": first["id"]}
        found = snapshot["data"]["job"] if "job" in snapshot["data"] else snapshot["data"]["jobs"][0]
        assert (found["id"], found["status"]) == (job.pk, "RUNNING")
        row = tell(job, "job.failed", message="password=hunter2 <b>", exception="builtins.ValueError")
        event = one.event("job.failed")
        assert at(event.pop("position")) >= at(snapshot["position"])
        assert event.pop("at") == row.at.isoformat()
        assert "hunter2" not in event["data"].pop("message")
        assert event == {
            "id": row.pk,
            "event": "job.failed",
            "job_id": job.pk,
            "public_id": public_id(job.pk),
            "attempt": 1,
            "status": "ERROR",
            "task": "tests.tasks.add",
            "queue": "default",
            "tenant": "",
            "target": "customer:7",
            "data": {"exception": "builtins.ValueError"},
        }
        one.response.close()


def test_the_headers_keep_proxies_from_holding_events_back(browser: Browser, job: Job) -> None:
    for path in places(job):
        for method in (browser.get, browser.head):
            response = method(f"{ROOT}{path}")
            assert response.headers["Content-Type"].startswith("text/event-stream")
            assert response.headers["Cache-Control"] == "no-store, private, no-transform"
            assert response.headers["X-Accel-Buffering"] == "no"
            response.close()
    assert len(hub) == 0


def test_a_stream_has_its_own_events_alone(listen: Callable[..., Listening], job: Job) -> None:
    other = JobFactory(target="customer:8")
    foreign = JobFactory(target="customer:7", tenant="acme")
    by_job, by_target, by_tenant = listen(places(job)[0]), listen(places(job)[1]), listen("events/?tenant=acme")
    for one in (by_job, by_target, by_tenant):
        one.event("jobqueue.snapshot")
    for each in (other, foreign, job):
        tell(each, "job.resumed")
    assert by_job.event("job.resumed")["job_id"] == job.pk
    assert by_target.event("job.resumed")["job_id"] == job.pk
    assert by_tenant.event("job.resumed")["job_id"] == foreign.pk


def test_a_client_that_returns_gets_what_it_missed_and_no_snapshot(listen: Callable[..., Listening], job: Job) -> None:
    JobFactory()
    first = listen(places(job)[0])
    first.event("jobqueue.snapshot")
    tell(job, "job.started")
    last = first.event("job.started")["position"]
    first.response.close()
    missed = [tell(job, "job.resumed").pk for _ in range(parts.replay.PAGE + 20)]
    again_ = listen(places(job)[0], **{"Last-Event-ID": last})
    got = [again_.event("job.resumed") for _ in missed]
    assert [one["id"] for one in got] == missed
    by_query = listen(f"{places(job)[0]}?last_event_id={got[-1]['position']}&snapshot=1")
    assert by_query.event("jobqueue.snapshot")["data"]["job"]["id"] == job.pk
    newest = tell(job, "job.paused")
    assert again_.event("job.paused")["id"] == by_query.event("job.paused")["id"] == newest.pk


def test_a_client_that_is_disconnected_repeatedly_in_a_replay_continues_where_it_was(listen: Callable[..., Listening], job: Job) -> None:
    first = listen(places(job)[0])
    position = first.event("jobqueue.snapshot")["position"]
    first.response.close()
    missed = [tell(job, "job.resumed").pk for _ in range(parts.replay.PAGE + 100)]
    got: list[int] = []
    for _ in range(6):
        one = listen(places(job)[0], **{"Last-Event-ID": position})
        for _ in range(len(missed) // 6):
            event = one.event("job.resumed")
            position = event["position"]
            got.append(event["id"])
        one.response.close()
        # Some come twice while a transaction of another test, in another database of the server, is older than they are.
        assert list(dict.fromkeys(got)) == missed[: len({*got})], "no event is left out"
        assert len({*got}) > 0.6 * len(got), "each connection continues where the one before was cut"
    late = tell(job, "job.paused").pk
    one = listen(places(job)[0], **{"Last-Event-ID": position})
    assert one.event("job.paused")["id"] == late


@pytest.mark.parametrize("value", ["x", "-1", "1", "0-", "0-1-2", "0-1-2-3-4", "0-" + "9" * 20, "0-" + "9" * 19, "0-²", "G-1"])
def test_an_invalid_id_is_refused(browser: Browser, job: Job, value: str) -> None:
    response = browser.get(f"{ROOT}events/", {"last_event_id": value})
    assert response.status_code == 400
    assert "Last-Event-ID" in response.json()["error"]["message"]


def test_a_snapshot_is_asked_for_by_0_or_1(browser: Browser, listen: Callable[..., Listening], job: Job) -> None:
    assert browser.get(f"{ROOT}events/?snapshot=yes").status_code == 400
    one = listen("events/?snapshot=0")
    assert one.message().keys() == {"retry", "", "id"}
    tell(job, "job.paused")
    assert one.message()["event"] == "job.paused"


def test_a_client_that_comes_too_late_gets_a_message_about_it(listen: Callable[..., Listening], job: Job) -> None:
    first = listen(places(job)[0])
    first.event("jobqueue.snapshot")
    tell(job, "job.started")
    last = first.event("job.started")["position"]
    first.response.close()
    tell(job, "job.phase.started")
    tell(job, "job.resumed")
    JobEvent.objects.exclude(name="job.resumed").delete()
    late = listen(places(job)[0], **{"Last-Event-ID": last})
    assert late.message()["event"] == "jobqueue.reset"
    assert late.message()["event"] == "jobqueue.snapshot"
    late.event("job.resumed")


def test_an_id_from_the_future_is_reset(listen: Callable[..., Listening], job: Job) -> None:
    history = eventlog.event_cursor(Job.objects.database).history
    one = listen(places(job)[0], **{"Last-Event-ID": f"{history}-{2**62}"})
    assert at(one.event("jobqueue.reset")["position"]) < 2**62
    one.event("jobqueue.snapshot")
    tell(job, "job.resumed")
    one.event("job.resumed")


def test_an_id_of_another_database_is_reset(listen: Callable[..., Listening], job: Job) -> None:
    for _ in range(5):
        tell(job, "job.started")
    one = listen(places(job)[0], **{"Last-Event-ID": "abc-1"})
    reset = one.event("jobqueue.reset")
    one.event("jobqueue.snapshot")
    newest = tell(job, "job.resumed")
    event = json.loads(one.message()["data"])
    while event["event"] == "job.progress":
        event = json.loads(one.message()["data"])
    assert event["id"] == newest.pk, "no old event is sent as new"
    assert not reset["position"].startswith("abc")


@pytest.mark.postgresql
@pytest.mark.session
def test_streams_end_when_their_database_was_replaced(listen: Callable[..., Listening], job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    one = listen(places(job)[0])
    one.event("jobqueue.snapshot")
    monkeypatch.setattr(eventlog, "event_history", lambda _: "abc")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'jobqueue events'")
    assert "job.resumed" not in one.rest()


def test_progress_is_reported_though_the_log_has_none(listen: Callable[..., Listening], job: Job) -> None:
    one = listen(places(job)[0])
    assert one.event("job.progress")["data"]["progress"] == 0
    Job.objects.current.filter(pk=job.pk).update(progress=40, message="token=abc half")
    told = one.event("job.progress")
    assert (told["id"], told["status"], told["data"]["progress"]) == (None, "RUNNING", 40)
    assert "abc" not in told["data"]["message"]


def test_nothing_is_streamed_where_nothing_is_recorded(browser: Browser, job: Job, settings: Any) -> None:
    settings.JOBQUEUE = {"EVENT_LOG": "none"}
    for path in places(job):
        response = browser.get(f"{ROOT}{path}")
        assert response.status_code == 409
        assert 'EVENT_LOG is "none"' in response.json()["error"]["message"]


def test_a_query_of_a_stream_never_ends_the_servers_loop() -> None:
    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(RuntimeError, match="SystemExit"):
        asyncio.run(desk.run_in_pool(leave))


def test_the_stream_of_a_job_ends_with_the_job(listen: Callable[..., Listening], job: Job) -> None:
    one = listen(places(job)[0])
    one.event("jobqueue.snapshot")
    tell(job, "job.deleted")
    assert one.rest()[-1] == "job.deleted"


def test_a_client_that_does_not_keep_up_is_ended_and_misses_nothing(
    listen: Callable[..., Listening], job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "MAX_QUEUED", 20)
    slow, quick = listen(places(job)[0]), listen(places(job)[1])
    for one in (slow, quick):
        one.event("jobqueue.snapshot")
    client = next(one for one in hub._clients if one.wanted.job_id == job.pk)
    ids = []
    while not client.ended:
        ids.append(tell(job, "job.resumed").pk)
        assert quick.event("job.resumed")["id"] == ids[-1]
    position, got = "", []
    try:
        while True:
            event = slow.event("job.resumed")
            position, got = event["position"], [*got, event["id"]]
    except StopIteration:
        pass
    assert got == ids[: len(got)]
    back = listen(places(job)[0], **{"Last-Event-ID": position})
    while set(ids) > set(got):
        got.append(back.event("job.resumed")["id"])


def test_the_reader_goes_with_the_last_client(listen: Callable[..., Listening], job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LINGER_TURNS", 1)
    one = listen("events/")
    one.event("jobqueue.snapshot")
    assert any(thread.name == "jobqueue-events" for thread in threading.enumerate())
    one.response.close()
    wait_until(lambda: not any(thread.name == "jobqueue-events" for thread in threading.enumerate()), "the reader has gone")


def test_the_snapshot_of_a_job_says_what_its_page_says(listen: Callable[..., Listening], browser: Browser, job: Job) -> None:
    told = listen(places(job)[0]).event("jobqueue.snapshot")["data"]["job"]
    page = browser.get(f"{ROOT}jobs/{job.pk}/").json()
    passing = {"waited_seconds", "waited_seconds_in_all", "waits", "ran_seconds", "ran_seconds_in_all"}
    assert page.pop("reruns") == {"original": None, "copies": []}  # no event changes it
    assert {name: value for name, value in told.items() if name not in passing} == {
        name: value for name, value in page.items() if name not in passing
    }
    assert "traceback" not in json.dumps(told)


def test_no_transaction_and_no_connection_of_the_request_is_kept(listen: Callable[..., Listening], job: Job) -> None:
    one = listen("events/")
    one.event("jobqueue.snapshot")
    assert connection.connection is None


def test_a_snapshot_carries_no_value_of_megabytes(listen: Callable[..., Listening], job: Job) -> None:
    Job.objects.current.filter(pk=job.pk).update(args=["x" * 900_000], kwargs={"password": "hunter2", "b": ["y" * 1000] * 900})
    one = listen(places(job)[0])
    snapshot = one.event("jobqueue.snapshot")
    assert 65_536 < len(json.dumps(snapshot)) < 4 * 65_536
    assert "hunter2" not in json.dumps(snapshot)
    tell(job, "job.progress", message="z" * 900_000)
    while len(text := json.dumps(one.event("job.progress"))) < 60_000:
        pass
    assert len(text) < 70_000
