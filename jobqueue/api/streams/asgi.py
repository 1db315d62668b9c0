"""Send a stream through an ASGI server; a client occupies only its queue.

If a client does not read, sent bytes stay in the server's buffer, and the task that sends them stays blocked, until
the client disconnects. When uvicorn is asked to stop, it waits for both. So this module aborts the connection, and
uvicorn ends the task as for any client that has disconnected. The connection is found among the server's
connections by the scope of the request. Other servers do not give access to it.
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
from jobqueue.api.streams.parts import ADMIT_SECONDS, RETRY_MILLISECONDS, RETRY_SOON_MILLISECONDS, Stream, StreamClock
from jobqueue.db import close_idle
from jobqueue.events import stopping, wire
from jobqueue.events.stream import hub
from jobqueue.events.subscription import STALLED_AT_END_SECONDS, STALLED_AT_STOP_SECONDS, Subscription

PART_BYTES = 65_536


def transport_of(scope: Mapping[str, Any]) -> Any:
    """Return the transport of a request's connection in uvicorn; None if it is closed, or the server is another one."""
    for connection in list(getattr(getattr(stopping.server(), "server_state", None), "connections", ())):
        if getattr(connection, "scope", None) is scope:
            return getattr(connection, "transport", None)
    return None


def unread(scope: Mapping[str, Any]) -> int:
    """Return the number of bytes in the server's buffer that the client has not read."""
    transport = transport_of(scope)
    return 0 if transport is None else int(transport.get_write_buffer_size())


def abort(scope: Mapping[str, Any]) -> None:
    """Abort the connection if the client has still not read what was sent to it."""
    if unread(scope):
        transport_of(scope).abort()


async def send_async(stream: Stream, scope: Mapping[str, Any], slot: StreamSlot) -> AsyncIterator[bytes]:
    """Yield the stream's bytes; the request's scope identifies its connection, `slot` is its slot."""
    loop, wake = asyncio.get_running_loop(), asyncio.Event()
    stopping.listen()
    client = hub.subscribe(
        stream.source.wanted, lambda: loop.call_soon_threadsafe(wake.set), lambda: loop.call_soon_threadsafe(abort, scope)
    )
    try:
        async for part in _parts_of(stream, client, wake, slot):
            client.writing_since = time.monotonic()
            yield part
            client.writing_since = None
    finally:
        slot.release()
        hub.unsubscribe(client)
        if unread(scope):  # nothing more is sent, but the buffer can hold more than the client ever reads
            loop.call_later(STALLED_AT_STOP_SECONDS if stopping.server_ends() else STALLED_AT_END_SECONDS, abort, scope)


async def _parts_of(stream: Stream, client: Subscription, wake: asyncio.Event, slot: StreamSlot) -> AsyncIterator[bytes]:
    yield wire.retry(RETRY_MILLISECONDS)
    await sync_to_async(close_idle)()  # releases the connection that a middleware may have used in the request's thread
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(wake.wait(), ADMIT_SECONDS)
    opening = stream.opening(client)
    while True:
        async with slot.turn:
            part = await threads.run_in_pool(lambda: next(opening, None))
        if part is None:
            break
        yield part
    clock = StreamClock()
    while client.begin is not None:
        wake.clear()
        ended, over = client.ended, clock.is_over  # read before the queue is emptied, so that all earlier messages are sent
        if clock.start_check_if_due() and not await threads.run_in_pool(stream.source.allowed, "check"):
            return
        part = clock.take_bytes(client)
        for begin in range(0, len(part), PART_BYTES):  # small parts show whether the client reads
            yield part[begin : begin + PART_BYTES]
        if over and not ended:
            yield wire.retry(RETRY_SOON_MILLISECONDS)
        if over or ended:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(wake.wait(), clock.seconds_to_next_action)
