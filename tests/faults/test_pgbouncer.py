"""Real workers behind PgBouncer in transaction mode: what they do not use, how soon they work, and its restart under load."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobqueue.duties.builtin import builtin
from jobqueue.worker.claiming.listener import OFF
from tests.faults.harness import WorkerProcess, Workers, wait_until
from tests.faults.server import Server
from tests.faults.test_outage import ended, meet, thread_count
from tests.pooler import PROGRAM, PgBouncer

pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.postgresql,
    pytest.mark.django_db,
    pytest.mark.skipif(PROGRAM is None, reason="needs the Debian package pgbouncer"),
]

THREADS = 4
# The threads of duties: who leads them before need not lead them afterwards.
LED = len(builtin(lambda: None, lambda lost: None, lambda: 0.0))
POLL_SECONDS, HEARTBEAT_SECONDS = 0.25, 1
A_LITTLE_SECONDS = 0.75
# After this time, a worker that relies on notifications polls only every 5 s.
QUIET_SECONDS = 3.0
# Whatever relies on a session that another transaction may have changed, or has no more.
LOST = ("prepared statement", "lost a plan", "Traceback")


@pytest.fixture(scope="module")
def server(django_db_setup: Any) -> Iterator[Server]:
    """Provide the server of this module; its start takes seconds."""
    made = Server()
    try:
        made.migrate()
        yield made
    finally:
        made.remove()


@pytest.fixture
def pooler(server: Server) -> Iterator[PgBouncer]:
    """Put a pooler in front of the empty server."""
    server.run("TRUNCATE jobqueue_job, jobqueue_worker CASCADE")
    made = PgBouncer("127.0.0.1", server.own_port)
    try:
        yield made
    finally:
        made.remove()


def start(workers: Workers, server: Server, pooler: PgBouncer, **settings: Any) -> WorkerProcess:
    """Start a worker that reaches the server through the pooler."""
    entry = server.entry(pooler.port, CONN_MAX_AGE=None, DISABLE_SERVER_SIDE_CURSORS=True)
    quick = {"POLL_SECONDS": POLL_SECONDS, "HEARTBEAT_SECONDS": HEARTBEAT_SECONDS, "LEASE_SECONDS": 20}
    return workers.start(database=entry, **{**quick, "MIN_WORKERS": THREADS, "MAX_WORKERS": THREADS, **settings}).ready()


def rest(seconds: float) -> None:
    """Wait idle: the test checks how soon an idle worker polls."""
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > until, "the rest is over", seconds + 1)


def begun_after(workers: Workers, server: Server, ahead: str = "0 s") -> float:
    """Enqueue a job whose time is so far ahead; return how long after its time it began."""
    waits = {"status": "PENDING", "waiting_for": "time", "run_at": datetime.now(UTC) + timedelta(days=1)} if ahead != "0 s" else {}
    job = server.enqueue("work", 0, **waits)
    if waits:
        server.run("UPDATE jobqueue_job SET run_at = now() + %s::interval WHERE id = %s", [ahead, job])
    at = time.monotonic() + float(ahead.split(maxsplit=1)[0])
    wait_until(lambda: workers.witness.count("start", job), "the job begins", 10)
    return next(event.at for event in workers.witness.events if event.job == job) - at


def test_a_worker_does_without_a_session_and_is_hardly_later_for_it(server: Server, pooler: PgBouncer, workers: Workers) -> None:
    worker = start(workers, server, pooler)
    wait_until(lambda: OFF in worker.text, "it says that LISTEN is off")
    rest(QUIET_SECONDS)
    late = [begun_after(workers, server), begun_after(workers, server, "1 s")]
    # It polls: for queued jobs, and for jobs that are due.
    assert late[0] < 1.2 * POLL_SECONDS + A_LITTLE_SECONDS
    assert late[1] < 2.4 * POLL_SECONDS + A_LITTLE_SECONDS
    line = [server.enqueue("work", 0, target="line") for _ in range(60)]
    wait_until(lambda: ended(server), "the line has ended", 20)
    starts = [event.job for event in workers.witness.events if event.what == "start" and event.job in line]
    assert starts == line, "each once, in order, handed over from one to the next"
    stopped, finishes = server.enqueue("wait", 60), server.enqueue("work", 3)
    wait_until(lambda: {stopped, finishes} <= set(workers.witness.starts()), "the jobs run")
    asked = time.monotonic()
    server.run("UPDATE jobqueue_job SET cancel_requested = TRUE, cancel_outcome = 'CANCELED' WHERE id = %s", [stopped])
    wait_until(lambda: server.jobs()[stopped] == ("CANCELED",), "the job is canceled")
    assert time.monotonic() - asked < HEARTBEAT_SECONDS + A_LITTLE_SECONDS
    assert worker.stop() == 0
    assert server.jobs()[finishes] == ("SUCCESS",), "what runs is finished in a drain"
    assert set(server.jobs("attempt, crashes").values()) == {(1, 0)}
    assert worker.text.count(OFF) == 1
    assert not [text for text in LOST if text in worker.text + pooler.text]


def test_the_pooler_restarts_under_load_and_nothing_is_lost_or_run_twice(server: Server, pooler: PgBouncer, workers: Workers) -> None:
    worker = start(workers, server, pooler)
    long = server.enqueue("work", 5)
    wait_until(lambda: long in workers.witness.starts(), "a job runs")
    meet(server, workers, THREADS - 1)
    threads = thread_count(worker.pid)
    jobs = [server.enqueue("work", 0.01, target=f"line:{number % 5}" if number % 2 else "") for number in range(600)]
    for number in (100, 250, 400):
        wait_until(lambda number=number: len(workers.witness.starts()) > number, "the jobs continue", 20)  # type: ignore[misc]
        pooler.stop()
        rest(0.5)
        pooler.start()
    wait_until(lambda: ended(server), "every job is settled", 30)
    assert set(server.jobs("status, crashes").values()) == {("SUCCESS", 0)}
    starts = workers.witness.starts()
    assert [starts[job] for job in (long, *jobs)] == [1] * 601
    meet(server, workers, THREADS)
    assert abs(thread_count(worker.pid) - threads) <= LED
    assert worker.stop() == 0
    assert worker.text.count(OFF) == 1
    assert not [text for text in LOST if text in worker.text]
    assert len([line for line in worker.text.splitlines() if "Job " not in line]) < 40
