"""The subcommands ``workers``, ``drain`` and ``undrain`` of ``manage.py jobqueue``."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from jobqueue.core.amounts import plural
from jobqueue.insight.health import live_workers
from jobqueue.insight.worker_page import left_workers, worker_detail
from jobqueue.lifecycle.workers import drain_worker, find_worker
from jobqueue.management import tables

JOB_COLUMNS = ("job", "task", "queue", "attempt", "started (UTC)", "line")
LEFT_COLUMNS = ("process", "how", "left (UTC)", "release", "reason")
Answer = tuple[Any, list[str], bool]


def add_workers_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of ``workers``."""
    parser.add_argument("worker", nargs="?", metavar="WORKER", help="the id of a worker, or its host and process id; without it: all")


def workers(options: dict[str, Any]) -> Answer:
    """Show the live workers by release and those that left, or one worker with its jobs."""
    if options["worker"] is not None:
        return _one(options["worker"])
    alive, left = live_workers(), left_workers()
    alive.sort(key=lambda worker: (worker.release, worker.process))
    rows = [(worker.process, worker.release or "-", *tables.worker_cells(worker)[1:]) for worker in alive]
    columns = (tables.WORKER_COLUMNS[0], "release", *tables.WORKER_COLUMNS[1:])
    gone = [(one.process, one.how, tables.brief(one.left_at), one.release or "-", one.reason or "-") for one in left]
    lines = ["Workers", *tables.table(columns, rows), "", "Left", *tables.table(LEFT_COLUMNS, gone)]
    times = [{"started_at": tables.iso(one.started_at), "left_at": tables.iso(one.left_at)} for one in left]
    departed = [{**asdict(one), **when} for one, when in zip(left, times, strict=True)]
    return {"workers": [asdict(worker) for worker in alive], "left": departed}, lines, True


def _one(name: str) -> Answer:
    found = worker_detail(None, find_worker(name))
    numbers = f"{found['slots']} slots, {found['memory_mb']} MB, {plural(found['stuck_threads'], 'stuck thread')}"
    facts = [
        f"Worker {found['process']} ({found['id']}): {found['state']}",
        f"  release {found['release'] or '-'}, version {found['version'] or '-'}, queues {', '.join(found['queues']) or 'all'}",
        f"  runs {plural(found['running'], 'job')}; at its last heartbeat, {found['heard_seconds']:.0f} s ago: {numbers}",
        f"  leads {', '.join(found['duties']) or 'no duty'}",
        *(f"  {problem}" for problem in found["problems"]),
    ]
    lines = [*map(tables.printable, facts), "", "Running", *_jobs(found["jobs"]), "", "Does not stop", *_jobs(found["stuck"])]
    return found, lines, True


def _jobs(jobs: Sequence[dict[str, Any]]) -> list[str]:
    names = ("job", "task", "queue", "attempt", "started_at", "line")
    rows = [tuple(tables.brief(job[name]) if name == "started_at" else str(job[name] or "-") for name in names) for job in jobs]
    return tables.table(JOB_COLUMNS, rows)


def drain(options: dict[str, Any]) -> Answer:
    """Make a worker start no more jobs."""
    return _drained(options["worker"], drained=True)


def undrain(options: dict[str, Any]) -> Answer:
    """Make a drained worker start jobs again."""
    return _drained(options["worker"], drained=False)


def _drained(worker: str, *, drained: bool) -> Answer:
    answer = drain_worker(worker, drained=drained)
    now = "drained: it starts no more jobs, and its running jobs continue" if drained else "not drained: it starts jobs"
    return asdict(answer), [f"Worker {answer.process} is {now}{'' if answer.changed else ' (no change)'}."], True
