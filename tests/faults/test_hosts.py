"""Two hosts with a worker each and one with the database: one is disconnected and reconnected (PostgreSQL, network namespaces)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults.harness import Workers, wait_until
from tests.faults.hosts import FarServer, Hosts, can_be_made
from tests.faults.witness import Event

pytestmark = [pytest.mark.faults, pytest.mark.slow(seconds=30), pytest.mark.postgresql, pytest.mark.django_db]
LEASE_SECONDS = 4
TAKEN_OVER_SECONDS = LEASE_SECONDS + 4  # the lease of the duty that recovers jobs, a check, a run
RUN_SECONDS = 14
SETTINGS: dict[str, Any] = {"LEASE_SECONDS": LEASE_SECONDS, "HEARTBEAT_SECONDS": 1}


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    if not can_be_made():
        pytest.skip("needs root, iproute2 and network namespaces")
    made = Hosts("left", "right")
    try:
        yield made
    finally:
        made.remove()


@pytest.fixture
def server(hosts: Hosts, django_db_setup: Any) -> Iterator[FarServer]:
    made = FarServer(hosts)
    try:
        made.migrate()
        yield made
    finally:
        made.remove()


def test_a_disconnected_host_loses_its_leases_and_continues_when_the_network_is_back(
    workers: Workers, hosts: Hosts, server: FarServer
) -> None:
    def start(name: str) -> Any:
        return workers.start("--queues", "default", database=server.entry_for(name), prefix=hosts.on(name), **SETTINGS).ready()

    def events(what: str, job: int) -> list[Event]:
        return [event for event in workers.witness.events if (event.what, event.job) == (what, job)]

    def is_over(job: int) -> bool:
        return server.jobs()[job] == ("SUCCESS",)

    left = start("left")
    first = server.enqueue("wait", RUN_SECONDS, target="line")
    wait_until(lambda: events("start", first), "the first host runs it")
    right = start("right")
    second = server.enqueue("wait", 1, target="line")
    token = server.jobs("lease_token")[first][0]

    hosts.cut("left")
    cut = time.monotonic()
    wait_until(lambda: len(events("start", first)) == 2, "the second host takes it over", 2 * TAKEN_OVER_SECONDS)
    assert events("start", first)[1].at - cut < TAKEN_OVER_SECONDS
    assert [event.pid for event in events("start", first)] == [left.pid, right.pid]
    assert server.jobs("lease_token")[first][0] > token, "the token distinguishes the new run from the old one"

    hosts.heal("left")
    wait_until(lambda: [event.pid for event in events("end", first)][:1] == [left.pid], "the first host stops its run", 20)
    assert events("end", first)[0].at - events("start", first)[0].at < RUN_SECONDS, "it was stopped, not ended"
    wait_until(lambda: "the lease was lost" in left.text, "it says so")
    wait_until(lambda: is_over(first) and is_over(second), "both jobs end", 40)

    rows = server.jobs("attempt, crashes, lease_token")
    assert rows[first] == (2, 1, token + 1)
    assert rows[second][:2] == (1, 0)
    # Beyond the one run that lost its lease, nothing of the line ran beside anything else.
    [began], [ended] = events("start", second), [event for event in events("end", first) if event.pid == right.pid]
    assert began.at >= ended.at
    assert server.run("SELECT count(*) FROM jobqueue_jobevent WHERE name = 'job.completed'") == [(2,)]

    assert right.stop() == 0
    last = server.enqueue("wait", 0.1, target="line")
    wait_until(lambda: is_over(last), "the first host continues", 15)
    assert [event.pid for event in events("end", last)] == [left.pid]
    assert left.stop() == 0
