"""The statements on phases and dependencies that the ORM cannot express: INSERT … SELECT, and a walk through a graph."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from jobqueue.core.targets import Target
from jobqueue.db.database import Database

WAITS_KEY = 0x6A6F6271_75657565  # the key of the lock to take before a job waits for children, so that jobs cannot wait for each other
MAX_SEEN = 200_000


def insert_phases(database: Database, table: str, job_ids: Sequence[int], names: Sequence[str]) -> None:
    """Insert a row for each phase of each of the jobs, in one statement."""
    params: list[Any]
    if database.is_sqlite:
        params = [json.dumps(list(job_ids)), json.dumps(list(names))]
        sql = "SELECT j.value, p.key, p.value FROM json_each(%s) AS j CROSS JOIN json_each(%s) AS p ORDER BY j.value, p.key"
    else:
        params = [list(job_ids), list(names)]
        sql = (
            "SELECT j.id, p.place - 1, p.name FROM unnest(%s::bigint[]) AS j(id)"
            " CROSS JOIN unnest(%s::text[]) WITH ORDINALITY AS p(name, place) ORDER BY j.id, p.place"
        )
    database.rows(f"INSERT INTO {table} (job_id, position, name) {sql}", params)


def insert_dependencies(database: Database, table: str, parent: int, children: Sequence[int], ended: str) -> None:
    """Make a job wait for children. A child that has ended (the condition `ended` on `j`), or does not exist, is marked as ended.

    The rows are inserted in the order of the ids: the foreign key locks each child, and a deletion locks jobs in the
    same order.
    """
    source = "SELECT value AS id FROM json_each(%s)" if database.is_sqlite else "SELECT unnest(%s::bigint[]) AS id"
    values: Any = json.dumps(list(children)) if database.is_sqlite else list(children)
    sql = (
        f"INSERT INTO {table} (parent_id, child_id, ended) SELECT %s, c.id, j.id IS NULL OR {ended} FROM ({source}) AS c"
        f" LEFT JOIN {database.table} AS j ON j.id = c.id WHERE TRUE ORDER BY c.id"
        " ON CONFLICT (parent_id, child_id) DO UPDATE SET ended = excluded.ended"
    )
    database.rows(sql, [parent, values])


BELOW = (
    "WITH RECURSIVE below(id) AS (SELECT child_id FROM {0} WHERE parent_id = %s AND NOT ended UNION"
    " SELECT d.child_id FROM below JOIN {0} AS d ON d.parent_id = below.id AND NOT d.ended) "
)


def targets_kept(database: Database, table: str, job: int) -> dict[Target, int]:
    """Return the targets of a job and of all jobs that wait for it, directly or indirectly.

    Each target comes with the job whose target it is.
    """
    sql = (
        f"WITH RECURSIVE above(id) AS (SELECT CAST(%s AS bigint) UNION SELECT d.parent_id FROM above"
        f" JOIN {table} AS d ON d.child_id = above.id AND NOT d.ended)"
        " SELECT j.tenant, j.target, j.id FROM (SELECT id FROM above LIMIT %s) AS seen"
        f" JOIN {database.table} AS j ON j.id = seen.id WHERE j.target <> ''"
    )
    return {Target(*row[:2]): row[2] for row in database.rows(sql, [job, MAX_SEEN])}


def targets_wanted(database: Database, table: str, parent: int, ended: str) -> list[tuple[Target, int]]:
    """Return the targets of the jobs that a job waits for, directly or indirectly, and that have not ended (the condition on `j`)."""
    sql = (
        f"{BELOW.format(table)}SELECT j.tenant, j.target, j.id FROM (SELECT id FROM below LIMIT %s) AS seen"
        f" JOIN {database.table} AS j ON j.id = seen.id WHERE j.target <> '' AND NOT ({ended})"
    )
    return [(Target(*row[:2]), row[2]) for row in database.rows(sql, [parent, MAX_SEEN])]


def holders_before(database: Database, table: str, parent: int, ended: str, limit: int) -> list[int]:
    """Return the holders of the targets for which children of a job wait in line, if these holders wait for children themselves."""
    sql = (
        f"{BELOW.format(table)}SELECT DISTINCT h.id FROM (SELECT id FROM below LIMIT %s) AS seen"
        f" JOIN {database.table} AS j ON j.id = seen.id AND j.target <> '' AND NOT j.holds_target AND NOT ({ended})"
        f" JOIN {database.table} AS h ON h.tenant = j.tenant AND h.target = j.target AND h.target <> '' AND h.holds_target"
        f" WHERE EXISTS (SELECT 1 FROM {table} AS d WHERE d.parent_id = h.id AND NOT d.ended) LIMIT %s"
    )
    return [row[0] for row in database.rows(sql, [parent, MAX_SEEN, limit])]


def waits_for(database: Database, table: str, parent: int) -> tuple[bool, int]:
    """Return whether a job waits for itself, through other jobs, and the number of jobs that it waits for, up to `MAX_SEEN`."""
    sql = (
        f"{BELOW.format(table)}SELECT count(*), coalesce(sum(CASE WHEN id = %s THEN 1 ELSE 0 END), 0)"
        " FROM (SELECT id FROM below LIMIT %s) AS seen"
    )
    [(seen, itself)] = database.rows(sql, [parent, parent, MAX_SEEN])
    return bool(itself), int(seen)
