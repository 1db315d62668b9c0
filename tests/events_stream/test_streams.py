"""The content and the permissions of streams, for clients of the REST API under WSGI."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connection
from django.http import HttpRequest
from django.test import Client as Browser
from django.test import RequestFactory

from jobqueue.api.responses import ApiError
from jobqueue.api.streams import limits, parts, recheck, wsgi
from jobqueue.api.streams import threads as desk
from jobqueue.api.streams.asgi import send_async
from jobqueue.api.streams.limits import StreamSlot, identity
from jobqueue.api.streams.parts import Stream, StreamSource
from jobqueue.api.streams.wsgi import SyncStream
from jobqueue.checks import check_streams
from jobqueue.db import eventlog
from jobqueue.events import stopping, subscription
from jobqueue.events import stream as streams
from jobqueue.events.stream import hub
from jobqueue.events.wanted import EventSelection
from jobqueue.models import Job, JobEvent
from jobqueue.public_ids import public_id
from tests.factories import JobFactory
from tests.faults.harness import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
ROOT = "/jobqueue/"


class Listening:
    """Read one stream message by message."""

    def __init__(self, response: Any) -> None:
        assert response.status_code == 200, response.content
        self.response = response
        self._parts = iter(response.streaming_content)
        self._waiting: list[str] = []
        self._pings = 0

    def message(self) -> dict[str, str]:
        """Return the fields of the next message."""
        while not self._waiting:
            whole = ""
            while not whole.endswith("\n\n"):
                whole += next(self._parts).decode()
            self._waiting = whole.strip("\n").split("\n\n")
            self._pings = self._pings + 1 if self._waiting[0].startswith(": ping") else 0
            assert self._pings < 4, "Nothing comes but pings."
        return dict(line.split(": ", 1) for line in self._waiting.pop(0).split("\n"))

    def event(self, name: str) -> dict[str, Any]:
        """Return the next event of this name, with its message's id."""
        while True:
            message = self.message()
            if message.get("event") == name:
                return {**json.loads(message["data"]), "position": message["id"]}

    def rest(self) -> list[str]:
        """Return the names of all events until the server ends the stream."""
        found = []
        try:
            while True:
                found.append(self.message().get("event", ""))
        except StopIteration:
            return [name for name in found if name]


@pytest.fixture(autouse=True)
def quick(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the reader query often, and report silence soon."""
    monkeypatch.setattr(streams, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(streams, "IDLE_POLL_SECONDS", 0.02)
    settings.JOBQUEUE = {"EVENT_PING_SECONDS": 2}


@pytest.fixture
def listen(browser: Browser) -> Iterator[Callable[..., Listening]]:
    opened: list[Any] = []

    def make(path: str, client: Browser = browser, **headers: str) -> Listening:
        opened.append(client.get(path if path.startswith("/") else f"{ROOT}{path}", headers=headers))
        return Listening(opened[-1])

    yield make
    for response in opened:
        response.close()
    assert len(hub) == 0


def tell(job: Job, name: str, **data: Any) -> JobEvent:
    return JobEvent.objects.create(job=job, name=name, attempt=1, tenant=job.tenant, target=job.target, data=data or None)


def at(position: str) -> int:
    """Return the horizon of a position."""
    return int(position.split("-")[1])


def places(job: Job) -> list[str]:
    return [f"jobs/{job.pk}/events/", f"targets/{job.target}/events/", "events/"]


@pytest.fixture
def job() -> Job:
    made: Job = JobFactory(target="customer:7", running=True, task="tests.tasks.add", queue="default")
    return made


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
        # The last few may come twice while a transaction of another test, in another database of the server, is older than they are.
        assert list(dict.fromkeys(got)) == missed[: len({*got})], "no event is left out"
        assert len({*got}) > 0.9 * len(got), "each connection continues where the one before was cut"
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


@pytest.fixture
def other(transactional_db: Any) -> Browser:
    """Log another user in."""
    made = Browser()
    made.force_login(get_user_model().objects.create_superuser("other"))
    return made


def test_one_stream_too_many_is_put_off(
    listen: Callable[..., Listening], browser: Browser, other: Browser, job: Job, settings: Any
) -> None:
    settings.JOBQUEUE = {"EVENT_STREAMS_MOST": 2}
    first = listen("events/")
    listen("events/", other)
    third = Browser()
    third.force_login(get_user_model().objects.create_superuser("third"))
    refused = third.get(f"{ROOT}events/")
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "10")
    first.response.close()
    listen("events/")


def test_one_user_leaves_half_of_the_places_to_others(
    listen: Callable[..., Listening], browser: Browser, other: Browser, job: Job, settings: Any
) -> None:
    settings.JOBQUEUE = {"EVENT_STREAMS_MOST": 4, "EVENT_STREAMS_PER_USER": 20}
    for _ in range(2):
        listen("events/")
    refused = browser.get(f"{ROOT}events/")
    assert (refused.status_code, refused.json()["error"]["limit"]) == (429, 2)
    assert "half" in refused.json()["error"]["message"]
    listen("events/", other)
    problems = [one for one in check_streams() if one.id == "jobqueue.I001"]
    assert "EVENT_STREAMS_PER_USER is 20" in problems[0].msg
    for quiet in ({}, {"EVENT_STREAMS_MOST": 4, "EVENT_STREAMS_PER_USER": 2}, {"EVENT_STREAMS_MOST": 0}):
        settings.JOBQUEUE = quiet
        assert not check_streams()


@pytest.mark.parametrize("why", ["one thread", "switched off"])
def test_a_server_that_cannot_hold_a_stream_refuses_it_and_the_page_is_usable(
    why: str, browser: Browser, viewer: Any, job: Job, settings: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "_reported", threading.Event())
    viewer.is_staff = True
    viewer.save()
    page = f"/admin/jobqueue/job/{job.pk}/"
    if why == "switched off":
        settings.JOBQUEUE = {"EVENT_STREAMS_MOST": 0}
    if why == "one thread":
        monkeypatch.setattr(limits, "TEST_CLIENT", "")
    for address in [*(f"{ROOT}{one}" for one in places(job)), f"{page}events/"]:
        for method in (browser.get, browser.head):
            refused = method(address)
            assert refused.status_code == 503
            assert "Retry-After" not in refused.headers
        error = browser.get(address).json()["error"]
        assert error["code"] == "no_streams"
        assert ("threads" if why == "one thread" else "EVENT_STREAMS_MOST") in error["message"]
    shown = browser.get(f"{page}change/").content.decode()
    assert f'data-events="{page}events/"' in shown if why == "one thread" else "data-events" not in shown
    warnings = [one for one in caplog.records if one.name == "jobqueue"]
    assert len(warnings) == (why == "one thread"), "reported once in a process"


@pytest.mark.parametrize(("threads", "most"), [(1, 0), (2, 1), (8, 4), (100, 10)])
def test_streams_take_at_most_half_of_the_servers_threads(threads: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = type("ThreadWorker", (), {"__module__": "gunicorn.workers.gthread", "cfg": type("Config", (), {"threads": threads})})()
    monkeypatch.setattr(stopping, "server", lambda: worker)
    assert limits.most_streams(HttpRequest()) == most


def test_a_user_has_a_limit_of_streams_of_any_kind_and_others_have_their_own(
    listen: Callable[..., Listening], browser: Browser, job: Job, settings: Any
) -> None:
    settings.JOBQUEUE = {"EVENT_STREAMS_PER_USER": 2}
    first = listen("events/")
    listen(places(job)[0])
    refused = browser.get(f"{ROOT}events/")
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "10")
    error = refused.json()["error"]
    assert (error["code"], error["limit"]) == ("too_many_streams_of_user", 2)
    assert "EVENT_STREAMS_PER_USER" in error["message"]
    assert browser.head(f"{ROOT}events/").status_code == 200
    other = Browser()
    other.force_login(get_user_model().objects.create_superuser("other"))
    listen("events/", other)
    listen(f"/admin/jobqueue/job/{job.pk}/events/", other)
    assert other.get(f"/admin/jobqueue/job/{job.pk}/events/").status_code == 429
    first.response.close()
    listen("events/")
    settings.JOBQUEUE = {"EVENT_STREAMS_PER_USER": 0}
    listen("events/")


def test_a_user_without_a_row_is_identified_by_its_attributes() -> None:
    class Caller:
        def __init__(self, **mine: Any) -> None:
            self.__dict__ |= mine

    keys = [identity(Caller(**one)) for one in ({"pk": None, "username": "a"}, {"username": "b"}, {"id": 1}, {"name": ["x"]}, {})]
    assert len(set(keys)) == 4, "those that have nothing count as one"
    assert identity(Caller(username="a")) == keys[0]


def test_a_query_of_a_stream_never_ends_the_servers_loop() -> None:
    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(RuntimeError, match="SystemExit"):
        asyncio.run(desk.run_in_pool(leave))


def test_a_place_that_was_taken_for_a_request_that_was_dropped_is_free_again(settings: Any) -> None:
    settings.JOBQUEUE = {"EVENT_STREAMS_PER_USER": 1}
    dropped = send_async(
        Stream(StreamSource(EventSelection(), lambda: True, dict), None, False), {}, StreamSlot(RequestFactory().get("/"), "anna")
    )
    with pytest.raises(ApiError):
        StreamSlot(RequestFactory().get("/"), "anna")
    del dropped
    StreamSlot(RequestFactory().get("/"), "anna").release()


@pytest.mark.parametrize("why", ["stalled", "slow", "stop"])
def test_the_connection_of_one_who_never_reads_is_cut(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        subscription, {"stalled": "STALLED_SECONDS", "slow": "STALLED_AT_END_SECONDS", "stop": "STALLED_AT_STOP_SECONDS"}[why], 0.1
    )
    if why == "stop":
        monkeypatch.setattr(streams, "server_ends", lambda: True)
    ours, theirs = socket.socketpair()
    one = SyncStream(
        Stream(StreamSource(EventSelection(), lambda: True, dict), None, False),
        {"gunicorn.socket": ours},
        StreamSlot(RequestFactory().get("/"), "anna"),
    )
    try:
        assert next(one).startswith(b"retry"), "the server's thread is in a write now"
        assert one.client is not None
        if why == "slow":
            one.client.end("slow")
        theirs.settimeout(5)
        assert theirs.recv(1) == b"", "the socket is shut down"
    finally:
        one.close()
        ours.close()
        theirs.close()
    assert StreamSlot.number() == 0


@pytest.mark.parametrize("reads", [True, False])
def test_the_place_of_who_has_gone_is_free_with_the_next_ping(
    live_server: Any, browser: Browser, settings: Any, monkeypatch: pytest.MonkeyPatch, *, reads: bool
) -> None:
    settings.JOBQUEUE = {"EVENT_PING_SECONDS": 2}
    monkeypatch.setattr(wsgi, "PROBE_SECONDS", 0.1)
    host, port = live_server.thread.host, live_server.thread.port
    with socket.create_connection((host, port)) as line:
        line.sendall(
            f"GET {ROOT}events/ HTTP/1.1\r\nHost: {host}\r\nCookie: sessionid={browser.cookies['sessionid'].value}\r\n\r\n".encode()
        )
        assert line.recv(20).startswith(b"HTTP/1.1 200")
        wait_until(lambda: b"snapshot" in line.recv(4096, socket.MSG_PEEK), "the stream has begun")
        if reads:
            line.recv(4096)
        assert StreamSlot.number() == 1
    began = time.monotonic()
    wait_until(lambda: StreamSlot.number() == 0, "its place is free", 10)
    assert time.monotonic() - began < 3, "the time of one ping, not of two"


def test_strangers_and_users_without_the_right_get_no_stream(job: Job) -> None:
    nobody, powerless = Browser(), Browser()
    powerless.force_login(get_user_model().objects.create_user("powerless"))
    for path in places(job):
        assert nobody.get(f"{ROOT}{path}").status_code == 401
        assert powerless.get(f"{ROOT}{path}").status_code == 403
    for client in (nobody, powerless):
        assert client.get(f"/admin/jobqueue/job/{job.pk}/events/").status_code == 403


def test_a_missing_job_is_not_streamed(browser: Browser, job: Job) -> None:
    for path in (f"jobs/{job.pk + 1}/events/", "jobs/x/events/", f"jobs/{job.pk}/events/?tenant=acme", f"targets/{'x' * 201}/events/"):
        assert browser.get(f"{ROOT}{path}").status_code == 404
    assert browser.post(f"{ROOT}events/").status_code == 405


@pytest.mark.parametrize("how", ["permission", "inactive", "logout"])
def test_a_right_that_is_taken_away_ends_the_stream(
    how: str, listen: Callable[..., Listening], browser: Browser, viewer: Any, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recheck, "CHECK_SECONDS", 0.1)
    one = listen("events/")
    one.event("jobqueue.snapshot")
    if how == "permission":
        viewer.user_permissions.clear()
    elif how == "inactive":
        viewer.is_active = False
        viewer.save()
    else:
        browser.session.flush()
    assert one.rest() == []


def test_the_admin_has_a_stream_of_its_own_and_ends_it_with_the_right(
    listen: Callable[..., Listening], viewer: Any, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recheck, "CHECK_SECONDS", 0.1)
    viewer.is_staff = True
    viewer.save()
    one = listen(f"/admin/jobqueue/job/{job.pk}/events/")
    assert one.event("jobqueue.snapshot")["data"]["job"]["id"] == job.pk
    viewer.is_staff = False
    viewer.save()
    one.rest()


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
    assert {name: value for name, value in told.items() if name not in passing} == {
        name: value for name, value in page.items() if name not in passing
    }
    assert "traceback" not in json.dumps(told)


def test_a_token_that_is_withdrawn_ends_the_stream(
    listen: Callable[..., Listening], viewer: Any, job: Job, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.api.conftest import by_token

    settings.JOBQUEUE = {"API_AUTHENTICATOR": by_token}
    monkeypatch.setattr(recheck, "CHECK_SECONDS", 0.1)
    one = listen("events/", client=Browser(), Authorization="Bearer viewer")
    one.event("jobqueue.snapshot")
    viewer.user_permissions.set(Permission.objects.none())
    assert one.rest() == []


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


def test_one_users_openings_are_serialized_and_delay_no_other_user() -> None:
    anna, again_, bert = (StreamSlot(RequestFactory().get("/"), SimpleNamespace(username=name)) for name in ("anna", "anna", "bert"))
    try:
        assert anna.turn is again_.turn is not bert.turn
        with anna.turn:
            assert not again_.turn._thread.acquire(blocking=False)
            with bert.turn:
                pass

        async def play() -> list[str]:
            told: list[str] = []
            begun, leave = asyncio.Event(), threading.Event()

            async def open_one(place: StreamSlot, name: str, ask: Callable[[], object]) -> None:
                async with place.turn:
                    told.append(f"{name} begins")
                    begun.set()
                    await desk.run_in_pool(ask)
                    told.append(f"{name} ends")

            first = asyncio.create_task(open_one(anna, "first", leave.wait))
            second = asyncio.create_task(open_one(again_, "second", str))
            await begun.wait()
            await open_one(bert, "other", str)
            assert await desk.run_in_pool(lambda: "allowed", "check") == "allowed"
            leave.set()
            await asyncio.gather(first, second)
            return told

        assert asyncio.run(play()) == ["first begins", "other begins", "other ends", "first ends", "second begins", "second ends"]
    finally:
        for one in (anna, again_, bert):
            one.release()


def test_permissions_are_checked_while_what_streams_begin_with_takes_long() -> None:
    leave = threading.Event()

    async def play() -> None:
        slow = [asyncio.create_task(desk.run_in_pool(leave.wait)) for _ in range(4)]
        try:
            assert await asyncio.wait_for(desk.run_in_pool(lambda: "allowed", "check"), 5) == "allowed"
        finally:
            leave.set()
            await asyncio.gather(*slow)

    asyncio.run(play())
