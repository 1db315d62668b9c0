"""A query for ended jobs reads a bounded number of pages, with any number of kept jobs, with and without statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobqueue.core.retention_rules import OUTCOMES, Rules, after
from jobqueue.db import ended_jobs
from jobqueue.models import Job
from jobqueue.retention import apply

pytestmark = pytest.mark.django_db
ROWS = 60_000
DAY = 86_400.0
INSERT = (
    "INSERT INTO jobqueue_job (task, queue, status, finished_at, result) SELECT 'tests.tasks.add', CASE n %% 1000 WHEN 0 THEN 'mail'"
    " ELSE 'audit' END, CASE n %% 3 WHEN 0 THEN 'ERROR' WHEN 1 THEN 'CANCELED' ELSE 'SUCCESS' END, {moment}, {text} FROM {numbers}"
)
RULES = Rules({}, {"mail": dict.fromkeys(OUTCOMES, DAY)})


def fill(moment: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(INSERT.format(moment=moment, text="to_jsonb(repeat('x', 200))", numbers="generate_series(1, %s) AS n"), [ROWS])


def sent_by(call: Callable[[], Any]) -> list[str]:
    """Run `call` and return every statement that it sent to read or lock jobs."""
    with CaptureQueriesContext(connection) as queries:
        call()
    return [one["sql"] for one in queries.captured_queries if "FROM jobqueue_job" in one["sql"]]


def pages(sql: str) -> int:
    """Return how many pages a statement touches, run once more; settings that are sent in front of it stay in front."""
    *settings, last = sql.split("; ")
    with connection.cursor() as cursor:
        for setting in settings:
            cursor.execute(setting)
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {last}")
        plan = cursor.fetchone()[0][0]["Plan"]
        cursor.execute("RESET enable_sort; RESET enable_incremental_sort")
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.mark.postgresql
@pytest.mark.slow
@pytest.mark.parametrize("known", ["never analyzed", "analyzed"])
@pytest.mark.parametrize("moment", ["now() - interval '3 days'", "now() - interval '3 days' + n * interval '1 second'"])
def test_each_query_and_each_lock_reads_a_bounded_number_of_pages(known: str, moment: str) -> None:
    fill(moment)
    if known == "analyzed":
        connection.cursor().execute("ANALYZE jobqueue_job")
    sent = sent_by(lambda: apply.Sweep(Rules(), RULES).run(60))
    looks = [sql for sql in sent if ".finished_at, id LIMIT" in sql]
    locks = [sql for sql in sent if "FOR UPDATE SKIP LOCKED" in sql]
    assert len(looks) > 100
    assert len(locks) > 50
    middle = len(looks) // 2
    assert max(map(pages, [*looks[:3], *looks[middle : middle + 3], *looks[-3:]])) <= 2 * apply.MAX_READ
    assert max(map(pages, [*locks[:3], *locks[-3:]])) <= 50
    assert Job.objects.filter(queue="mail").count() <= 200  # not vacuous: the jobs that the query searched are deleted


@pytest.mark.sqlite
def test_on_sqlite_a_query_reads_the_index_in_its_order() -> None:
    sent: list[str] = []
    found = ended_jobs.ended_before(Job.objects.database, 0.0, None, 1)
    assert not found
    for key, since in ((None, None), (None, 60.0), (("2026-01-01 00:00:00", 1), None)):
        with CaptureQueriesContext(connection) as queries:
            ended_jobs.ended_before(Job.objects.database, 0.0, key, 100, since)
        sent += [one["sql"] for one in queries.captured_queries]
    assert len(sent) == 3
    for sql in sent:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
            plan = " / ".join(row[3] for row in cursor.fetchall())
        assert "USING INDEX jobqueue_job_ended" in plan
        assert "TEMP B-TREE" not in plan


def test_the_walk_finds_what_it_is_for_among_what_is_kept() -> None:
    moment = {"postgresql": "now() - interval '3 days'", "sqlite": "datetime('now', '-3 days')"}[connection.vendor]
    numbers = {
        "postgresql": "generate_series(1, 3000) AS n",
        "sqlite": "(WITH RECURSIVE r(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM r WHERE n < 3000) SELECT n FROM r)",
    }[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(INSERT.format(moment=moment, text="NULL", numbers=numbers).replace("%%", "%"))
    assert apply.Sweep(Rules(), RULES).run(60).deleted == 3
    assert len(list(apply.due(after(OUTCOMES, DAY)))) == 2997
