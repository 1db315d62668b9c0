"""The open jobs that a list must show however old they are, read by the partial index of each state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from jobqueue.db import overview
from jobqueue.db.database import Database
from jobqueue.db.overview import QUEUED
from jobqueue.db.targets import PARKED

# For each state, the condition of its partial index and the order of its entries; "" for `by_status`.
OPEN: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "RUNNING": [("status = 'RUNNING'", "lease_owner")],
    "QUEUED": [(QUEUED, "tenant, claim_rank, id")],
    "PENDING": [
        ("status = 'PENDING' AND waiting_for = 'time'", "run_at"),
        ("status = 'PENDING' AND waiting_for = 'children'", "id"),
        (PARKED, "tenant, target, claim_rank, id"),
    ],
    "PAUSED": [("", "")],
    "ERROR": [("", "")],
}


def open_jobs(
    db: Database, statuses: Sequence[str], before: int, wanted: Mapping[str, Sequence[str]], limit: int
) -> tuple[list[int], bool]:
    """Return open jobs with ids up to `before` whose columns have one of the `wanted` values, and whether some jobs were not checked.

    At most `limit` entries of each partial index are read.
    """
    ids: list[int] = []
    more = False
    for status in statuses:
        for place in OPEN.get(status, ()):
            where, order = place if place[0] else (text.format(status) for text in db.by_status)
            with overview.reading(db):
                rows = db.rows(*_open(db, where, order, before, wanted, limit))
            more = more or any(number > limit for _, number in rows)
            ids += [job_id for job_id, _ in rows if job_id is not None]
    return ids, more


def _open(db: Database, where: str, order: str, before: int, wanted: Mapping[str, Sequence[str]], limit: int) -> tuple[str, list[Any]]:
    condition, params = _values(db, wanted)
    # The first columns of these indexes.
    first = {name: wanted[name] for name in {QUEUED: ("tenant", "queue"), PARKED: ("tenant",)}.get(where, ()) if name in wanted}
    inner, inner_params = _values(db, first)
    if "queue" in first:  # QUEUED jobs have an index by queue
        order = "tenant, queue, claim_rank, id"
    sql = (
        f"{db.hint()}WITH s AS MATERIALIZED (SELECT {', '.join(['id', *wanted])} FROM {db.table} WHERE {where} AND id <= %s{inner}"
        f" ORDER BY {order} LIMIT %s) SELECT NULL, count(*) FROM s UNION ALL SELECT id, 0 FROM s WHERE 1 = 1{condition}"
    )
    return sql, [before, *inner_params, limit + 1, *params]


def _values(db: Database, wanted: Mapping[str, Sequence[str]]) -> tuple[str, list[Any]]:
    parts = [f" AND {column} IN ({', '.join(['%s'] * len(values)) or 'NULL'})" for column, values in wanted.items()]
    return "".join(parts), [value for values in wanted.values() for value in values]
