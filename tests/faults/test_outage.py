"""The database stops during all kinds of work, and starts again (PostgreSQL, on a server of the test's own)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from jobqueue.duties.builtin import builtin
from tests.faults.harness import Workers, wait_until
from tests.faults.server import Proxy, Server
from tests.faults.together import at_once, play
from tests.faults.witness import Witness

pytestmark = [pytest.mark.faults, pytest.mark.postgresql, pytest.mark.django_db]

OUTAGE_SECONDS = 20
THREADS = 4


@pytest.fixture(scope="module")
def server(django_db_setup: Any) -> Iterator[Server]:
    """Provide the server of this module; its start takes seconds."""
    with own_server() as made:
        yield made


@contextmanager
def own_server() -> Iterator[Server]:
    """Run a server with the tables."""
    made = Server()
    try:
        made.migrate()
        yield made
    finally:
        made.remove()


@pytest.fixture
def empty(server: Server) -> Server:
    """Provide the server without any job."""
    server.run("TRUNCATE jobqueue_job, jobqueue_worker CASCADE")
    return server


def ended(server: Server) -> bool:
    """Whether every job has ended."""
    return {status for (status,) in server.jobs().values()} <= {"SUCCESS", "ERROR"}


def meet(server: Server, workers: Workers, number: int) -> None:
    """Check that this number of the workers' threads run at the same time."""
    meeting = {server.enqueue("meet", number) for _ in range(number)}
    wait_until(lambda: all(server.jobs()[job] == ("SUCCESS",) for job in meeting), "all threads meet", 20)
    (workers.directory / "witness.jsonl.meeting").unlink()


@dataclass
class Scene:
    """What became of three workers and of their jobs."""

    witness: Witness
    rows: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    groups: dict[str, list[int]] = field(default_factory=dict)
    threads: list[int] = field(default_factory=list)
    exit_codes: dict[str, int] = field(default_factory=dict)
    said: str = ""
    ended_in_seconds: float = 0.0
    interrupted: tuple[Any, ...] = ()


@play
@pytest.mark.postgresql
def outage(workers: Workers) -> Scene:
    """Stop the database while one worker is busy, one is asked to end, and one has not started yet."""
    with own_server() as server:
        return away(server, workers)


@pytest.fixture
def scene(outcomes: dict[str, Any]) -> Scene:
    """Return what became of them."""
    return outcomes["outage"].result()


def away(server: Server, workers: Workers) -> Scene:
    seen = Scene(workers.witness)
    lasting = workers.start(
        "--queues", "default", database=server.entry(), LEASE_SECONDS=10, HEARTBEAT_SECONDS=1, MIN_WORKERS=THREADS, MAX_WORKERS=THREADS
    )
    ending = workers.start("--queues", "ending", database=server.entry(), SHUTDOWN_GRACE_PERIOD_SECONDS=1).ready()
    seen.groups["through"] = [server.enqueue("work", OUTAGE_SECONDS + 6), server.enqueue("awork", OUTAGE_SECONDS + 6)]
    seen.groups["end in it"] = [server.enqueue("work", 4), server.enqueue("awork", 4)]
    seen.groups["fail in it"] = [server.enqueue("late_failure", 4)]
    interrupted = server.enqueue("wait", 60, queue="ending")
    begun = {interrupted, *seen.groups["through"], *seen.groups["end in it"]}
    wait_until(lambda: begun <= set(seen.witness.starts()), "the jobs run", 30)
    seen.groups["wait"] = [server.enqueue("work", 0.05) for _ in range(20)]
    seen.groups["start"] = [server.enqueue("work", 0.05, queue="starting")]
    seen.threads.append(thread_count(lasting.pid))
    server.stop()
    down = time.monotonic()
    starting = workers.start("--queues", "starting", database=server.entry())
    seen.exit_codes["ending"] = ending.stop(15)
    seen.ended_in_seconds = time.monotonic() - down
    wait_until(lambda: "cannot reach the database" in starting.text, "the worker says what is wrong")
    wait_until(lambda: time.monotonic() - down > OUTAGE_SECONDS, "the outage has lasted long enough", OUTAGE_SECONDS + 1)
    assert seen.witness.count("end", seen.groups["end in it"][0]) == 1, "a job ended while there was no database"
    server.start()
    seen.interrupted = server.jobs("status, lease_owner <> ''")[interrupted]
    seen.groups["afterwards"] = [server.enqueue("work", 0.05)]
    wait_until(lambda: server.jobs()[seen.groups["afterwards"][0]] == ("SUCCESS",), "a job enqueued afterwards runs", 10)
    heir = workers.start("--queues", "ending", database=server.entry(), SHUTDOWN_GRACE_PERIOD_SECONDS=0)
    wait_until(lambda: seen.witness.count("start", interrupted) == 2, "another worker recovers the job of the one that ended", 15)
    heir.stop()
    server.run("DELETE FROM jobqueue_job WHERE queue = 'ending'")
    wait_until(lambda: ended(server), "every job is settled", 25)
    seen.rows = server.jobs("status, attempt, crashes, message")
    meet(server, workers, THREADS)
    seen.threads.append(thread_count(lasting.pid))
    seen.exit_codes |= {"lasting": lasting.stop(), "starting": starting.stop()}
    seen.said = lasting.text_without_failures
    return seen


def test_an_outage_of_20_s_loses_no_job(scene: Scene) -> None:
    assert [scene.rows[job][0] for job in scene.groups["fail in it"]] == ["ERROR"]
    for name in ("through", "end in it", "wait", "start", "afterwards"):
        assert {scene.rows[job][0] for job in scene.groups[name]} == {"SUCCESS"}, name


def test_nothing_ran_twice_in_the_outage_but_for_counted_recoveries(scene: Scene) -> None:
    starts = scene.witness.starts()
    for job, (_, _, crashes, _) in scene.rows.items():
        assert starts[job] == 1 + crashes, f"job {job} ran {starts[job]} times with {crashes} counted recoveries"
    for name in ("wait", "start", "afterwards"):
        assert {scene.rows[job][2] for job in scene.groups[name]} == {0}, name


def test_the_worker_lives_through_the_outage_with_all_of_its_threads(scene: Scene) -> None:
    # But for those of the duties: who leads them before the outage need not lead them afterwards.
    led = len(builtin(lambda: None, lambda lost: None, lambda: 0.0))
    before, after = scene.threads  # a slot's thread starts when it is needed
    assert before - led <= after <= before + led + THREADS
    assert scene.exit_codes["lasting"] == 0


def test_the_log_of_an_outage_is_bounded(scene: Scene) -> None:
    assert len([line for line in scene.said.splitlines() if "Job " not in line]) < 40
    assert "Traceback" not in scene.said


def test_sigterm_during_an_outage_ends_the_process_within_its_grace(scene: Scene) -> None:
    assert scene.exit_codes["ending"] == 1, "an outcome that could not be written is no clean end"
    assert scene.ended_in_seconds < 12
    assert scene.interrupted == ("RUNNING", True), "its lease runs out, and it is recovered like any other"


def test_a_worker_starts_while_the_database_is_away_and_works_when_it_comes(scene: Scene) -> None:
    assert scene.exit_codes["starting"] == 0


def test_sessions_ended_by_the_server_affect_no_job(empty: Server, workers: Workers) -> None:
    server, witness = empty, workers.witness
    worker = workers.start(database=server.entry(CONN_MAX_AGE=None), MIN_WORKERS=THREADS, MAX_WORKERS=THREADS).ready()
    long = server.enqueue("work", 4)
    wait_until(lambda: long in witness.starts(), "the job runs")
    jobs = [server.enqueue("write", f"row {number}") for number in range(10)]
    for number in range(6):
        server.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        jobs.append(server.enqueue("work", 0.01))
        wait_until(lambda job=jobs[-1]: server.jobs()[job] == ("SUCCESS",), f"the job after cut {number + 1} runs", 8)  # type: ignore[misc]
    wait_until(lambda: server.jobs()[long] == ("SUCCESS",), "the long job ends")
    assert witness.starts()[long] == 1
    server.restart()
    last = server.enqueue("work", 0.01)
    wait_until(lambda: server.jobs()[last] == ("SUCCESS",), "the job after the restart runs", 8)
    meet(server, workers, THREADS)
    assert worker.stop() == 0


@at_once
@pytest.mark.postgresql
def test_a_silent_network_neither_hangs_the_end_nor_outlasts_its_return(workers: Workers) -> None:
    with own_server() as server:
        silence(server, workers)


def silence(server: Server, workers: Workers) -> None:
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


@pytest.mark.session  # whose limits a pooler does not pass on
def test_strict_limits_on_sessions_and_a_small_pool_lose_nothing(empty: Server, workers: Workers) -> None:
    """jobqueue keeps no transaction open, and its own connections do not come from the project's pool."""
    server = empty
    limits = "-c idle_in_transaction_session_timeout=1000 -c statement_timeout=1500 -c lock_timeout=500"
    pooled = {"pool": {"min_size": 1, "max_size": 2, "timeout": 1}}
    strict = workers.start("--queues", "strict", database=server.entry(OPTIONS={"options": limits})).ready()
    small = workers.start("--queues", "small", database=server.entry(OPTIONS=pooled), MIN_WORKERS=4, MAX_WORKERS=4).ready()
    jobs = [server.enqueue("work", 4, queue="strict"), *(server.enqueue("hold_connection", 1.5, queue="small") for _ in range(8))]
    ages: list[float] = []

    def all_ended() -> bool:
        ages.append(server.oldest_transaction_seconds())
        return ended(server)

    wait_until(all_ended, "every job is settled", 30)
    rows = server.jobs("status, attempt, message")
    assert rows[jobs[0]] == ("SUCCESS", 1, "")
    assert {attempt for _, attempt, _ in rows.values()} == {1}
    assert max(ages) < 1
    for job in jobs[1:]:
        status, _, message = rows[job]
        assert status == "SUCCESS" or re.search("pool|timeout|connection", message, re.IGNORECASE), (
            "only the task itself may miss a connection"
        )
    assert (strict.stop(), small.stop()) == (0, 0)


def thread_count(pid: int) -> int:
    """Return how many threads a process has."""
    return len(list(Path(f"/proc/{pid}/task").iterdir()))
