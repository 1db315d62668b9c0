"""The hot statements use their indexes on a table of 100,000 jobs, with and without statistics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from django.db import connection

from jobqueue.db import Database, Lease, LeaseHolder, Mark, RunEnd, Scope, claims, run_ends
from jobqueue.db import leases as leases_sql
from jobqueue.db.postgresql import PostgreSQL
from jobqueue.db.sqlite import SQLite

ROWS = 100_000
# Of each hundred jobs: how many are queued; two are pending, one runs, and the rest have ended.
MIXES = {"mostly ended": 12, "mostly queued": 90}
STATISTICS = ("never analyzed", "analyzed while empty", "analyzed", "analyzed before a flood")
TABLES = [(mix, known) for mix in MIXES for known in STATISTICS[:3]] + [("nothing queued", STATISTICS[3])]
# In waves, each with a few jobs of another queue at its end: which makes the index by queue taller, and costlier for the planner.
WAVES = (10, 300, 1_000, 3_000, 10_000, 30_000)
WAVE = "SELECT 'tests.tasks.add', CASE WHEN n > %s - 8 THEN 'mail' ELSE 'default' END FROM generate_series(1, %s) AS n"
COLUMNS = "task, queue, priority, status, waiting_for, run_at, lease_owner, lease_token, lease_expires_at, heartbeat_at, finished_at"
LENDER = LeaseHolder("worker-2", 30.0)


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


@pytest.fixture(scope="module", params=TABLES, ids=" and ".join)
def table(request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: Any) -> Iterator[Table]:
    """Make a table like that of the jobs, with its indexes and without autovacuum, and fill it."""
    assert connection.vendor == "postgresql"
    mix, known = request.param
    with django_db_blocker.unblock():
        database = PostgreSQL("default", "plans_job")
        database.rows("DROP TABLE IF EXISTS plans_job")
        database.rows("CREATE TABLE plans_job (LIKE jobqueue_job INCLUDING ALL) WITH (autovacuum_enabled = off)")
        if known == "analyzed while empty":
            database.rows("ANALYZE plans_job")
        queued = 0 if known == "analyzed before a flood" else MIXES[mix]
        jobs = select_of_jobs(f"generate_series(1, {ROWS}) AS n", "now()", "{}", queued)
        database.rows(f"INSERT INTO plans_job ({COLUMNS}) {jobs}")
        if known == "analyzed":
            database.rows("ANALYZE plans_job")
        if known == "analyzed before a flood":
            database.rows("VACUUM ANALYZE plans_job")
            for size in WAVES:
                database.rows(f"INSERT INTO plans_job (task, queue) {WAVE}", [size, size])
        ids = database.rows("SELECT id FROM plans_job WHERE status = 'RUNNING' ORDER BY id")
        yield Table(database, [Lease(row[0], 1) for row in ids])
        database.rows("DROP TABLE plans_job")


def sent_by(call: Callable[[], Any]) -> list[tuple[str, Any]]:
    """Run `call` and return every statement that it sent to move rows, with its parameters."""
    sent: list[tuple[str, Any]] = []

    def remember(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        sent.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(remember):
        call()
    return [(sql, params) for sql, params in sent if "UPDATE" in sql]


def explained(sql: str, params: Any) -> Any:
    """Return the plan of one statement, run once more to count the rows; settings that are sent in front of it stay in front."""
    *settings, last = sql.split("; ")
    with connection.cursor() as cursor:
        for setting in settings:
            cursor.execute(setting)
        cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {last}", params)
        found = cursor.fetchone()[0]
    return (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]


def nodes_of(call: Callable[[], Any]) -> list[dict[str, Any]]:
    """Return every node of the plan of the one statement that `call` sends to PostgreSQL."""
    [(sql, params)] = sent_by(call)
    nodes: list[dict[str, Any]] = []
    waiting = [explained(sql, params)]
    while waiting:
        node = waiting.pop()
        nodes.append(node)
        waiting += node.get("Plans", [])
    return nodes


def indexes(nodes: list[dict[str, Any]]) -> set[str]:
    return {node["Index Name"] for node in nodes if "Index Name" in node}


BY_RANK, BY_QUEUE, BY_KEY = "plans_job_tenant_claim_rank_id_idx", "plans_job_tenant_queue_claim_rank_id_idx", "plans_job_pkey"
BITMAP = ("Bitmap Heap Scan", "Bitmap Index Scan")
CURSOR = (-1, ROWS // 2)
CLAIMS = {
    "all queues": ((), None, BY_RANK),
    "all queues behind the cursor": ((), CURSOR, BY_RANK),
    "one queue": (("mail",), None, BY_QUEUE),
    "one queue behind the cursor": (("mail",), CURSOR, BY_QUEUE),
    "a queue without jobs": (("nobody",), None, BY_QUEUE),
    "several queues": (("mail", "reports", "nobody"), None, BY_QUEUE),
    "several queues behind the cursor": (("mail", "reports"), CURSOR, BY_QUEUE),
}


@pytest.mark.long  # its tables are large
@pytest.mark.postgresql
@pytest.mark.django_db
@pytest.mark.parametrize("limit", [8, 500])
@pytest.mark.parametrize("which", CLAIMS)
def test_a_claim_reads_no_more_than_it_takes_in_the_order_of_its_index(table: Table, which: str, limit: int) -> None:
    queues, after, index = CLAIMS[which]
    nodes = nodes_of(lambda: claims.claim(table.database, LENDER, Scope("", queues), limit, after))
    assert indexes(nodes) == {index, BY_KEY}
    scans = [node for node in nodes if "Scan" in node["Node Type"] and node["Node Type"] != "CTE Scan"]
    assert {node["Node Type"] for node in scans if node.get("Index Name") != BY_KEY} <= {
        "Index Scan",
        "Index Only Scan",
        "Subquery Scan",
        *BITMAP,
    }
    assert all(node["Index Name"] == BY_KEY for node in nodes if node["Node Type"] == "Bitmap Index Scan")
    # Several queues may sort the few best of each; nothing sorts what it reads from the table.
    assert not [node for node in nodes if "Sort" in node["Node Type"] and "Scan" in node["Plans"][0]["Node Type"]]
    # A bitmap's index scan is left out: it counts the dead entries of the other tests' rolled-back claims, too.
    read = [node["Actual Rows"] * node["Actual Loops"] for node in scans if node["Node Type"] != "Bitmap Index Scan"]
    assert max(read) <= limit * max(len(queues), 1) + 1
    assert all(node.get("Rows Removed by Filter", 0) == 0 for node in scans)


def succeeded(lease: Lease) -> RunEnd:
    values: dict[str, Any] = {"result": "null", "progress": 100, "began_ago": 0.1, "ended_ago": 0.0}
    return RunEnd(*lease, "", False, "SUCCESS", "", "job.completed", **values)


def failed(lease: Lease) -> RunEnd:
    values: dict[str, Any] = {"began_ago": 0.1, "failed": 1, "run_in": 5.0, "message": "ValueError: no", "entry": '{"outcome": "RETRY"}'}
    return RunEnd(*lease, "", True, "PENDING", "time", "job.retrying", data='{"message": "ValueError: no"}', **values)


OWNERS_WRITES: dict[str, Callable[[Database, list[Lease]], Any]] = {
    "renew": lambda database, leases: leases_sql.renew(database, leases, 30),
    "mark": lambda database, leases: leases_sql.mark(database, [Mark(*lease, 0.3, 50, "half", None) for lease in leases]),
    "succeed": lambda database, leases: run_ends.end_runs(database, [succeeded(lease) for lease in leases]),
    "retry": lambda database, leases: run_ends.end_runs(database, [failed(lease) for lease in leases]),
}


@pytest.mark.long  # its tables are large
@pytest.mark.postgresql
@pytest.mark.django_db
@pytest.mark.parametrize("number", [8, 1000])
@pytest.mark.parametrize("write", OWNERS_WRITES)
def test_an_owners_write_finds_its_rows_by_primary_key_alone(table: Table, write: str, number: int) -> None:
    nodes = nodes_of(lambda: OWNERS_WRITES[write](table.database, table.leases[:number]))
    mine = [node for node in nodes if "plans_job" in node.get("Relation Name", node.get("Index Name", ""))]
    assert "Seq Scan" not in {node["Node Type"] for node in mine}
    assert indexes(mine) == {BY_KEY}


@pytest.mark.long  # its tables are large
@pytest.mark.postgresql
@pytest.mark.django_db
def test_the_statements_whose_plans_are_read_do_move_rows(table: Table) -> None:
    leases = table.leases[:8]
    assert [len(OWNERS_WRITES[name](table.database, leases)) for name in ("renew", "mark", "succeed")] == [8, 8, 8]
    assert len(OWNERS_WRITES["retry"](table.database, table.leases[8:16])) == 8


@pytest.mark.sqlite
@pytest.mark.django_db
@pytest.mark.parametrize("analyzed", [False, True], ids=["never analyzed", "analyzed"])
@pytest.mark.parametrize("which", CLAIMS)
def test_a_claim_on_sqlite_walks_its_index_and_sorts_nothing(which: str, analyzed: bool) -> None:
    queues, after, index = CLAIMS[which]
    database = SQLite("default", "jobqueue_job")
    numbers = f"(WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < {ROWS // 5}) SELECT n FROM r)"
    database.rows(f"INSERT INTO jobqueue_job ({COLUMNS}) {select_of_jobs(numbers, database.now, '{}', 12)}")
    if analyzed:
        database.rows("ANALYZE jobqueue_job")
    sql, params = claims.select_candidates(database, "id, claim_rank", Scope("", queues), 8, after)
    steps = [row[3] for row in database.rows(f"EXPLAIN QUERY PLAN {sql}", params)]
    names = {BY_RANK: "jobqueue_job_next", BY_QUEUE: "jobqueue_job_next_in_queue"}
    assert [step for step in steps if f"INDEX {names[index]} " in f"{step} "]
    assert not [step for step in steps if step.startswith("SCAN jobqueue_job") and "INDEX" not in step]
    # Several queues are merged from their indexes; only then are the few best of each sorted.
    assert len(queues) > 1 or not [step for step in steps if "TEMP B-TREE" in step]


@pytest.mark.django_db
def test_the_jobs_table_has_the_partial_indexes_in_claim_order() -> None:
    definitions = {
        "postgresql": "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'jobqueue_job'",
        "sqlite": "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'jobqueue_job'",
    }
    with connection.cursor() as cursor:
        cursor.execute(definitions[connection.vendor])
        found = {name: str(sql).replace('"', "") for name, sql in cursor.fetchall()}
    assert "(tenant, claim_rank, id) WHERE" in found["jobqueue_job_next"]
    assert "(tenant, queue, claim_rank, id) WHERE" in found["jobqueue_job_next_in_queue"]
    assert "(tenant, target, claim_rank, id) WHERE" in found["jobqueue_job_line_queued"]
    assert "(tenant, target, claim_rank, id) WHERE" in found["jobqueue_job_line_parked"]
    assert not [name for name, sql in found.items() if "lease_expires_at" in sql or "heartbeat_at" in sql], "heartbeats must stay heap-only"
