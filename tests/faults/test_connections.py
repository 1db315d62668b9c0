"""How many connections a worker uses, and when it closes old ones (PostgreSQL, on a server of the test's own)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults.harness import WorkerProcess, Workers, wait_until
from tests.faults.server import Server
from tests.faults.slow import SlowProxy

pytestmark = [pytest.mark.faults, pytest.mark.slow(seconds=69), pytest.mark.postgresql, pytest.mark.django_db]

THREADS = 20
JOBS = 1000
# The dispatcher, finisher, heartbeat, reporter, maintenance, scaler, listener and duties; and the threads of its short duties, of
# webhooks and of retention.
SERVICES = 8 + 3
ENTRIES: dict[str, dict[str, Any]] = {
    "close": {"CONN_MAX_AGE": 0},
    "old": {"CONN_MAX_AGE": 2},
    "keep": {"CONN_MAX_AGE": None},
    "pool": {"OPTIONS": {"pool": {"min_size": 1, "max_size": THREADS + 1, "timeout": 10}}},
    "checked": {"OPTIONS": {"pool": {"min_size": 1, "max_size": THREADS + 1, "timeout": 10}}, "CONN_HEALTH_CHECKS": True},
}


@pytest.fixture
def server(django_db_setup: Any) -> Iterator[Server]:
    """Provide a server that has a role for each worker, to identify their sessions."""
    made = Server()
    try:
        made.migrate()
        made.run("ALTER SYSTEM SET max_connections = 300")
        made.restart()
        for name in ENTRIES:
            made.run(f'CREATE ROLE "{name}" LOGIN SUPERUSER')
        yield made
    finally:
        made.remove()


def sessions(server: Server) -> dict[str, int]:
    """Return how many sessions each role has."""
    return dict(server.run("SELECT usename, count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' GROUP BY usename"))


def enqueue(server: Server, queue: str, number: int, seconds: float) -> None:
    """Insert jobs that each use their thread's connection for this time."""
    server.run(
        "INSERT INTO jobqueue_job (task, args, queue) SELECT 'tests.faults.tasks.hold_connection', %s, %s FROM generate_series(1, %s)",
        [json.dumps([seconds]), queue, number],
    )


def all_succeed(server: Server) -> bool:
    """Whether every job has succeeded at its first attempt."""
    rows = server.run("SELECT DISTINCT status, attempt, message FROM jobqueue_job WHERE status NOT IN ('QUEUED', 'RUNNING')")
    assert set(rows) <= {("SUCCESS", 1, "")}
    return not server.run("SELECT 1 FROM jobqueue_job WHERE status IN ('QUEUED', 'RUNNING') LIMIT 1")


@pytest.mark.session  # and counts those of each worker
def test_threads_use_one_connection_each_give_old_ones_back_and_no_job_meets_a_dead_one(server: Server, workers: Workers) -> None:
    started: list[WorkerProcess] = [
        workers.start("--queues", name, database=server.entry(**{**entry, "USER": name}), MIN_WORKERS=THREADS, MAX_WORKERS=THREADS)
        for name, entry in ENTRIES.items()
    ]
    for worker in started:
        worker.ready()
    most: dict[str, int] = defaultdict(int)

    def done() -> bool:
        for name, number in sessions(server).items():
            most[name] = max(most[name], number)
        return all_succeed(server)

    for name in ENTRIES:
        enqueue(server, name, JOBS, 0.01)
    wait_until(done, "every job has succeeded", 90)
    for name in ENTRIES:
        assert SERVICES < most[name] <= THREADS + SERVICES, f"{name}: {most[name]} sessions"
    wait_until(lambda: max(sessions(server)[name] for name in ("close", "old")) <= SERVICES, "what is too old is closed", 15)
    assert sessions(server)["keep"] > SERVICES
    server.run("ALTER SYSTEM SET idle_session_timeout = '1s'")
    server.run("SELECT pg_reload_conf()")
    for number in (2 * THREADS, 2, 2):  # a session gets the limit at its next use
        for name in ENTRIES:
            enqueue(server, name, number, 0.1)
        wait_until(done, "every job has succeeded", 20)
        wait_until(lambda: sessions(server)["keep"] <= SERVICES, "the server ends the sessions that rest", 10)
    assert all(most[name] <= THREADS + SERVICES for name in ENTRIES), most
    assert [worker.stop() for worker in started] == [0] * len(ENTRIES)


def test_a_long_job_runs_once_though_every_reply_of_the_database_is_late(server: Server, workers: Workers) -> None:
    proxy = SlowProxy(server.port, 0.3)
    try:
        entry = server.entry(proxy.port)
        long = [server.enqueue("work", 12), server.enqueue("awork", 12)]
        settings = {"LEASE_SECONDS": 3, "HEARTBEAT_SECONDS": 1, "DUTY_LEASE_SECONDS": 5, "MIN_WORKERS": 4, "MAX_WORKERS": 4}
        started = [workers.start(database=entry, **settings) for _ in range(2)]
        wait_until(lambda: set(long) <= set(workers.witness.starts()), "the long jobs run", 40)
        short = [server.enqueue("work", 0) for _ in range(200)]
        wait_until(lambda: all_succeed(server), "every job has succeeded", 90)
        starts = workers.witness.starts()
        assert [starts[job] for job in (*long, *short)] == [1] * 202
        assert set(server.jobs("crashes").values()) == {(0,)}
        lost = server.enqueue("wait", 60)
        wait_until(lambda: lost in workers.witness.starts(), "the job runs", 20)
        owner = next(event.pid for event in workers.witness.events if event.job == lost)
        dead, other = sorted(started, key=lambda worker: worker.pid != owner)
        dead.kill()
        wait_until(lambda: workers.witness.count("start", lost) == 2, "the other worker recovers the job", 25)
        server.run("UPDATE jobqueue_job SET cancel_requested = TRUE, cancel_outcome = 'CANCELED' WHERE id = %s", [lost])
        wait_until(lambda: server.jobs()[lost] == ("CANCELED",), "the job is canceled", 15)
        assert other.stop(30) == 0
    finally:
        proxy.close()
