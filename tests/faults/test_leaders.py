"""Never two acting leaders: the leader of a duty is killed, stopped or disconnected; another worker takes over in time (PostgreSQL).

The evidence is a log of terms: a row for each write that succeeded, and a row, by a connection of its own, for each attempt.
"""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults.duties import TABLES
from tests.faults.harness import WorkerProcess, Workers, wait_until
from tests.faults.server import Proxy, Server

pytestmark = [pytest.mark.faults, pytest.mark.slow(seconds=69), pytest.mark.postgresql, pytest.mark.django_db]
SHORT: dict[str, Any] = {"DUTY_LEASE_SECONDS": 2, "DUTY_HEARTBEAT_SECONDS": 0.4}


@pytest.fixture(scope="module")
def server(django_db_setup: Any) -> Iterator[Server]:
    """Provide the server of this module."""
    made = Server()
    try:
        made.migrate()
        for table in TABLES:
            made.run(table)
        yield made
    finally:
        made.remove()


class Scene:
    """Workers that lead the duty by turns."""

    def __init__(self, server: Server, workers: Workers, hold_seconds: float = 0.0) -> None:
        server.run("TRUNCATE term_acts, term_writes, jobqueue_backgroundjoblease")
        self.server, self._workers, self._hold = server, workers, hold_seconds

    def start(self, port: int | None = None, **settings: Any) -> WorkerProcess:
        dsn = f"host=127.0.0.1 port={self.server.port} user=postgres dbname=postgres"
        environment = {"FAULTS_TERM_LOG": str(self._hold), "FAULTS_TERM_DSN": dsn}
        entry = self.server.entry(port)
        return self._workers.start(database=entry, environment=environment, **{**SHORT, **settings})

    def lead(self, port: int | None = None, **settings: Any) -> WorkerProcess:
        """Start a worker and wait until it leads."""
        worker = self.start(port, **settings)
        wait_until(lambda: self.writes_of(worker) > 2, "it leads", 30)
        return worker

    def writes_of(self, worker: WorkerProcess) -> int:
        return int(self.server.run("SELECT count(*) FROM term_writes WHERE pid = %s", [worker.pid])[0][0])

    def acts_of(self, worker: WorkerProcess) -> int:
        return int(self.server.run("SELECT count(*) FROM term_acts WHERE pid = %s", [worker.pid])[0][0])

    def judge(self) -> None:
        """Check that terms follow each other: no term writes after the next one has started to, and each belongs to one process."""
        # One whose lease was released in the middle of it names no term. It is in its own all the same: who takes over waits for it.
        rows = self.server.run("SELECT pid, holder, acquired_at FROM term_writes WHERE acquired_at IS NOT NULL ORDER BY id")
        terms = [term for term, _ in itertools.groupby(rows, key=lambda row: row[1:])]
        assert len(terms) == len(set(terms)), "a term wrote again after another had begun"
        assert [term[1] for term in terms] == sorted(term[1] for term in terms)
        assert len({(row[0], row[1]) for row in rows}) == len({row[1] for row in rows}), "one identity, one process"


@pytest.fixture
def scene(server: Server, workers: Workers) -> Scene:
    return Scene(server, workers)


def test_a_killed_leader_is_replaced_within_its_lease_and_one_check(scene: Scene) -> None:
    defaults = {"DUTY_LEASE_SECONDS": 10, "DUTY_HEARTBEAT_SECONDS": 2}
    first = scene.lead(**defaults)
    second = scene.start(**defaults).ready()
    first.kill()
    killed = time.monotonic()
    wait_until(lambda: scene.writes_of(second), "the other leads", 20)
    assert time.monotonic() - killed <= 15.0 + 1.0  # the second is for starting to act and for being seen
    scene.judge()


def test_a_leader_that_ends_in_order_is_followed_at_once(scene: Scene) -> None:
    defaults = {"DUTY_LEASE_SECONDS": 10, "DUTY_HEARTBEAT_SECONDS": 2}
    first = scene.lead(**defaults)
    second = scene.start(**defaults).ready()
    assert first.stop() == 0
    # Far less than the 5 s after which it would poll.
    wait_until(lambda: scene.writes_of(second), "the other leads", 2.5)
    scene.judge()


def test_a_leader_that_was_stopped_past_its_lease_does_no_write_when_it_wakes(scene: Scene) -> None:
    first = scene.lead()
    second = scene.start().ready()
    first.send(signal.SIGSTOP)
    wait_until(lambda: scene.writes_of(second) > 5, "the other leads", 20)
    before = scene.writes_of(first)
    first.send(signal.SIGCONT)
    wait_until(lambda: "no longer leads" in first.text or "lost a duty" in first.text, "the first notices", 15)
    led = scene.writes_of(second)
    wait_until(lambda: scene.writes_of(second) > led + 20, "the other worker continues", 20)
    assert scene.writes_of(first) == before
    scene.judge()
    assert (first.stop(), second.stop()) == (0, 0)


def test_a_leader_that_is_stopped_during_a_write_keeps_no_worker_waiting(server: Server, workers: Workers) -> None:
    scene = Scene(server, workers, hold_seconds=0.3)
    first = scene.lead()
    second = scene.start().ready()
    inside = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'"
    wait_until(lambda: server.run(inside)[0][0], "the first is in the middle of a write")
    first.send(signal.SIGSTOP)
    before = scene.writes_of(first)
    # Its lease, one check, and 5 s until the server ends its transaction.
    wait_until(lambda: scene.writes_of(second), "the other leads", 15)
    first.send(signal.SIGCONT)
    led = scene.writes_of(second)
    wait_until(lambda: scene.writes_of(second) > led + 3, "the other worker continues", 20)
    assert scene.writes_of(first) == before, "what it wrote in the transaction that was ended is undone"
    scene.judge()


def test_a_leader_whose_network_fails_does_no_write_when_it_reconnects(scene: Scene) -> None:
    proxy = Proxy(scene.server.port)
    try:
        first = scene.lead(proxy.port)
        second = scene.start().ready()
        proxy.fall_silent()
        before = scene.writes_of(first)
        wait_until(lambda: scene.writes_of(second) > 5, "the other leads", 30)
        proxy.speak()
        led = scene.writes_of(second)
        wait_until(lambda: scene.writes_of(second) > led + 20, "the other worker continues", 20)
        assert scene.writes_of(first) <= before + 1, "one that was under way when the network fell silent"
        scene.judge()
    finally:
        proxy.close()


def test_two_leaders_by_force_write_by_turns_and_never_in_each_others_term(scene: Scene) -> None:
    first, second = scene.lead(), scene.start().ready()
    for _ in range(6):
        before = scene.acts_of(first) + scene.acts_of(second)
        scene.server.run(
            "UPDATE jobqueue_backgroundjoblease SET held_by_worker_id = '', lease_acquired_at = NULL, heartbeat_at = NULL"
            " WHERE job_name = 'term_log'"
        )
        scene.server.run("NOTIFY jobqueue, 'duties'")
        wait_until(lambda before=before: scene.acts_of(first) + scene.acts_of(second) > before + 5, "one of the workers acts", 15)
    scene.judge()
    assert (first.stop(), second.stop()) == (0, 0)
