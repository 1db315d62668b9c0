"""The statements for jobs with a target cost the same with any number of parked, scheduled, failed or paused jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection, transaction

from jobqueue.core.queue_rules import ALL, ServedQueues, parse
from jobqueue.core.targets import Target
from jobqueue.db import LeaseHolder, RunEnd, Scope, claims, run_ends
from jobqueue.db import targets as targets_sql
from jobqueue.db.postgresql import PostgreSQL

TABLE = "lines_job"
LENDER = LeaseHolder("worker-2", 30.0)
MAX_BUFFERS = 1_000
MAX_COMPARED = 1_000
PER_TARGET = 30
PER_ROW = 15
# How this file finds the rows that a statement is given.
HELPING = f"SELECT id FROM {TABLE} /* given */"

COLUMNS = (
    "task, status, waiting_for, target, holds_target, priority, run_at, lease_owner, lease_token, lease_expires_at, heartbeat_at,"
    " finished_at"
)
NOW = "statement_timestamp()"


def rows(number: int, status: str, target: str, waiting_for: str = "", *, holds: bool = False, priority: int = 0) -> str:
    """Return the insert of this number of jobs; `target` is an expression over the number `n`."""
    run_at = f"{NOW} + interval '1 year'" if waiting_for == "time" else "NULL"
    lease = f"'worker-1', 1, {NOW} + interval '1 hour', {NOW}" if status == "RUNNING" else "'', 1, NULL, NULL"
    finished_at = NOW if status == "ERROR" else "NULL"
    values = f"'tests.tasks.add', '{status}', '{waiting_for}', {target}, {holds}, {priority}, {run_at}, {lease}, {finished_at}"
    return f"INSERT INTO {TABLE} ({COLUMNS}) SELECT {values} FROM generate_series(1, {number}) AS n"


def crowd(scale: float) -> Iterator[str]:
    """Return the inserts of 500,000 parked jobs, 1,000,000 scheduled for next year, 500,000 in ERROR, 300,000 PAUSED, times `scale`."""

    def many(number: int) -> int:
        return int(number * scale)

    yield rows(1, "RUNNING", "'busy'", holds=True)
    yield rows(many(300_000), "PENDING", "'busy'", "target")
    yield rows(many(100_000), "PENDING", "'long'", "target")  # its holder has just ended
    yield rows(many(100_000), "PENDING", "'paused-' || n %% 5000", "target")
    yield rows(many(500_000), "PENDING", "''", "time")
    yield rows(many(500_000), "PENDING", "'busy'", "time")
    yield rows(many(250_000), "ERROR", "''")
    yield rows(many(240_000), "ERROR", "'failed-' || n")
    yield rows(many(10_000), "ERROR", "'wrecked'")
    yield rows(many(100_000), "PAUSED", "''")
    yield rows(many(100_000), "PAUSED", "'paused-' || n %% 5000")
    yield rows(many(100_000), "PAUSED", "'halted'")
    # What can run, and a few that are to be parked yet.
    yield rows(1_000, "QUEUED", "''")
    yield rows(500, "QUEUED", "'free-' || n")
    yield rows(500, "QUEUED", "'busy'", priority=-5)
    yield rows(100, "QUEUED", "'long'", priority=-5)
    yield rows(100, "QUEUED", "'halted'", priority=-5)
    yield rows(300, "RUNNING", "'mine-' || n", holds=True)


@dataclass
class Statement:
    """The statement, the indexes by which it finds its rows (except the primary key), and the maximum number of buffers."""

    send: Callable[[PostgreSQL], Any]
    indexes: set[str]
    most: int = MAX_BUFFERS
    any_of: bool = False  # one of the indexes is enough


def named(*names: str) -> list[Target]:
    return [Target("", name) for name in names]


def ids(database: PostgreSQL, target: str, number: int = 8) -> list[int]:
    return [row[0] for row in database.rows(f"{HELPING} WHERE status = 'QUEUED' AND target LIKE %s ORDER BY id LIMIT %s", [target, number])]


def ended(database: PostgreSQL, number: int) -> list[RunEnd]:
    found = database.rows(f"{HELPING} WHERE status = 'RUNNING' AND target LIKE 'mine-%%' LIMIT %s", [number])
    values = {"result": "null", "progress": 100, "ended_ago": 0.0}
    return [
        RunEnd(row[0], 1, "", False, "SUCCESS", "", "job.completed", began_ago=0.1 * place, **values)  # type: ignore[arg-type]
        for place, row in enumerate(found)
    ]


FREE = [f"free-{number}" for number in range(1, 9)]
PATTERNS = parse(("de*", "!default-*", "!mail"))
MANY = named(*(f"{kind}-{number}" for kind in ("failed", "paused", "free", "mine", "nobody") for number in range(100)))
STATEMENTS = {
    "claim": Statement(lambda db: claims.claim(db, LENDER, Scope(), 8), {"next"}),
    "claim behind the cursor": Statement(lambda db: claims.claim(db, LENDER, Scope(), 8, (0, 1)), {"next"}),
    "claim of a queue": Statement(lambda db: claims.claim(db, LENDER, Scope("", ("default",)), 8), {"next_in_queue"}),
    "claim of a tenant without jobs": Statement(lambda db: claims.claim(db, LENDER, Scope("nobody"), 8), {"next"}),
    "lock_candidates": Statement(lambda db: targets_sql.lock_candidates(db, ids(db, "free-%")), set()),
    "target_jobs": Statement(
        lambda db: targets_sql.target_jobs(db, named("busy", "long", "halted", "wrecked", "paused-7", *FREE)),
        {"held", "line_queued", "line_parked"},
    ),
    "take": Statement(lambda db: claims.take(db, LENDER, ids(db, "free-%")), set()),
    "park": Statement(lambda db: targets_sql.park(db, ids(db, "busy")), set()),
    "park_line": Statement(lambda db: targets_sql.park_line(db, named("busy", "halted"), 2_000), {"line_queued"}, 600 * PER_ROW),
    "release": Statement(
        lambda db: targets_sql.release(db, named("busy", "long", "halted", "free-1")), {"held", "one_holder", "line_parked"}
    ),
    "release_heads": Statement(lambda db: targets_sql.release_heads(db, ids(db, "free-%")), set()),
    "hand_over": Statement(
        lambda db: targets_sql.hand_over(db, LENDER, named("busy", "long", "halted", "free-1"), ALL, ()),
        {"held", "line_parked", "line_queued", "next"},
    ),
    "hand_over of one": Statement(
        lambda db: targets_sql.hand_over(db, LENDER, named("long"), ServedQueues(("default",)), ("mail",)),
        {"held", "line_parked", "line_queued", "next"},
    ),
    "hand_over of one by patterns": Statement(
        lambda db: targets_sql.hand_over(db, LENDER, named("long"), PATTERNS, ("mail",)), {"held", "line_parked", "line_queued", "next"}
    ),
    "target_jobs of many": Statement(
        lambda db: targets_sql.target_jobs(db, MANY), {"held", "line_queued", "line_parked"}, len(MANY) * PER_TARGET
    ),
    "park_line of many": Statement(lambda db: targets_sql.park_line(db, MANY, 2_000), {"line_queued"}, len(MANY) * PER_TARGET),
    "release of many": Statement(lambda db: targets_sql.release(db, MANY), {"held", "one_holder", "line_parked"}, len(MANY) * PER_TARGET),
    "hand_over of many": Statement(
        lambda db: targets_sql.hand_over(db, LENDER, MANY, ALL, ()), {"held", "line_parked", "line_queued", "next"}, len(MANY) * PER_TARGET
    ),
    "parked_behind_free": Statement(
        lambda db: targets_sql.parked_behind_free(db, Target("", ""), 500), {"held", "line_parked", "line_queued"}, 500 * PER_TARGET
    ),
    "queued_tenants": Statement(lambda db: claims.queued_tenants(db, 1_000), {"next", "next_in_queue"}, any_of=True),
    "queued_places": Statement(lambda db: claims.queued_places(db, 1_000), {"next_in_queue"}),
    "queued_places behind one": Statement(lambda db: claims.queued_places(db, 1_000, ("acme", "mail")), {"next_in_queue"}),
    "queued_queues": Statement(lambda db: claims.queued_queues(db, 1_000), {"next_in_queue"}),
    "queued_queues but some": Statement(lambda db: claims.queued_queues(db, 1_000, "", "a", ["default", "mail"]), {"next_in_queue"}),
    "queued_queues of patterns": Statement(lambda db: claims.queued_queues(db, 1_000, served=PATTERNS), {"next_in_queue"}),
    "succeed one": Statement(lambda db: run_ends.end_runs(db, ended(db, 1)), set()),
    "succeed some": Statement(lambda db: run_ends.end_runs(db, ended(db, 20)), set()),
    "succeed many": Statement(lambda db: run_ends.end_runs(db, ended(db, 300)), set(), 300 * PER_ROW),
}


@pytest.mark.long
@pytest.mark.postgresql
@pytest.mark.django_db
@pytest.mark.parametrize("scale", [0.01, 0.1, pytest.param(1.0, marks=pytest.mark.slow(seconds=38))])
def test_no_statement_reads_what_waits(scale: float) -> None:
    database = PostgreSQL("default", TABLE)
    database.rows(f"CREATE TABLE {TABLE} (LIKE jobqueue_job INCLUDING ALL) WITH (autovacuum_enabled = off)")
    for insert in crowd(scale):
        database.rows(insert)
    names = logical_names()
    wrong = {("never analyzed", name): faults for name, one in STATEMENTS.items() if (faults := judged(database, one, names))}
    database.rows(f"ANALYZE {TABLE}")
    wrong |= {("analyzed", name): faults for name, one in STATEMENTS.items() if (faults := judged(database, one, names))}
    assert wrong == {}


OTHERS = ("jobqueue_queue", "jobqueue_jobevent", "jobqueue_webhookdelivery")


def judged(database: PostgreSQL, statement: Statement, names: dict[str, str]) -> list[str]:
    """Send a statement, undo it, and return what is wrong with its plan."""
    plans: list[dict[str, Any]] = []
    with transaction.atomic():
        with connection.execute_wrapper(explaining(plans)):
            statement.send(database)
        transaction.set_rollback(True)
    [plan] = [plan for plan in plans if plan["Node Type"] != "Result"][-1:]
    # The few queues, and the log and the messages that are only written to, are tables of their own.
    nodes = [node for node in walk(plan) if not node.get("Relation Name", node.get("Index Name", "")).startswith(OTHERS)]
    faults = [f"a scan of the whole table: {node['Node Type']}" for node in nodes if node["Node Type"] == "Seq Scan"]
    sorts = [node for node in nodes if "Sort" in node["Node Type"] and sorts_what_it_searched(node["Plans"][0])]
    faults += [f"a sort of what was read from the table: {node['Sort Key']}" for node in sorts]
    used = {names[node["Index Name"]] for node in nodes if "Index Name" in node} - {"pkey"}
    if used != statement.indexes and not (statement.any_of and used and used < statement.indexes):
        faults.append(f"indexes {sorted(used)}, not {sorted(statement.indexes)}")
    # Where few of many jobs run, the planner takes every set of running ones for tiny.
    if (compared := sum(node.get("Rows Removed by Join Filter", 0) for node in nodes)) > MAX_COMPARED:
        faults.append(f"{compared} rows compared in vain")
    if (read := buffers_read(plan)) >= statement.most:
        faults.append(f"{read} buffers read, not fewer than {statement.most}")
    return faults


def explaining(plans: list[dict[str, Any]]) -> Callable[..., Any]:
    """Return a wrapper that explains each statement before it runs, and undoes that; settings in front of it stay in front."""

    def wrapper(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        *settings, last = sql.split("; ")
        if last.startswith(("SELECT", "UPDATE", "WITH")) and not last.startswith(HELPING):
            cursor = context["cursor"].cursor  # the driver's: this wrapper is not asked again
            cursor.execute("SAVEPOINT explained")
            for setting in settings:
                cursor.execute(setting)
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {last}", params)
            found = cursor.fetchone()[0]
            cursor.execute("ROLLBACK TO SAVEPOINT explained")
            plans.append((json.loads(found) if isinstance(found, str) else found)[0]["Plan"])
        return execute(sql, params, many, context)

    return wrapper


def walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for below in node.get("Plans", ()):
        yield from walk(below)


def sorts_what_it_searched(below: dict[str, Any]) -> bool:
    """Return whether a sort gets what a scan of the table found, other than by given keys."""
    return below.get("Relation Name") == TABLE and not any(one.get("Index Name") == f"{TABLE}_pkey" for one in walk(below))


def buffers(node: dict[str, Any]) -> int:
    return int(node["Shared Hit Blocks"] + node["Shared Read Blocks"])


def buffers_read(plan: dict[str, Any]) -> int:
    """Return the buffers of a plan without those that the writing of its rows takes, which the number of indexes decides."""
    writes = [node for node in walk(plan) if node["Node Type"] == "ModifyTable"]
    return buffers(plan) - sum(buffers(node) - sum(map(buffers, node["Plans"])) for node in writes)


def logical_names() -> dict[str, str]:
    """Return the names of the copied table's indexes as those of the jobs' own, by what they are defined on."""
    found: dict[str, dict[str, str]] = {}
    with connection.cursor() as cursor:
        for table in ("jobqueue_job", TABLE):
            cursor.execute("SELECT indexname, indexdef FROM pg_indexes WHERE tablename = %s", [table])
            found[table] = {definition.split(" USING ")[1]: name for name, definition in cursor.fetchall()}
    return {name: found["jobqueue_job"][definition].removeprefix("jobqueue_job_") for definition, name in found[TABLE].items()}
