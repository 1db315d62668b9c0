"""The hot statements use their indexes on a table of 100,000 jobs, whatever the planner knows of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from django.db import connection

from jobqueue.db import Lease, Mark, Success
from jobqueue.db.base import Database
from jobqueue.db.postgresql import PostgreSQL
from jobqueue.db.sqlite import SQLite

ROWS = 100_000
# Of each hundred jobs: how many are queued; two are pending, one runs, and the others have ended.
MIXES = {"mostly ended": 12, "mostly queued": 90, "hardly any queued": 0}
STATISTICS = ("never analyzed", "analyzed while empty", "analyzed")
COLUMNS = "task, queue, priority, status, waiting_for, run_at, lease_owner, lease_token, lease_expires_at, heartbeat_at, finished_at"
NOTE = "too late"


class Table(NamedTuple):
    """One table like the jobs' own, filled, and the statements bound to it."""

    database: Database
    leases: list[Lease]


def select_of_jobs(numbers: str, now: str, text: str, queued: int) -> str:
    """Return a select of `ROWS` jobs from the numbers `n`, spread evenly over queues, priorities and states."""
    place = "n %% 100"
    status = (
        f"CASE WHEN {place} < {queued} THEN 'QUEUED' WHEN {place} < 97 THEN CASE n %% 10 WHEN 0 THEN 'ERROR' WHEN 1 THEN 'CANCELED'"
        " ELSE 'SUCCESS' END WHEN n %% 100 = 99 THEN 'RUNNING' ELSE 'PENDING' END"
    )
    return (
        "SELECT 'tests.tasks.add', CASE n %% 7 WHEN 0 THEN 'mail' WHEN 1 THEN 'reports' ELSE 'default' END, n %% 3, status,"
        f" CASE status WHEN 'PENDING' THEN 'time' ELSE '' END, CASE status WHEN 'PENDING' THEN {now} END,"
        f" CASE status WHEN 'RUNNING' THEN 'worker-1' ELSE '' END, 1, CASE status WHEN 'RUNNING' THEN {now} END,"
        f" CASE status WHEN 'RUNNING' THEN {now} END, CASE WHEN status IN ('SUCCESS', 'ERROR', 'CANCELED') THEN {now} END"
        f" FROM (SELECT n, {text.format(status)} AS status FROM {numbers}) AS jobs"
    )


@pytest.fixture(scope="module", params=[(mix, known) for mix in MIXES for known in STATISTICS], ids=" and ".join)
def table(request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: Any) -> Iterator[Table]:
    """Make a table like that of the jobs, with its indexes and without autovacuum, and fill it."""
    mix, known = request.param
    with django_db_blocker.unblock():
        if connection.vendor != "postgresql":
            pytest.skip("it needs what only PostgreSQL has")
        database = PostgreSQL("default", "plans_job")
        database.rows("DROP TABLE IF EXISTS plans_job")
        database.rows("CREATE TABLE plans_job (LIKE jobqueue_job INCLUDING ALL) WITH (autovacuum_enabled = off)")
        if known == "analyzed while empty":
            database.rows("ANALYZE plans_job")
        jobs = select_of_jobs(f"generate_series(1, {ROWS}) AS n", "now()", "{}", MIXES[mix])
        database.rows(f"INSERT INTO plans_job ({COLUMNS}) {jobs}")
        if known == "analyzed":
            database.rows("ANALYZE plans_job")
        ids = database.rows("SELECT id FROM plans_job WHERE status = 'RUNNING' ORDER BY id")
        yield Table(database, [Lease(row[0], 1) for row in ids])
        database.rows("DROP TABLE plans_job")


def plans_of(call: Callable[[], Any], prefix: str) -> list[Any]:
    """Let `call` run and return the plan of every statement with a plan that it sent; nothing of it stays written."""
    sent: list[tuple[str, Any]] = []

    def remember(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith(("UPDATE", "SELECT", "INSERT", "WITH")):
            sent.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(remember):
        call()
    assert sent, "no statement was sent"
    plans = []
    for sql, params in sent:
        with connection.cursor() as cursor:
            cursor.execute(f"{prefix} {sql}", params)
            plans.append(cursor.fetchall())
    return plans


def nodes_of(call: Callable[[], Any]) -> list[dict[str, Any]]:
    """Return every node of the plans of what `call` sends to PostgreSQL."""
    nodes: list[dict[str, Any]] = []
    for rows in plans_of(call, "EXPLAIN (FORMAT JSON)"):
        found = rows[0][0]
        waiting = [(json.loads(found) if isinstance(found, str) else found)[0]["Plan"]]
        while waiting:
            node = waiting.pop()
            nodes.append(node)
            waiting += node.get("Plans", [])
    return nodes


def kinds(nodes: list[dict[str, Any]]) -> set[str]:
    return {node["Node Type"] for node in nodes}


def indexes(nodes: list[dict[str, Any]]) -> set[str]:
    return {node["Index Name"] for node in nodes if "Index Name" in node}


CLAIMS = {
    "all queues": ((), None, {"plans_job_claim_rank_id_idx"}),
    "all queues behind the cursor": ((), (-1, ROWS // 2), {"plans_job_claim_rank_id_idx"}),
    "one queue": (("mail",), None, {"plans_job_queue_claim_rank_id_idx"}),
    "one queue behind the cursor": (("mail",), (-1, ROWS // 2), {"plans_job_queue_claim_rank_id_idx"}),
    "a queue without jobs": (("nobody",), None, {"plans_job_queue_claim_rank_id_idx"}),
    "several queues": (("mail", "reports", "nobody"), None, {"plans_job_queue_claim_rank_id_idx"}),
    "several queues behind the cursor": (("mail", "reports"), (-1, ROWS // 2), {"plans_job_queue_claim_rank_id_idx"}),
}


@pytest.mark.django_db
@pytest.mark.parametrize("limit", [1, 8, 500])
@pytest.mark.parametrize("which", CLAIMS)
def test_a_claim_walks_its_index_in_order(table: Table, which: str, limit: int) -> None:
    queues, after, used = CLAIMS[which]
    nodes = nodes_of(lambda: table.database.claim("worker-2", queues, limit, 30, after))
    assert "Seq Scan" not in kinds(nodes)
    assert indexes(nodes) == used | {"plans_job_pkey"}
    sorts = [node for node in nodes if node["Node Type"] in ("Sort", "Incremental Sort")]
    # Several queues may sort the few best of each, never what is queued.
    assert all(len(queues) > 1 and node["Plan Rows"] <= limit * len(queues) for node in sorts)
    assert "Bitmap Heap Scan" not in kinds(nodes)


OWNERS_WRITES: dict[str, Callable[[Database, list[Lease]], Any]] = {
    "renew": lambda database, leases: database.renew(leases, 30),
    "mark": lambda database, leases: database.mark([Mark(*lease, 0.3, 50, "half", None) for lease in leases]),
    "succeed": lambda database, leases: database.succeed([Success(*lease, "null", 0.1, 0.0, None, None) for lease in leases], NOTE),
}


@pytest.mark.django_db
@pytest.mark.parametrize("number", [1, 8, 1000])
@pytest.mark.parametrize("write", OWNERS_WRITES)
def test_an_owner_s_write_finds_its_rows_by_primary_key_alone(table: Table, write: str, number: int) -> None:
    nodes = nodes_of(lambda: OWNERS_WRITES[write](table.database, table.leases[:number]))
    assert "Seq Scan" not in kinds(nodes)
    assert indexes(nodes) == {"plans_job_pkey"}


@pytest.mark.django_db
def test_the_sql_of_the_tests_really_moves_rows(table: Table) -> None:
    leases = table.leases[:8]
    assert len(table.database.renew(leases, 30)) == 8
    assert len(OWNERS_WRITES["succeed"](table.database, leases)) == 8
