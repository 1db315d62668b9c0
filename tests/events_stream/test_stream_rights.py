"""Who gets a stream, how many of them, and when a stream or its place is taken away, for clients of the REST API under WSGI."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.http import HttpRequest
from django.test import Client as Browser
from django.test import RequestFactory

from jobqueue.api.responses import ApiError
from jobqueue.api.streams import limits, recheck, wsgi
from jobqueue.api.streams import threads as desk
from jobqueue.api.streams.asgi import send_async
from jobqueue.api.streams.limits import StreamSlot, identity
from jobqueue.api.streams.parts import Stream, StreamSource
from jobqueue.api.streams.wsgi import SyncStream
from jobqueue.checks import check_streams
from jobqueue.events import stopping, subscription
from jobqueue.events import stream as streams
from jobqueue.events.wanted import EventSelection
from jobqueue.models import Job
from tests.events_stream.listening import ROOT, Listening, places
from tests.faults.harness import wait_until

pytestmark = [pytest.mark.long, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("quick")]


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
