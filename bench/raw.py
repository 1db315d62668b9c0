"""The limit: a crash-safe queue in raw SQL, with one narrow table and one connection, and no other feature.

It claims 100 jobs in one statement and finishes 100 in one statement, each with a commit of its own.
"""

from __future__ import annotations

import asyncio
import json
import sys

import psycopg

from bench import stamps

BATCH = 100
NAPS = 500
SCHEMA = (
    "CREATE TABLE raw_job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, number int NOT NULL, state smallint NOT NULL DEFAULT 0,"
    " began timestamptz, ended timestamptz);"
    " CREATE INDEX raw_job_free ON raw_job (id) WHERE state = 0"
)
FILL = "INSERT INTO raw_job (number) SELECT generate_series({first}, {last})"
CLAIM = (
    "UPDATE raw_job SET state = 1, began = statement_timestamp()"
    f" FROM (SELECT id FROM raw_job WHERE state = 0 ORDER BY id LIMIT {BATCH} FOR UPDATE SKIP LOCKED) AS free"
    " WHERE raw_job.id = free.id RETURNING raw_job.id, raw_job.number"
)
FINISH = "UPDATE raw_job SET state = 2, ended = statement_timestamp() WHERE id = ANY(%s)"
SEND = "WITH made AS (INSERT INTO raw_job (number) VALUES (%s)) SELECT pg_notify('raw_job', '')"


def work(stamping: bool) -> None:
    """Run jobs until the process is killed; an empty job costs one call."""
    handler = stamps.write if stamping else _nothing
    with psycopg.connect(autocommit=True) as connection:
        connection.execute("LISTEN raw_job")
        while True:
            jobs = connection.execute(CLAIM, prepare=True).fetchall()
            for _, number in jobs:
                handler(number)
            if jobs:
                connection.execute(FINISH, [[job_id for job_id, _ in jobs]], prepare=True)
            else:
                list(connection.notifies(timeout=1.0, stop_after=1))


async def nap() -> None:
    """Run jobs that sleep for 10 ms, all of a batch at a time, until the process is killed."""
    claim = CLAIM.replace(f"LIMIT {BATCH}", f"LIMIT {NAPS}")
    with psycopg.connect(autocommit=True) as connection:
        while True:
            jobs = connection.execute(claim, prepare=True).fetchall()
            await asyncio.gather(*(asyncio.sleep(0.01) for _ in jobs))
            if jobs:
                connection.execute(FINISH, [[job_id for job_id, _ in jobs]], prepare=True)
            else:
                await asyncio.sleep(0.1)


def burst(jobs: int) -> None:
    """Queue jobs for waiting workers, in one transaction, with statistics."""
    with psycopg.connect(autocommit=True) as connection:
        with connection.transaction():
            connection.execute(FILL.format(first=1, last=jobs))
            connection.execute("ANALYZE raw_job")
        connection.execute("NOTIFY raw_job")


def paced(first: int, count: int, gap_seconds: float) -> dict[int, float]:
    """Send jobs at an even pace; return when each was sent."""
    with psycopg.connect(autocommit=True) as connection:
        return stamps.pace(lambda number: connection.execute(SEND, [number], prepare=True), first, count, gap_seconds)


def _nothing(number: int) -> None:
    """Do nothing."""


if __name__ == "__main__":
    if sys.argv[1] == "paced":
        print(json.dumps(paced(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))))
    elif sys.argv[1] == "burst":
        burst(int(sys.argv[2]))
    elif sys.argv[1] == "nap":
        asyncio.run(nap())
    else:
        work(stamping=sys.argv[1] == "stamp")
