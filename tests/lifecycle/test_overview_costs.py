"""The cost of queries for lines, queues and the reason of a wait, with a large backlog: some hundred pages, with and without statistics."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from jobqueue.db import open_jobs as open_jobs_sql
from jobqueue.db.open_jobs import OPEN
from jobqueue.insight import targets as module
from jobqueue.insight.queues import queue_states
from jobqueue.insight.targets import target_summaries
from jobqueue.insight.why import why_waiting
from jobqueue.models import Job
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db
ROWS = 100_000
INSERT = (
    "INSERT INTO jobqueue_job (task, queue, tenant, target, status, waiting_for, priority)"
    " SELECT 'tests.tasks.add', 'default', '', {target}, '{status}', '{waiting}', n %% 3 FROM generate_series(1, %s) AS n"
)


def fill(target: str, status: str, waiting: str = "", rows: int = ROWS) -> None:
    with connection.cursor() as cursor:
        cursor.execute(INSERT.format(target=target, status=status, waiting=waiting), [rows])


@pytest.fixture(params=["never analyzed", "analyzed"])
def crowd(request: pytest.FixtureRequest) -> None:
    """Fill the table: 100,000 parked behind two targets, half of it in ERROR and PAUSED, and queued without and with a target."""
    JobFactory(target="busy", running=True)
    fill("CASE n %% 2 WHEN 0 THEN 'busy' ELSE 'stuck' END", "PENDING", "target")
    fill("CASE n %% 2 WHEN 0 THEN 'stuck' ELSE '' END", "ERROR", rows=ROWS // 2)
    fill("CASE n %% 2 WHEN 0 THEN 'stuck' ELSE '' END", "PAUSED", rows=ROWS // 4)
    fill("''", "QUEUED", rows=ROWS // 2)
    fill("CASE WHEN n <= 5000 THEN 'many:' || n ELSE 'full' END", "QUEUED", rows=10_000)
    if request.param == "analyzed":
        connection.cursor().execute("ANALYZE jobqueue_job")


def sent_by(call: Callable[[], Any]) -> list[tuple[str, Any]]:
    """Run `call` and return every statement that it sent to read rows, with its parameters."""
    sent: list[tuple[str, Any]] = []

    def remember(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        sent.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(remember):
        call()
    return [(sql, params) for sql, params in sent if "SELECT" in sql]


def pages(call: Callable[[], Any]) -> int:
    """Return how many pages the statements of a call touch, each run once more."""
    return sum(_pages(sql, params) for sql, params in sent_by(call))


def _pages(sql: str, params: Any) -> int:
    *settings, last = sql.split("; ")
    with connection.cursor() as cursor:
        for setting in settings:
            cursor.execute(setting)
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {last}", params)
        found = cursor.fetchone()[0]
        cursor.execute("RESET enable_sort; RESET enable_incremental_sort")
    plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.mark.postgresql
@pytest.mark.slow
def test_queries_are_cheap_in_any_backlog(crowd: None, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Job.objects.order_by("-pk")
    waiting = {
        "parked behind a busy target": jobs.filter(target="busy", status="PENDING").first(),
        "parked behind a stuck target": jobs.filter(target="stuck", status="PENDING").first(),
        "queued, and not the first of its target": jobs.filter(target="full").first(),
        "queued without a target": jobs.filter(target="", status="QUEUED").first(),
    }
    costs = {name: pages(lambda job=job: why_waiting(job)) for name, job in waiting.items()}
    assert max(costs.values()) < 400, costs

    # A search reads a limited number of names; any other query is bounded by its budget of entries and the number of lines.
    assert pages(lambda: target_summaries(search="stuck")) < 10 * module.MAX_SEARCHED
    monkeypatch.setattr(module, "BUDGET", 1000)
    monkeypatch.setattr(module, "MAX_TARGETS", 100)
    seen = {"lines": pages(lambda: target_summaries(limit=100)), "queues": pages(queue_states)}
    assert max(seen.values()) < 7000, seen


@pytest.mark.postgresql
@pytest.mark.slow
def test_open_jobs_are_searched_in_a_bounded_part_of_each_index(crowd: None) -> None:
    database = Job.objects.database
    for wanted in ({"queue": ["mail"]}, {"task": ["a.b", "c.d"]}, {"tenant": ["acme"], "queue": ["mail"]}):
        cost = pages(lambda wanted=wanted: open_jobs_sql.open_jobs(database, [*OPEN], 2**62, wanted, 1000))
        assert cost < 8000, (wanted, cost)
    assert open_jobs_sql.open_jobs(database, [*OPEN], 2**62, {"queue": ["mail"]}, 1000) == ([], True)


@pytest.mark.postgresql
@pytest.mark.slow
def test_what_is_found_in_the_crowd_is_right(crowd: None) -> None:
    found = {line.target: line for line in target_summaries(limit=10)}
    assert next(iter(found)) == "stuck"
    stuck, busy = found["stuck"], found["busy"]
    assert (stuck.holder_status in ("PAUSED", "ERROR"), stuck.waiting_is_capped, busy.holder_status) == (True, True, "RUNNING")
    [default] = queue_states()
    assert (default.queued, default.running) == (10_000, 1)


@pytest.mark.sqlite
def test_on_sqlite_every_query_reads_an_index_in_its_order() -> None:
    waiting = [JobFactory(target="busy", **{trait: True}) for trait in ("running", "paused", "waiting_for_target", "queued")]
    steps: list[str] = []
    looks = [lambda job=job: why_waiting(job) for job in waiting[2:]]
    looks.append(lambda: open_jobs_sql.open_jobs(Job.objects.database, [*OPEN], 2**62, {"queue": ["mail"]}, 10))
    for call in (
        target_summaries,
        lambda: target_summaries(search="bus", tenant=""),
        lambda: target_summaries(search="bus"),
        queue_states,
        *looks,
    ):
        for sql, params in sent_by(call):
            if 'FROM "jobqueue_queue"' in sql:  # a small table, which is sorted
                continue
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN QUERY PLAN {sql}", params)
                steps += [row[3] for row in cursor.fetchall()]
    reads = [step for step in steps if re.match("(SEARCH|SCAN) (j|p|jobqueue_job)\\b", step)]
    assert len(reads) > 30
    assert {step for step in reads if "INDEX" not in step and "PRIMARY KEY" not in step} == set()
    hops = [step for step in reads if step.startswith("SEARCH p ")]
    assert {step for step in hops if not re.search(r"\(tenant,\w+\)>\(|tenant=\?", step)} == set(), (
        "it would walk over all that a tenant has"
    )
    assert {step for step in steps if "RIGHT PART OF ORDER BY" in step or step.endswith("FOR ORDER BY")} == set()
