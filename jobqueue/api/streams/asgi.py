"""Send a stream to a server that speaks ASGI: nothing is held for a client but its queue.

What was handed to the server for a client that does not read waits in the server's buffer until the client goes. So does the task that
sends to it, and uvicorn, when it is told to stop, waits for both. So the connection is aborted then; uvicorn ends the task as for any
client that has gone. It is found among the server's connections by the request that came over it. Other servers do not give it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from asgiref.sync import sync_to_async

from jobqueue.api.streams import threads
from jobqueue.api.streams.limits import StreamSlot
from jobqueue.api.streams.parts import ADMIT_SECONDS, RETRY_MILLISECONDS, RETRY_SOON_MILLISECONDS, Clock, Stream
from jobqueue.db import let_go
from jobqueue.events import stopping, wire
from jobqueue.events.stream import hub
from jobqueue.events.subscription import STALLED_AT_END_SECONDS, STALLED_AT_STOP_SECONDS, Subscription

PART_BYTES = 65_536


def transport_of(scope: Mapping[str, Any]) -> Any:
    """Return the transport of the connection over which a request came to uvicorn; None where it is gone, or the server is another."""
    for one in list(getattr(getattr(stopping.server(), "server_state", None), "connections", ())):
        if getattr(one, "scope", None) is scope:
            return getattr(one, "transport", None)
    return None


def unread(scope: Mapping[str, Any]) -> int:
    """Return how many bytes the server holds that the client has not taken."""
    transport = transport_of(scope)
    return 0 if transport is None else int(transport.get_write_buffer_size())


def abort(scope: Mapping[str, Any]) -> None:
    """Cut the connection if the client has still not taken what was sent to it."""
    if unread(scope):
        transport_of(scope).abort()


async def send_async(stream: Stream, scope: Mapping[str, Any], place: StreamSlot) -> AsyncIterator[bytes]:
    """Yield the stream's bytes; the request's scope names its connection, the place is its user's."""
    loop, wake = asyncio.get_running_loop(), asyncio.Event()
    stopping.listen()
    client = hub.subscribe(
        stream.source.wanted, lambda: loop.call_soon_threadsafe(wake.set), lambda: loop.call_soon_threadsafe(abort, scope)
    )
    try:
        async for part in _parts_of(stream, client, wake, place):
            client.writing_since = time.monotonic()
            yield part
            client.writing_since = None
    finally:
        place.leave()
        hub.unsubscribe(client)
        if unread(scope):  # nothing more is sent, but what the server has may be more than the client ever reads
            loop.call_later(STALLED_AT_STOP_SECONDS if stopping.server_ends() else STALLED_AT_END_SECONDS, abort, scope)


async def _parts_of(stream: Stream, client: Subscription, wake: asyncio.Event, place: StreamSlot) -> AsyncIterator[bytes]:
    yield wire.retry(RETRY_MILLISECONDS)
    await sync_to_async(let_go)()  # what a middleware has asked since, in the request's own thread
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(wake.wait(), ADMIT_SECONDS)
    opening = stream.opening(client)
    while True:
        async with place.turn:
            part = await threads.run_in_pool(lambda: next(opening, None))
        if part is None:
            break
        yield part
    clock = Clock()
    while client.begin is not None:
        wake.clear()
        ended, over = client.ended, clock.is_over  # before the queue is emptied: what came until then is sent
        if clock.must_check() and not await threads.run_in_pool(stream.source.allowed, "check"):
            return
        part = clock.to_send(client)
        for begin in range(0, len(part), PART_BYTES):  # so that it is seen whether its client reads
            yield part[begin : begin + PART_BYTES]
        if over and not ended:
            yield wire.retry(RETRY_SOON_MILLISECONDS)
        if over or ended:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(wake.wait(), clock.rest)
