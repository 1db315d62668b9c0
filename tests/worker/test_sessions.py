"""What a task leaves behind in the session of its thread's connection, and what the next job of the thread finds."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection

from jobqueue.lifecycle.outcome import Kind
from jobqueue.worker.running.executor import execute
from tests.worker.parts import run_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql, pytest.mark.session]


@pytest.mark.parametrize("fresh", [False, True])
def test_a_task_leaves_its_session_to_the_next_job_unless_connections_are_fresh(settings: Any, *, fresh: bool) -> None:
    settings.JOBQUEUE = {"FRESH_CONNECTIONS": fresh}
    found: dict[str, Any] = {}

    def change() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET search_path = public, pg_temp")
            cursor.execute("SET statement_timeout = '77s'")
            cursor.execute("CREATE TEMP TABLE left_behind (id int)")
            cursor.execute("SELECT pg_advisory_lock(4711)")
            cursor.execute("LISTEN left_behind")

    def see() -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT current_setting('statement_timeout'), current_setting('search_path'),"
                " to_regclass('pg_temp.left_behind') IS NOT NULL,"
                " (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND pid = pg_backend_pid()),"
                " (SELECT count(*) FROM pg_listening_channels())"
            )
            found["session"] = cursor.fetchone()

    def thread() -> None:
        connection.settings_dict["CONN_MAX_AGE"] = None
        try:
            assert [execute(run_of(one)).kind for one in (change, see)] == [Kind.SUCCESS] * 2
        finally:
            connection.close()

    one = threading.Thread(target=thread)
    one.start()
    one.join(20)
    timeout, path, *rest = found["session"]
    assert (timeout == "77s", path == "public, pg_temp", *rest) == ((False, False, False, 0, 0) if fresh else (True, True, True, 1, 1))
