"""Streams from a real uvicorn: no missing events in any order of commits, many clients, broken connections, the end of the server."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection, transaction
from django.test import Client as Browser

from jobqueue.models import Job, JobEvent
from tests.events_stream.server import Client, Server
from tests.factories import JobFactory
from tests.faults.harness import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
Start = Callable[..., Server]
ALL = "/jobqueue/events/"


def session(browser: Browser) -> str:
    return browser.cookies["sessionid"].value


def write(jobs: list[Job], count: int, hold: float) -> None:
    """Write events of these jobs, some in each transaction, which is then held open."""
    pause = threading.Event()
    done = 0
    while done < count:
        with transaction.atomic():
            some = [JobEvent(job=random.choice(jobs), name="job.started") for _ in range(min(random.randint(1, 10), count - done))]
            JobEvent.objects.bulk_create(some)
            pause.wait(random.uniform(0, hold))
        done += len(some)
    connection.close()


def in_order(client: Client) -> bool:
    """Return whether the events of each job arrived in the order of their numbers, by the first arrival of each."""
    newest: dict[int, int] = defaultdict(int)
    seen: set[int] = set()
    for one in client.told:
        if one["id"] is None or one["id"] in seen:
            continue
        seen.add(one["id"])
        if one["id"] < newest[one["job_id"]]:
            return False
        newest[one["job_id"]] = one["id"]
    return True


async def until(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"In {seconds} s it did not come about that {what}."
        await asyncio.sleep(0.02)


@pytest.mark.postgresql
def test_every_client_gets_every_event_whatever_the_order_of_commits(start: Start, browser: Browser) -> None:
    server, cookie = start(), session(browser)
    jobs = [[JobFactory() for _ in range(4)] for _ in range(16)]
    steady = [Client(server.port, ALL, cookie) for _ in range(2)]
    restless = Client(server.port, ALL, cookie)
    times = 0

    async def come_back(writing: threading.Event) -> None:
        nonlocal times
        while not writing.is_set():
            task = asyncio.create_task(restless.listen())
            await asyncio.sleep(random.uniform(0.05, 0.5))
            restless.cut()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            times += 1
        await restless.listen()

    async def play() -> None:
        listening = [asyncio.create_task(one.listen()) for one in steady]
        await until(lambda: all(one.last_id for one in steady), "both listen")
        over = threading.Event()
        listening.append(asyncio.create_task(come_back(over)))
        await until(lambda: bool(restless.last_id), "the third listens")
        writers = [asyncio.to_thread(write, mine, 5000 // 16 + (place < 5000 % 16), 0.2) for place, mine in enumerate(jobs)]
        loop = asyncio.get_running_loop()
        from concurrent.futures import ThreadPoolExecutor

        loop.set_default_executor(ThreadPoolExecutor(20))
        await asyncio.gather(*writers)
        over.set()
        wanted = set(await asyncio.to_thread(ids))
        assert len(wanted) == 5000
        for one in [*steady, restless]:
            await until(lambda one=one: wanted <= set(one.ids), "every event has come")
        for one in [*steady, restless]:
            one.cut()
        listening[-1].cancel()  # it may just be coming back once more
        await asyncio.gather(*listening, return_exceptions=True)

    def ids() -> list[int]:
        found = list(JobEvent.objects.values_list("pk", flat=True))
        connection.close()
        return found

    asyncio.run(play())
    assert times > 5
    assert all(in_order(one) for one in [*steady, restless])
    assert all(len(one.ids) == 5000 for one in steady)  # who stays gets each just once


@pytest.mark.postgresql
def test_two_hundred_clients_get_all_and_leave_nothing_behind(start: Start, browser: Browser) -> None:
    server, cookie = start(EVENT_PING_SECONDS=1, EVENT_STREAMS_PER_USER=0), session(browser)
    jobs = [JobFactory() for _ in range(10)]
    connections = _connections()

    async def round_of(count: int, events: int) -> None:
        paths = [ALL, *(f"/jobqueue/jobs/{job.pk}/events/?snapshot=0" for job in jobs[:3])]
        clients = [Client(server.port, paths[place % len(paths)] if place % 5 == 0 else ALL, cookie) for place in range(count)]
        listening = [asyncio.create_task(one.listen()) for one in clients]
        await until(lambda: all(one.last_id for one in clients), "all listen", 60)
        before = set(await asyncio.to_thread(_ids))
        await asyncio.to_thread(write, jobs, events // 2, 0.01)
        gone = clients[::2]
        for one in gone:
            one.cut()
        await asyncio.to_thread(write, jobs, events // 2, 0.01)
        wanted = set(await asyncio.to_thread(_ids)) - before
        stay = [one for one in clients[1::2] if one.path == ALL]
        await until(lambda: all(wanted <= set(one.ids) for one in stay), "every event has come to all who stayed", 60)
        open_now = await asyncio.to_thread(_connections)
        assert open_now <= connections + 6, "A client keeps a connection to the database."
        for one in clients[1::2]:
            one.cut()
        await asyncio.gather(*listening)

    asyncio.run(round_of(200, 200))
    wait_until(lambda: _connections() <= connections, "the reader has gone, and its connection", 20)
    first = server.resident_megabytes
    for _ in range(2):
        asyncio.run(round_of(200, 200))
    wait_until(lambda: _connections() <= connections, "the reader has gone, and its connection", 20)
    assert server.resident_megabytes < first * 1.15 + 5


def _ids() -> list[int]:
    found = list(JobEvent.objects.values_list("pk", flat=True))
    connection.close()
    return found


def _connections() -> int:
    """Return how many connections other clients have to this database."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
        count = int(cursor.fetchone()[0])
    if threading.current_thread() is not threading.main_thread():
        connection.close()
    return count


@pytest.mark.parametrize("kind", ["uvicorn", "gthread", "gevent", "gasgi"])
def test_the_server_ends_at_once_though_streams_are_open(start: Start, browser: Browser, kind: str) -> None:
    server, cookie = start(kind=kind), session(browser)

    async def play() -> None:
        clients = [Client(server.port, ALL, cookie) for _ in range(4)]
        listening = [asyncio.create_task(one.listen()) for one in clients]
        await until(lambda: all(one.last_id for one in clients), "all listen")
        began = asyncio.get_running_loop().time()
        ended = asyncio.get_running_loop().run_in_executor(None, server.end, 15)
        await asyncio.gather(*listening)
        assert asyncio.get_running_loop().time() - began < 2, "the streams end"
        await ended
        assert asyncio.get_running_loop().time() - began < 5, "and so does the server"

    asyncio.run(play())
    assert "Traceback" not in server.log.read_text()


def test_a_server_with_one_thread_serves_its_site_and_refuses_streams(start: Start, browser: Browser) -> None:
    server, cookie = start(kind="sync"), session(browser)

    async def play() -> None:
        for _ in range(4):  # twice as many as there are processes
            refused = Client(server.port, ALL, cookie)
            await asyncio.wait_for(refused.listen(), 10)
            assert "503" in refused.head.split("\r\n")[0]
        page = Client(server.port, "/jobqueue/openapi.json", cookie)
        await asyncio.wait_for(page.listen(), 10)
        assert "200" in page.head.split("\r\n")[0]

    asyncio.run(play())
    assert "gunicorn --threads 8" in server.log.read_text()


@pytest.mark.parametrize("kind", ["uvicorn", "gthread"])
def test_a_stream_ends_with_its_time_and_its_client_misses_nothing(start: Start, browser: Browser, kind: str) -> None:
    server, cookie, job = start(kind=kind, EVENT_STREAM_SECONDS=1), session(browser), JobFactory()

    async def play() -> None:
        client, ends = Client(server.port, ALL, cookie), 0
        listening = asyncio.create_task(client.listen())
        await until(lambda: bool(client.last_id), "it listens")
        writing = asyncio.create_task(asyncio.to_thread(write, [job], 300, 0.1))
        while ends < 3 or not writing.done():
            await asyncio.wait_for(listening, 10)  # until the server ends it
            ends += 1
            assert client.retry == "500"
            listening = asyncio.create_task(client.listen())
        wanted = set(await asyncio.to_thread(_ids)) - before
        await until(lambda: wanted <= set(client.ids), "every event has come")
        assert len(wanted) == 300
        client.cut()
        await listening

    before = {one.pk for one in JobEvent.objects.all()}
    asyncio.run(play())


def test_a_user_has_a_limit_of_streams_and_the_slot_of_a_disconnected_one_is_free(start: Start, browser: Browser) -> None:
    server, cookie = start(EVENT_STREAMS_PER_USER=2), session(browser)

    async def play() -> None:
        clients = [Client(server.port, ALL, cookie) for _ in range(2)]
        listening = [asyncio.create_task(one.listen()) for one in clients]
        await until(lambda: all(one.last_id for one in clients), "all listen")
        for _ in range(3):  # one that was refused takes no place
            refused = Client(server.port, ALL, cookie)
            await asyncio.wait_for(refused.listen(), 10)
            assert "429" in refused.head.split("\r\n")[0]
            assert "retry-after: 10" in refused.head.lower()
        clients[0].cut()
        await listening[0]
        for _ in range(50):
            again = Client(server.port, ALL, cookie)
            listening[0] = asyncio.create_task(again.listen())
            await until(lambda again=again: bool(again.head), "it is answered")  # type: ignore[misc]
            if "200" in again.head.split("\r\n")[0]:
                break
            await asyncio.sleep(0.1)
        await until(lambda: bool(again.last_id), "it listens in the place of the one that was cut")
        again.cut()
        clients[1].cut()
        await asyncio.gather(*listening)

    asyncio.run(play())


def never_reads(server: Server, cookie: str) -> socket.socket:
    """Connect a client that asks for a stream and reads nothing of it, and let much more happen than its line can hold."""
    job = JobFactory()
    before = JobEvent.objects.count()
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.connect(("127.0.0.1", server.port))
    line.sendall(f"GET {ALL} HTTP/1.1\r\nHost: localhost\r\nCookie: sessionid={cookie}\r\n\r\n".encode())
    assert line.recv(20).startswith(b"HTTP/1.1 200")
    wait_until(lambda: b"snapshot" in line.recv(4096, socket.MSG_PEEK), "the stream has begun")
    JobEvent.objects.bulk_create([JobEvent(job=job, name="job.started", data={"much": "x" * 60_000}) for _ in range(170)])
    assert JobEvent.objects.count() == before + 170
    return line


def is_held(server: Server, line: socket.socket) -> bool:
    """Return whether the server has not closed its end yet."""
    ends = {f"{server.port:04X}", f"{line.getsockname()[1]:04X}"}
    rows = [one.split() for one in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    mine = [one for one in rows if {one[1].partition(":")[2], one[2].partition(":")[2]} == ends]
    return any(one[1].endswith(f":{server.port:04X}") and one[3] == "01" for one in mine)


@pytest.mark.parametrize("kind", ["uvicorn", "gthread"])
def test_the_server_ends_though_a_client_never_reads(start: Start, browser: Browser, kind: str) -> None:
    server = start(kind=kind)
    with never_reads(server, session(browser)) as line:
        threading.Event().wait(2)
        assert is_held(server, line)
        server.end(8)
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize("kind", ["uvicorn", "gthread"])
def test_a_client_that_never_reads_is_disconnected_when_it_is_too_far_behind(start: Start, browser: Browser, kind: str) -> None:
    server = start(kind=kind)
    with never_reads(server, session(browser)) as line:
        threading.Event().wait(5)
        assert is_held(server, line), "it may still catch up"
        write([JobFactory()], 6000, 0)
        wait_until(lambda: not is_held(server, line), "its line is cut", 20)
    assert "Traceback" not in server.log.read_text()


def test_a_compressing_middleware_holds_nothing_back(start: Start, browser: Browser) -> None:
    server, cookie = start(gzip=True, EVENT_PING_SECONDS=0.2), session(browser)
    job = JobFactory()

    async def play() -> None:
        client = Client(server.port, f"/jobqueue/jobs/{job.pk}/events/", cookie)
        listening = asyncio.create_task(client.listen())
        await until(lambda: bool(client.last_id), "it listens")
        await asyncio.to_thread(write, [job], 1, 0)
        await until(lambda: len(client.ids) == 1, "the event comes")
        await until(lambda: client.pings > 2, "pings come")
        client.cut()
        await listening
        assert "gzip" not in client.head
        assert "x-accel-buffering: no" in client.head.lower()

    asyncio.run(play())
