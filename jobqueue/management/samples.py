"""The subcommands ``samples`` and ``scaler`` of ``manage.py jobqueue``."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError

from jobqueue.core.loads import QUEUE, RINGS
from jobqueue.core.masking import mask_text
from jobqueue.core.scaling import DEFAULT_TARGET, MAX_TARGET, MIN_TARGET
from jobqueue.insight import samples
from jobqueue.insight.samples import Figures
from jobqueue.insight.scaler import queue_demands
from jobqueue.management import tables

COLUMNS = ("waiting", "running", "oldest", "created", "succeeded", "failed", "canceled", "wait p50", "p95", "p99", "run p50", "p95", "p99")
DEMAND_COLUMNS = ("queue", "slots wanted", "waiting", "created per second", "mean run", "wait p95")


def add_samples_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of ``samples``."""
    parser.add_argument("name", nargs="?", help="the name of a queue, or the dotted path of a task (default: all, last five minutes)")
    parser.add_argument("--kind", choices=samples.KINDS, default=QUEUE, help="whether to show queues or tasks (default: queue)")
    parser.add_argument(
        "--period", choices=[*RINGS], default="1h", help="of one queue or task: points of 10 s, 1 min or 15 min (default: 1h)"
    )


def add_scaler_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of ``scaler``."""
    parser.add_argument("--within", metavar="SECONDS", default=str(DEFAULT_TARGET), help="in how many seconds a backlog shall be gone")


def show_samples(options: dict[str, Any]) -> tuple[Any, list[str], bool]:
    """Return the recent loads of all queues or tasks, or the series of one, as JSON values and as lines."""
    kind, name = options["kind"], options["name"]
    if name is None:
        loads = samples.recent(kind)
        cells = [(mask_text(one.name), *_cells(one.figures)) for one in loads]
        recent = [{"name": mask_text(one.name), **_plain(one.figures)} for one in loads]
        return recent, ["The last five minutes", *tables.table((kind, *COLUMNS), cells)], True
    found = samples.series(kind, name, options["period"])
    busy = [
        point
        for point in found.points
        if any((point.queued, point.running, point.enqueued, point.succeeded + point.failed + point.canceled))
    ]
    lines = tables.table(("from", *COLUMNS), [(tables.iso(one.at) or "", *_cells(one)) for one in [*busy, found.total]])
    data = {
        "kind": kind,
        "name": mask_text(name),
        "period": found.period,
        "points": [*map(_plain, found.points)],
        "total": _plain(found.total),
    }
    return data, ["Times without jobs are left out; the last line is the whole period.", *lines], True


def show_scaler(options: dict[str, Any]) -> tuple[Any, list[str], bool]:
    """Return the slots that each queue needs, as JSON values and as lines."""
    text = options["within"]
    within = int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else 0
    if not MIN_TARGET <= within <= MAX_TARGET:
        rule = f"it must be a whole number of seconds from {MIN_TARGET} to {MAX_TARGET}"
        raise CommandError(f"--within is {text[:80]!r}; {rule}. For example, {DEFAULT_TARGET} is five minutes.")
    found = queue_demands(within)
    cells = [
        (
            mask_text(one.queue),
            str(one.slots_wanted),
            str(one.queued),
            f"{one.arrivals_per_second:.2f}",
            *map(_seconds, (one.run_seconds, one.wait_p95)),
        )
        for one in found
    ]
    data = [{**asdict(one), "queue": mask_text(one.queue)} for one in found]
    return {"slots_wanted": sum(one.slots_wanted for one in found), "queues": data}, tables.table(DEMAND_COLUMNS, cells), True


def _plain(figures: Figures) -> dict[str, Any]:
    return {**asdict(figures), "at": figures.at.isoformat()}


def _cells(one: Figures) -> tuple[str, ...]:
    numbers = (one.queued, one.running, _seconds(one.oldest_seconds), one.enqueued, one.succeeded, one.failed, one.canceled)
    return (*map(str, numbers), *map(_seconds, (one.wait_p50, one.wait_p95, one.wait_p99, one.run_p50, one.run_p95, one.run_p99)))


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3g} s"
