"""The database goes away in the middle of everything, and comes back (PostgreSQL, on a server of the test's own)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults.harness import Workers, wait_until
from tests.faults.server import Proxy, Server

pytestmark = [pytest.mark.faults, pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]

OUTAGE_SECONDS = 20
THREADS = 4


@pytest.fixture(scope="module")
def server(django_db_setup: Any) -> Iterator[Server]:
    """Lend the server of this module; starting it costs seconds."""
    made = Server()
    try:
        made.migrate()
        yield made
    finally:
        made.remove()


@pytest.fixture
def empty(server: Server) -> Server:
    """Lend the server without any job."""
    server.run("TRUNCATE jobqueue_job, jobqueue_worker")
    return server


def ended(server: Server) -> bool:
    """Whether every job has ended."""
    return {status for (status,) in server.jobs().values()} <= {"SUCCESS", "ERROR"}


def meet(server: Server, workers: Workers, number: int) -> None:
    """See that so many threads of the workers run at the same time."""
    meeting = {server.enqueue("meet", number) for _ in range(number)}
    wait_until(lambda: all(server.jobs()[job] == ("SUCCESS",) for job in meeting), "all threads meet", 20)
    (workers.directory / "witness.jsonl.meeting").unlink()


def test_an_outage_of_20_s_loses_no_job_and_no_thread(empty: Server, workers: Workers) -> None:
    server, witness = empty, workers.witness
    worker = workers.start(database=server.entry(), LEASE_SECONDS=10, HEARTBEAT_SECONDS=1, MIN_WORKERS=THREADS, MAX_WORKERS=THREADS).ready()
    running = [server.enqueue("work", OUTAGE_SECONDS + 6), server.enqueue("awork", OUTAGE_SECONDS + 6)]
    during = [server.enqueue("work", 4), server.enqueue("awork", 4), server.enqueue("late_failure", 4)]
    wait_until(lambda: set(running + during[:2]) <= set(witness.starts()), "the jobs run")
    waiting = [server.enqueue("work", 0.05) for _ in range(20)]
    threads = thread_names(worker.pid)
    server.stop()
    down = time.monotonic()
    wait_until(lambda: time.monotonic() - down > OUTAGE_SECONDS, "the outage has lasted long enough", OUTAGE_SECONDS + 1)
    assert worker.alive, worker.text
    assert witness.count("end", during[0]) == 1, "a job ended while there was no database"
    server.start()
    after = server.enqueue("work", 0.05)
    wait_until(lambda: server.jobs()[after] == ("SUCCESS",), "a job enqueued afterwards runs", 10)
    wait_until(lambda: ended(server), "every job is settled", 25)
    rows = server.jobs("status, attempt, crashes, message")
    assert [rows[job][0] for job in (*running, *during[:2], *waiting, after)] == ["SUCCESS"] * (5 + len(waiting))
    assert rows[during[2]][0] == "ERROR"
    for job, times in witness.starts().items():
        assert times == 1 + rows[job][2], f"job {job} ran {times} times with {rows[job][2]} counted recoveries"
    assert all(rows[job][2] == 0 for job in (*waiting, after))
    meet(server, workers, THREADS)
    assert thread_names(worker.pid) == threads
    assert worker.stop() == 0
    assert len([line for line in worker.text.splitlines() if "Job " not in line]) < 40, "the log of an outage is bounded"
    assert "Traceback" not in worker.text


def test_sessions_ended_by_the_server_cost_nobody_anything(empty: Server, workers: Workers) -> None:
    server, witness = empty, workers.witness
    worker = workers.start(database=server.entry(CONN_MAX_AGE=None), MIN_WORKERS=THREADS, MAX_WORKERS=THREADS).ready()
    long = server.enqueue("work", 4)
    wait_until(lambda: long in witness.starts(), "the job runs")
    jobs = [server.enqueue("write", f"row {number}") for number in range(10)]
    for number in range(6):
        server.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
        jobs.append(server.enqueue("work", 0.01))
        wait_until(lambda job=jobs[-1]: server.jobs()[job] == ("SUCCESS",), f"the job after cut {number + 1} runs", 8)  # type: ignore[misc]
    wait_until(lambda: server.jobs()[long] == ("SUCCESS",), "the long job ends")
    assert witness.starts()[long] == 1
    server.restart()
    last = server.enqueue("work", 0.01)
    wait_until(lambda: server.jobs()[last] == ("SUCCESS",), "the job after the restart runs", 8)
    meet(server, workers, THREADS)
    assert worker.stop() == 0


def test_sigterm_during_an_outage_ends_the_process_within_its_grace(empty: Server, workers: Workers) -> None:
    server = empty
    worker = workers.start(database=server.entry(), SHUTDOWN_GRACE_PERIOD_SECONDS=1).ready()
    job = server.enqueue("wait", 60)
    wait_until(lambda: job in workers.witness.starts(), "the job runs")
    server.stop()
    try:
        began = time.monotonic()
        assert worker.stop(15) == 1, "an outcome that could not be written is no clean end"
        assert time.monotonic() - began < 12
    finally:
        server.start()
    assert server.jobs()[job] == ("RUNNING",)
    second = workers.start(database=server.entry(), SHUTDOWN_GRACE_PERIOD_SECONDS=0).ready()
    wait_until(lambda: workers.witness.count("start", job) == 2, "another worker recovers it", 8)
    second.stop()


def test_a_worker_starts_while_the_database_is_away_and_works_when_it_comes(empty: Server, workers: Workers) -> None:
    server = empty
    job = server.enqueue("work", 0.01)
    server.stop()
    try:
        worker = workers.start(database=server.entry()).ready()
        wait_until(lambda: "cannot reach the database" in worker.text, "the worker says what is wrong")
    finally:
        server.start()
    wait_until(lambda: server.jobs()[job] == ("SUCCESS",), "the job runs", 15)
    assert worker.stop() == 0


def test_a_silent_network_neither_hangs_the_end_nor_outlasts_its_return(empty: Server, workers: Workers) -> None:
    server = empty
    proxies = [Proxy(server.port), Proxy(server.port)]
    try:
        ending, lasting = (
            workers.start(
                "--queues", name, database=server.entry(proxy.port), SHUTDOWN_GRACE_PERIOD_SECONDS=1, LEASE_SECONDS=4, HEARTBEAT_SECONDS=1
            )
            for name, proxy in zip(("ending", "lasting"), proxies, strict=True)
        )
        running = [server.enqueue("wait", 60, queue="ending"), server.enqueue("work", 3, queue="lasting")]
        wait_until(lambda: set(running) <= set(workers.witness.starts()), "the jobs run", 30)
        for proxy in proxies:
            proxy.fall_silent()
        began = time.monotonic()
        wait_until(lambda: workers.witness.count("end", running[1]) == 1, "a job ends in the silence")
        ending.terminate()
        assert ending.wait(15) == 1
        assert time.monotonic() - began < 20
        wait_until(lambda: time.monotonic() - began > 8, "the silence has outlasted the lease", 9)
        proxies[1].speak()
        job = server.enqueue("work", 0.01, queue="lasting")
        wait_until(lambda: server.jobs()[job] == ("SUCCESS",), "the worker works again", 20)
        wait_until(lambda: server.jobs()[running[1]] == ("SUCCESS",), "the job that ended in the silence is settled", 20)
        assert lasting.alive
        assert lasting.stop() == 0
    finally:
        for proxy in proxies:
            proxy.close()


def test_strict_limits_on_sessions_and_a_small_pool_lose_nothing(empty: Server, workers: Workers) -> None:
    """Nothing of ours keeps a transaction open, and our own connections do not come from the project's pool."""
    server = empty
    limits = "-c idle_in_transaction_session_timeout=1000 -c statement_timeout=1500 -c lock_timeout=500"
    pooled = {"pool": {"min_size": 1, "max_size": 2, "timeout": 1}}
    strict = workers.start("--queues", "strict", database=server.entry(OPTIONS={"options": limits})).ready()
    small = workers.start("--queues", "small", database=server.entry(OPTIONS=pooled), MIN_WORKERS=4, MAX_WORKERS=4).ready()
    jobs = [server.enqueue("work", 4, queue="strict"), *(server.enqueue("hold_connection", 1.5, queue="small") for _ in range(8))]
    oldest = 0.0
    while not ended(server):
        sql = "SELECT max(extract(epoch FROM clock_timestamp() - xact_start)) FROM pg_stat_activity WHERE application_name LIKE 'jobqueue%%'"
        oldest = max(oldest, float(server.run(sql)[0][0] or 0))
    rows = server.jobs("status, attempt, message")
    assert rows[jobs[0]] == ("SUCCESS", 1, "")
    assert {attempt for _, attempt, _ in rows.values()} == {1}
    assert oldest < 1
    for job in jobs[1:]:
        status, _, message = rows[job]
        assert status == "SUCCESS" or re.search("pool|timeout|connection", message, re.IGNORECASE), "only the task itself may miss a connection"
    assert (strict.stop(), small.stop()) == (0, 0)


def thread_names(pid: int) -> list[str]:
    """Return how many threads a process has, as text for a readable failure."""
    from pathlib import Path

    return [f"{len(list(Path(f'/proc/{pid}/task').iterdir()))} threads"]
