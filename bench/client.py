"""The client that enqueues, in a process of its own: it prints one line of JSON.

``single`` and ``bulk`` alternate with the bare statement that writes the same row, so that both run under the same
conditions. Both use the same connection and the same table.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import django
from django.db import connection, transaction

from bench import same_chain, stamps

BLOCK = 100
FILL_BLOCK = 10_000
COLUMNS = "task, queue, args, kwargs, priority"
INSERT = f"INSERT INTO jobqueue_job ({COLUMNS}) VALUES (%s, %s, %s, %s, %s)"
COPY = f"COPY jobqueue_job ({COLUMNS}) FROM STDIN"


def fill(jobs: int, task_name: str = "noop") -> dict[str, Any]:
    """Enqueue jobs as fast as possible; nothing is measured."""
    import jobqueue
    from bench import tasks

    for first in range(0, jobs, FILL_BLOCK):
        jobqueue.enqueue_many(getattr(tasks, task_name), [([number], {}) for number in range(first, min(first + FILL_BLOCK, jobs))])
    return {"jobs": jobs}


def burst(jobs: int) -> dict[str, Any]:
    """Enqueue jobs in one transaction, so that waiting workers find all of them and statistics, too; nothing is measured."""
    with transaction.atomic():
        fill(jobs)
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE jobqueue_job")
    return {"jobs": jobs}


def lines(jobs: int, targets: int) -> dict[str, Any]:
    """Enqueue jobs as fast as possible, spread evenly over `targets` targets; nothing is measured."""
    import jobqueue
    from bench import tasks

    task = tasks.noop.using(target=lambda number: f"t{number % targets}")
    for first in range(0, jobs, FILL_BLOCK):
        jobqueue.enqueue_many(task, [([number], {}) for number in range(first, min(first + FILL_BLOCK, jobs))])
    return {"jobs": jobs}


def rests(jobs: int, seconds: float) -> dict[str, Any]:
    """Enqueue jobs that sleep for `seconds` each."""
    import jobqueue
    from bench import tasks

    jobqueue.enqueue_many(tasks.rest, [([seconds], {})] * jobs)
    return {"jobs": jobs}


def single(jobs: int) -> dict[str, Any]:
    """Time enqueue, one job and one commit at a time, against a bare INSERT of the same row."""
    from bench.tasks import noop

    path = noop.module_path

    def bare(number: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute(INSERT, [path, "default", f"[{number}]", "{}", 0])

    seconds = {"ours": 0.0, "raw": 0.0}
    numbers = count()
    for way in (noop.enqueue, bare):
        _clock(way, numbers, 20)
    for first in range(0, jobs, BLOCK):
        block = min(BLOCK, jobs - first)
        seconds["ours"] += _clock(noop.enqueue, numbers, block)
        seconds["raw"] += _clock(bare, numbers, block)
    return {name: jobs / spent for name, spent in seconds.items()}


def _clock(way: Callable[[int], object], numbers: Any, calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        way(next(numbers))
    return time.perf_counter() - began


def bulk(jobs: int, rounds: int) -> dict[str, Any]:
    """Time `enqueue_many` of all jobs in one call against COPY of the same columns, into an empty table each time."""
    import jobqueue
    from bench.tasks import noop

    path = noop.module_path

    def ours(jobs: int) -> None:
        jobqueue.enqueue_many(noop, [([number], {}) for number in range(jobs)])

    def bare(jobs: int) -> None:
        with connection.cursor() as cursor, cursor.copy(COPY) as copy:
            copy.write("".join([f"{path}\tdefault\t[{number}]\t{{}}\t0\n" for number in range(jobs)]))

    found: dict[str, list[float]] = {"ours": [], "raw": []}
    for way in (ours, bare):
        way(10)
    for _ in range(rounds):
        for name, way in (("ours", ours), ("raw", bare)):
            with connection.cursor() as cursor:
                cursor.execute("TRUNCATE jobqueue_job")
                cursor.execute("CHECKPOINT")
            began = time.perf_counter()
            way(jobs)
            found[name].append(jobs / (time.perf_counter() - began))
    return found


def paced(first: int, jobs: int, gap_seconds: float) -> dict[str, Any]:
    """Enqueue jobs at an even pace; return when each call began."""
    from bench.tasks import stamp

    return {str(number): moment for number, moment in stamps.pace(stamp.enqueue, first, jobs, gap_seconds).items()}


def half(first: int, jobs: int, gap_seconds: float) -> dict[str, Any]:
    """Enqueue jobs that keep a slot for a while, at an even pace; return when each call began."""
    from bench.tasks import stamp_and_rest

    return {str(number): moment for number, moment in stamps.pace(stamp_and_rest.enqueue, first, jobs, gap_seconds).items()}


COMMANDS: dict[str, Callable[..., dict[str, Any]]] = {
    "fill": fill,
    "burst": burst,
    "lines": lines,
    "rests": rests,
    "single": single,
    "bulk": bulk,
    "paced": paced,
    "half": half,
    "chain": same_chain.run,
}


if __name__ == "__main__":
    django.setup()
    connection.ensure_connection()
    numbers_given = [float(text) if "." in text else int(text) if text.isdigit() else text for text in sys.argv[2:]]
    print(json.dumps(COMMANDS[sys.argv[1]](*numbers_given)))
