"""One reader for all streams of a process: it reads the log of events once and passes each event to the clients that want it.

The reader has a separate thread and a separate database connection. Between two reads, it has no open
transaction. It runs only while there are streams. It stores a snapshot (see ``db/eventlog.py``), so it reads each
event once, whatever the order of commits.

A new client gets the current snapshot of the reader. Events before it are replayed to the client from the log;
later events come from the reader. So no event is lost between the two. Each client has a bounded queue; a client
whose queue is full is ended, and resumes by its last id.

Each event carries the position after it: a client whose connection ends in the middle continues from there.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jobqueue.core.service import Named, Service
from jobqueue.db import eventlog as eventlog_sql
from jobqueue.db.cursors import Cursor, Position
from jobqueue.db.eventlog import EventRow
from jobqueue.events import watch, wire
from jobqueue.events.stopping import server_ends
from jobqueue.events.subscription import Subscription
from jobqueue.events.wanted import EventSelection, matched
from jobqueue.models import Job

POLL_SECONDS, IDLE_POLL_SECONDS = 0.25, 0.5
PAGE = 1000
LINGER_TURNS = 10  # the turns without a client after which the thread and its connection end
MAX_REMEMBERED = 10_000

logger = logging.getLogger("jobqueue")


class Reader(Service):
    """The thread that reads the log and passes new events to the clients."""

    name = "events"

    def __init__(self, hub: Hub) -> None:
        """Create the reader of a hub."""
        super().__init__(on_error=self._failed)
        self._hub = hub
        self._cursor: Cursor | None = None
        self._connection: Any = None  # the connection by which the cursor was read
        self._idle_turns = self._lonely_turns = 0
        self._watch = watch.Watch()
        self._facts: dict[int, tuple[str, str]] = {}

    def set_up(self) -> None:
        """Take a separate connection, which no request of a client uses."""
        Job.objects.database.reserve_connection("events")

    def turn(self) -> float | None:
        """Pass the events since the last turn to the clients."""
        if stopping := server_ends():  # before any query, because the database may be unreachable
            self._hub.end_all("shutdown")
        self._hub.cut_stalled(stopping=stopping)
        database = Job.objects.database
        database.connection.close_if_unusable_or_obsolete()
        is_new = database.connection.connection is not self._connection
        # restored, or another server
        if self._cursor is not None and is_new and eventlog_sql.event_history(database) != self._cursor.history:
            self._hub.end_all("history")
            self._cursor = None
        if self._cursor is None:
            self._cursor = eventlog_sql.event_cursor(database)
        self._connection = database.connection.connection
        clients = self._hub.admit(self._cursor)
        self._lonely_turns = 0 if clients else self._lonely_turns + 1
        if self._lonely_turns > LINGER_TURNS and self._hub.dismiss(self):
            return 0.0
        moved = self._read(clients) if clients else False
        if not clients:
            self._cursor = None  # the next client begins at the present
        self._idle_turns = 0 if moved else self._idle_turns + 1
        return POLL_SECONDS if self._idle_turns < 8 else IDLE_POLL_SECONDS

    def tear_down(self) -> None:
        """Close the connection."""
        Job.objects.database.connection.close()

    def _read(self, clients: dict[EventSelection, list[Subscription]]) -> bool:
        moved = False
        while not self.stopping:
            assert self._cursor is not None  # noqa: S101 - the turn has set it
            rows, after = eventlog_sql.events_after(Job.objects.database, self._cursor, PAGE)
            self._hand_out(rows, clients, self._cursor, after)
            self._cursor, moved = after, moved or bool(rows)
            if not after.more:
                break
        if self._cursor is not None:
            self._progress(clients, self._cursor.position)
        return moved

    def _hand_out(self, rows: list[EventRow], clients: dict[EventSelection, list[Subscription]], before: Cursor, after: Cursor) -> None:
        """Pass the page between two cursors to the clients."""
        wanted = matched(rows, clients)
        self._learn({row.job_id for row, _ in wanted})
        for_key: dict[EventSelection, list[tuple[int, bytes]]] = defaultdict(list)
        deleted = set()
        for row, keys in wanted:
            lines = wire.body(wire.described(row, self._facts.get(row.job_id)))
            for key in keys:
                for_key[key].append((row.id, lines))
            if row.name == "job.deleted":
                deleted.add(EventSelection(job_id=row.job_id))
        for key, members in clients.items():
            messages, at = _positioned(for_key.get(key, ()), before, after)
            for client in members:
                client.put(messages, at) if messages else client.settle(at)
                if key in deleted:
                    client.end("deleted")

    def _learn(self, ids: set[int]) -> None:
        """Read the task and the queue of jobs, which never change."""
        missing = ids - self._facts.keys()
        if missing:
            if len(self._facts) > MAX_REMEMBERED:
                self._facts.clear()
                missing = ids
            self._facts.update(facts_of(missing))

    def _progress(self, clients: dict[EventSelection, list[Subscription]], position: Position) -> None:
        """Send progress, which has no events, to the clients that watch one job."""
        watched = {key.job_id: members for key, members in clients.items() if key.job_id is not None}
        for job_id, change in self._watch.changes(watched):
            lines = wire.message(position, wire.body(change))
            for client in watched[job_id]:
                client.put([lines], position)

    def _failed(self, _: Named, error: BaseException, failures: int) -> None:
        if failures in (1, 10):
            logger.warning("The reader of the event log failed and tries again (failure %s in a row): %s", failures, error)


class Hub:
    """The clients of this process, and their reader, which runs while there are any."""

    def __init__(self) -> None:
        """Create it without a client."""
        self._lock = threading.Lock()
        self._clients: set[Subscription] = set()
        self._reader: Reader | None = None

    def __len__(self) -> int:
        """Return the number of clients."""
        return len(self._clients)

    def subscribe(self, wanted: EventSelection, wake: Callable[[], object], cut: Callable[[], object] = lambda: None) -> Subscription:
        """Add a client. The reader sets its `begin` and wakes it in its next turn. `cut` ends its connection."""
        client = Subscription(wanted, wake, cut)
        with self._lock:
            self._clients.add(client)
            if self._reader is None or not self._reader.alive:
                self._reader = Reader(self)
                self._reader.start()
            self._reader.wake()
        return client

    def unsubscribe(self, client: Subscription) -> None:
        """Remove a client and its queued messages."""
        with self._lock:
            self._clients.discard(client)
        client.end("gone")
        client.take()

    def admit(self, cursor: Cursor) -> dict[EventSelection, list[Subscription]]:
        """Admit the clients that came since the last turn; return the clients by what they want."""
        with self._lock:
            clients = [client for client in self._clients if not client.ended]
        admitted: dict[EventSelection, list[Subscription]] = defaultdict(list)
        for client in clients:
            if client.begin is None:
                if cursor.more:  # The rest of a page is still to be read. A client that is admitted now would miss its events.
                    continue
                client.admit(cursor)
            admitted[client.wanted].append(client)
        return admitted

    def dismiss(self, reader: Reader) -> bool:
        """Stop the reader if there is no client; a later client starts another one."""
        with self._lock:
            if self._clients:
                return False
            if self._reader is reader:
                self._reader = None
            reader.stop()
            return True

    def end_all(self, why: str) -> None:
        """End all streams, as at the end of the process; their clients reconnect with their last id."""
        with self._lock:
            clients = list(self._clients)
        for client in clients:
            client.end(why)

    def cut_stalled(self, *, stopping: bool) -> None:
        """Cut the connections of the clients that do not read."""
        with self._lock:
            clients = list(self._clients)
        for client in clients:
            client.cut_if_stalled(stopping=stopping)

    def close(self, seconds: float = 5.0) -> bool:
        """End all streams and the reader; return whether the reader ended in time."""
        self.end_all("shutdown")
        with self._lock:
            reader, self._reader = self._reader, None
        if reader is None:
            return True
        reader.stop()
        return reader.join(seconds)


def _positioned(events: Sequence[tuple[int, bytes]], before: Cursor, after: Cursor) -> tuple[list[bytes], Position]:
    """Return the messages of a page of events, given their ids and lines, and the position after the page."""
    if not events:
        return [], after.position
    database = Job.objects.database
    upto = after._replace(since=after.upto) if after.more else after
    at = [eventlog_sql.position_behind(database, number, before, upto) for number, _ in events]
    if not after.more:
        at[-1] = after.position
    return [wire.message(position, lines) for position, (_, lines) in zip(at, events, strict=True)], at[-1]


def facts_of(ids: Iterable[int]) -> dict[int, tuple[str, str]]:
    """Return the task and the queue of jobs."""
    rows = Job.objects.current.filter(pk__in=[*ids]).values_list("pk", "task", "queue")
    return {job_id: (task, queue) for job_id, task, queue in rows}


hub = Hub()
