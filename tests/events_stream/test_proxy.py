"""Streams through a proxy that drops idle connections: pings keep them open, and otherwise no event is missed."""

from __future__ import annotations

import asyncio

import pytest
from django.db import connection
from django.test import Client as Browser

from jobqueue.models import Job, JobEvent
from tests.events_stream.proxy import Proxy
from tests.events_stream.server import Client
from tests.events_stream.test_server import Start, session, until
from tests.factories import JobFactory

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


def tell(job: Job, name: str) -> int:
    try:
        return int(JobEvent.objects.create(job=job, name=name).pk)
    finally:
        connection.close()


def test_pings_keep_a_silent_stream_open(start: Start, browser: Browser) -> None:
    server, cookie, job = start(EVENT_PING_SECONDS=0.3), session(browser), JobFactory()

    async def play() -> None:
        async with Proxy(server.port, idle_seconds=2.5) as proxy:
            client = Client(proxy.port, f"/jobqueue/jobs/{job.pk}/events/", cookie)
            listening = asyncio.create_task(client.listen())
            await until(lambda: client.pings >= 15, "pings come for longer than the proxy has patience")
            last = await asyncio.to_thread(tell, job, "job.completed")
            await until(lambda: client.ids == [last], "the event comes on the line that was silent")
            assert (proxy.cuts, proxy.lines) == (0, 1)
            client.cut()
            await listening

    asyncio.run(play())


def test_a_client_that_is_disconnected_while_a_job_ends_gets_its_end(start: Start, browser: Browser) -> None:
    server, cookie, job = start(EVENT_PING_SECONDS=60), session(browser), JobFactory()

    async def play() -> None:
        async with Proxy(server.port, idle_seconds=1.0) as proxy:
            client = Client(proxy.port, f"/jobqueue/jobs/{job.pk}/events/", cookie)
            listening = asyncio.create_task(client.listen())
            await until(lambda: bool(client.last_id), "it listens")
            told = [await asyncio.to_thread(tell, job, "job.started")]
            await until(lambda: client.ids == told, "the first event comes")
            await listening  # the proxy has cut it
            assert proxy.cuts == 1
            told += [await asyncio.to_thread(tell, job, name) for name in ("job.retrying", "job.started", "job.completed")]
            listening = asyncio.create_task(client.listen())
            await until(lambda: set(told) <= set(client.ids), "what it missed has come")
            assert list(dict.fromkeys(client.ids)) == told
            client.cut()
            await listening

    asyncio.run(play())
