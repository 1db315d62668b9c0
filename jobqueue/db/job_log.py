"""The statements that write the log of runs: one that inserts lines, and one that deletes the lines that a run has dropped since."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from jobqueue.db.database import Database

LOG = "jobqueue_joblog"
LOCK_SECONDS = 0.1

INSERT = f"INSERT INTO {LOG} (job_id, attempt, at, first, last, level, lines) SELECT "
FROM_JSON = (
    "(v->>0)::bigint, (v->>1)::int, {now} - make_interval(secs => (v->>2)::float8), (v->>3)::int, (v->>4)::int, (v->>5)::smallint, v->>6"
    " FROM json_array_elements(%s::json) AS v"
)
FROM_JSON_SQLITE = (
    "json_extract(value, '$[0]'), json_extract(value, '$[1]'),"
    " strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', -json_extract(value, '$[2]') || ' seconds'),"
    " json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'), json_extract(value, '$[6]')"
    " FROM json_each(%s) ORDER BY key"
)


class LogLines(NamedTuple):
    """Lines of the log of a run, as a row of the table; `ago` is the age of the first line in seconds, and `lines` is JSON text."""

    job_id: int
    attempt: int
    ago: float
    first: int
    last: int
    level: int
    lines: str


class Dropped(NamedTuple):
    """The lines of a run that are not kept any more: those before `first`."""

    job_id: int
    attempt: int
    first: int


def write(db: Database, rows: Sequence[LogLines], dropped: Sequence[Dropped]) -> None:
    """Insert lines, and delete the dropped ones. Fail if another session locks the table for longer than `LOCK_SECONDS`."""
    with db.atomic():
        db.limit_lock_wait(LOCK_SECONDS)
        db.commit_without_waiting()
        db.rows(INSERT + (FROM_JSON_SQLITE if db.is_sqlite else FROM_JSON.format(now=db.now)), [json.dumps(rows)])
        for run in dropped:  # only runs that log very much have any
            db.rows(f"DELETE FROM {LOG} WHERE job_id = %s AND attempt = %s AND last < %s", run)
