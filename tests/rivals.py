"""A second client with its own database connection, for tests of concurrent transactions."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from django.db import connection, connections, transaction

from jobqueue.models import Job

PATIENCE_SECONDS = 20.0


class Rival:
    """Run calls one after the other in a thread of its own, and so on a connection of its own."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._open = contextlib.ExitStack()

    def start(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        """Begin a call and return its future."""
        return self._thread.submit(call, *args, **kwargs)

    def do(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a call and return what it returned."""
        return self.start(call, *args, **kwargs).result(PATIENCE_SECONDS)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Keep a transaction open in the thread; it is committed at the end."""
        self.do(lambda: self._open.enter_context(transaction.atomic()))
        try:
            yield
        finally:
            self.do(self._open.close)

    @contextlib.contextmanager
    def locking(self, *jobs: Job) -> Iterator[None]:
        """Keep rows locked in the thread, as an admin page or a shell does."""
        with self.transaction():
            self.do(lambda: list(Job.objects.select_for_update().filter(pk__in=[job.pk for job in jobs])))
            yield

    @contextlib.contextmanager
    def holding(self, *keys: int) -> Iterator[None]:
        """Keep advisory locks in the thread's transaction."""
        with self.transaction():
            for key in keys:
                self.do(_lock, key)
            yield

    def close(self) -> None:
        """End the thread and its connection."""
        self.do(connections.close_all)
        self._thread.shutdown()


def _lock(key: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [key])


def wait_until_somebody_waits_for_a_lock(number: int = 1) -> None:
    """Return as soon as this number of other sessions of this PostgreSQL database wait for a row, a lock or a transaction."""
    sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    pause = threading.Event()
    for _ in range(int(PATIENCE_SECONDS / 0.01)):
        with connection.cursor() as cursor:
            cursor.execute(sql)
            if cursor.fetchone()[0] >= number:
                return
        pause.wait(0.01)
    raise AssertionError("No session waits for a lock.")


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Run calls at the same moment, each in a thread and on a connection of its own; return what they returned, in order."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        try:
            connection.ensure_connection()
            barrier.wait(PATIENCE_SECONDS)
            return call()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(max_workers=len(calls)) as pool:
        return [future.result(PATIENCE_SECONDS * 3) for future in [pool.submit(run, call) for call in calls]]
