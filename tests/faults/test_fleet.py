"""The statements that many idle workers send: the statements in its log, by the name of the connection that sent them (PostgreSQL)."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults.harness import Workers, wait_until
from tests.faults.server import Server

# A fleet that listens; the budget behind a pooler is another.
pytestmark = [pytest.mark.faults, pytest.mark.slow(seconds=69), pytest.mark.postgresql, pytest.mark.session, pytest.mark.django_db]

SECONDS = 20.0
WORKERS = 20
DEFAULTS: dict[str, Any] = {"LEASE_SECONDS": 30, "HEARTBEAT_SECONDS": 2, "DUTY_LEASE_SECONDS": 10, "DUTY_HEARTBEAT_SECONDS": 2}
# Their few statements come once a minute, in this window or in that: they would say more of the window than of the workers.
EACH_MINUTE = {"jobqueue duty apply_retention", "jobqueue duty deliver_webhooks"}
# A transaction of `collect_metrics` that removes old samples, once a minute. It comes from the connection of all short duties.
REMOVAL = 4
LINE = re.compile(r"^<(?P<name>[^>]*)> .*?(?:statement|execute [^:]*): ", re.MULTILINE)


@pytest.fixture
def server(django_db_setup: Any) -> Iterator[Server]:
    """Provide a server that logs each statement with its sender."""
    made = Server()
    try:
        made.migrate()
        for setting in ("log_statement = 'all'", "log_line_prefix = '<%a> '", "max_connections = 500"):
            made.run(f"ALTER SYSTEM SET {setting}")
        made.restart()
        yield made
    finally:
        made.remove()


def statements(server: Server) -> Counter[str]:
    """Count the statements that were sent so far, by connection name."""
    return Counter(found["name"] for found in LINE.finditer((server.directory / "log").read_text(errors="replace")))


def rates(server: Server) -> dict[str, float]:
    """Return how many statements a second each kind of connection sends, over a while."""
    before, began = statements(server), time.monotonic()
    wait_until(lambda: time.monotonic() - began >= SECONDS, "a while has passed", SECONDS + 5)
    seconds = time.monotonic() - began
    return {name: number / seconds for name, number in (statements(server) - before).items() if name not in EACH_MINUTE}


def test_the_statements_of_twenty_idle_workers(server: Server, workers: Workers) -> None:
    found = {number: idle(server, workers, number) for number in (1, WORKERS)}
    kinds = ("jobqueue short duties", "jobqueue duty ")
    duties = {number: sum(rate for name, rate in each.items() if name.startswith(kinds)) for number, each in found.items()}
    total = {number: sum(each.values()) for number, each in found.items()}
    # Of 2.1 a second that are usual, the question for the work of duties has 1, their renewal 0.5, the poll of the dispatcher 0.2.
    assert total[1] <= 2.2 + REMOVAL / SECONDS, found
    assert total[WORKERS] <= 2 * WORKERS, found
    assert total[WORKERS] <= total[1] + WORKERS, "those that lead nothing have less than 1 each"
    assert 0 < duties[WORKERS] <= 1.2 * duties[1] + REMOVAL / SECONDS, found


def idle(server: Server, workers: Workers, number: int) -> dict[str, float]:
    """Return what this number of idle workers send."""
    for _ in range(number - len(workers._started)):
        workers.start("-v", "0", database=server.entry(), **DEFAULTS)
    wait_until(lambda: server.run("SELECT count(*) FROM jobqueue_worker")[0][0] == number, "every worker shows itself", 120)
    quiet = time.monotonic() + 5.0  # a worker polls closely at first
    wait_until(lambda: time.monotonic() > quiet, "all are idle", 10)
    return rates(server)
