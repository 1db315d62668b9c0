"""A ledger of runs, kept by the tasks themselves in a table outside of the product, and the code that checks it afterwards.

Each entry is written by a connection of its own that commits at once. Times are of the machine's monotonic clock, which all processes of a
machine share. A run without an end was cut off: it ended when its process was killed.
"""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

VARIABLE = "FAULTS_LEDGER"
TABLE = "CREATE TABLE IF NOT EXISTS ledger (job bigint, token bigint, what text, pid int, at double precision)"
_thread = threading.local()


class Entry(NamedTuple):
    """One line: `what` is start, ok (it returned) or out (an exception left it)."""

    job: int
    token: int
    what: str
    pid: int
    at: float


class Known(NamedTuple):
    """What the database says of a job in the end, and whether a person meddled with it."""

    target: str
    rank: int
    status: str
    crashes_ever: int
    runs: int
    touched: bool = False


def opened() -> Any:
    """Return this thread's own connection to the ledger."""
    if not hasattr(_thread, "connection"):
        place = json.loads(os.environ[VARIABLE])
        if isinstance(place, str):
            _thread.connection = sqlite3.connect(place, timeout=60, isolation_level=None)
        else:
            import psycopg

            _thread.connection = psycopg.connect(**place, autocommit=True)
    return _thread.connection


def tell(context: Any, what: str) -> None:
    """Write an entry."""
    values = (context.job_id, context.lease_token, what, os.getpid(), time.monotonic())
    mark = "?" if isinstance(opened(), sqlite3.Connection) else "%s"
    opened().execute(f"INSERT INTO ledger VALUES ({', '.join([mark] * 5)})", values)


class Run(NamedTuple):
    """One run, as recorded in the ledger."""

    job: int
    token: int
    began: float
    ended: float
    ok: bool


def runs_of(entries: Sequence[Entry], kills: Mapping[int, float]) -> list[Run]:
    """Return the runs, in the order of their starts."""
    ends = {(one.job, one.token): one for one in entries if one.what != "start"}
    made = []
    for start in (one for one in entries if one.what == "start"):
        end = ends.get((start.job, start.token))
        ended = end.at if end else kills.get(start.pid, float("inf"))
        made.append(Run(start.job, start.token, start.at, ended, end is not None and end.what == "ok"))
    return sorted(made, key=lambda run: run.began)


def judge(entries: Sequence[Entry], jobs: Mapping[int, Known], kills: Mapping[int, float]) -> list[str]:
    """Return everything that must not have happened."""
    runs = runs_of(entries, kills)
    lines: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        lines[jobs[run.job].target].append(run)
    found = []
    for target, line in lines.items():
        found += [f"{target}: {one} and {two} overlap" for one, two in itertools.pairwise(line) if two.began < one.ended]
        found += _disorder(target, line, jobs)
    return [*found, *_counts(runs, jobs)]


def _disorder(target: str, line: Sequence[Run], jobs: Mapping[int, Known]) -> list[str]:
    """Check the order of jobs without an operator's request: by priority, then age; a job that has started continues first."""
    left_alone = [run.job for run in line if not jobs[run.job].touched]
    firsts = list(dict.fromkeys(left_alone))
    expected = sorted(firsts, key=lambda job: (jobs[job].rank, job))
    found = [] if firsts == expected else [f"{target}: they began in the order {firsts}"]
    changes = [job for job, before in zip(left_alone, [None, *left_alone], strict=False) if job != before]
    return found + ([f"{target}: a job that had started did not continue first: {left_alone}"] if len(changes) != len(set(changes)) else [])


def _counts(runs: Sequence[Run], jobs: Mapping[int, Known]) -> list[str]:
    begun, good = Counter(run.job for run in runs), Counter(run.job for run in runs if run.ok)
    tokens = Counter((run.job, run.token) for run in runs)
    found = [f"{run} was begun twice under one lease" for run, number in tokens.items() if number > 1]
    for job, known in jobs.items():
        if known.status not in ("SUCCESS", "CANCELED"):
            found.append(f"job {job} never ended: {known.status}")
        if known.status == "SUCCESS" and not good[job]:
            found.append(f"job {job} is SUCCESS and never returned")
        if good[job] > 1 + known.crashes_ever:
            found.append(f"job {job} returned {good[job]} times, its worker was lost {known.crashes_ever} times")
        if begun[job] > known.runs and not known.touched:  # a run whose interrupt was withdrawn is given back
            found.append(f"job {job} was begun {begun[job]} times, {known.runs} runs are counted")
    return found


def read(connection: Any) -> list[Entry]:
    """Return all entries."""
    return [Entry(*row) for row in connection.execute("SELECT job, token, what, pid, at FROM ledger ORDER BY at").fetchall()]


def pids(entries: Collection[Entry]) -> set[int]:
    """Return the processes that wrote."""
    return {one.pid for one in entries}
