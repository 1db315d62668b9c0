"""No page of the admin and no list of the REST API reads a whole table, or sorts all of its rows.

The tables have the rows of ``bench/page_rows.py`` and statistics. Each statement that a page sends is explained.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from bench import page_rows, pages
from jobqueue.core import recent
from tests.db.test_plans_targets import walk

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
JOBS = 20_000
BIG = ("jobqueue_job", "jobqueue_jobevent", "jobqueue_joblog")
# A page may read this many rows of one of them: fewer than half, and all that are counted up to a limit.
MOST = JOBS // 2 + 1000
WINDOW = JOBS // 10


@pytest.mark.slow
def test_no_page_reads_or_sorts_a_whole_table(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("admin.listing", "insight.search"):
        monkeypatch.setattr(f"jobqueue.{module}.WINDOW", WINDOW)
    with connection.cursor() as cursor:
        page_rows.fill(cursor.execute, JOBS, samples=0.01)
        cursor.execute("ANALYZE")
        # A VACUUM would do so: then the planner knows that an index alone is enough.
        cursor.execute("UPDATE pg_class SET relallvisible = relpages WHERE relname LIKE 'jobqueue%'")
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("operator"))
    wrong: dict[str, list[str]] = {}
    seen: set[str] = set()
    # Longer ranges read only more samples.
    for name, url in ((name, url) for name, url in pages.addresses(pages.known()).items() if not url.endswith(("24h", "14d"))):
        recent.forget()
        with CaptureQueriesContext(connection) as queries:
            assert client.get(url, follow=True).status_code in (200, 503), name
        for sql in (query["sql"] for query in queries):
            if (kind := re.sub(r"\d+", "0", sql)) not in seen and any(re.search(rf"\b{table}\b", sql) for table in BIG):
                seen.add(kind)
                if faults := [*faults_of(sql)]:
                    wrong.setdefault(name, []).append(f"{faults}: {sql[:600]}")
    assert not wrong, "\n".join(f"{name}: {fault}" for name, faults in wrong.items() for fault in faults)
    assert len(seen) > 100  # not vacuous


def faults_of(sql: str) -> Iterator[str]:
    """Yield what is wrong with the plan of a statement, run once more."""
    *settings, last = sql.split("; ")
    if not last.startswith(("SELECT", "WITH")):
        return
    with connection.cursor() as cursor:
        cursor.execute("SAVEPOINT explained")
        for setting in settings:
            cursor.execute(setting)
        cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {last}")
        [(found,)] = cursor.fetchall()
        cursor.execute("ROLLBACK TO SAVEPOINT explained")
    for node in walk(found[0]["Plan"]):
        if node.get("Relation Name") in BIG and node["Node Type"] == "Seq Scan":
            yield f"a scan of all of {node['Relation Name']}"
        elif node.get("Relation Name") in BIG and (number := rows_read(node)) > MOST:
            yield f"{number} rows of {node['Relation Name']} read"
        elif "Sort" in node["Node Type"] and (number := rows_read(node["Plans"][0])) > MOST:
            yield f"{number} rows sorted"


def rows_read(node: dict[str, Any]) -> int:
    """Return how many rows a node has read or got."""
    removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return int((node["Actual Rows"] + removed) * node["Actual Loops"])
