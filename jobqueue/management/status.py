"""The subcommand ``manage.py jobqueue status``, which shows the state of the installation, once or again and again."""

from __future__ import annotations

import contextlib
import threading
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any, Final

from django.core.management.base import CommandError

from jobqueue import clock
from jobqueue.core.amounts import bounded
from jobqueue.core.masking import mask_text
from jobqueue.insight import health
from jobqueue.management import tables
from jobqueue.management.terminal import screen

DEFAULT_SECONDS, MAX_SECONDS = 2, 3600
CLEAR: Final = "\x1b[H\x1b[2J"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the option to watch."""
    parser.add_argument(
        "--watch",
        nargs="?",
        const=str(DEFAULT_SECONDS),
        metavar="SECONDS",
        help=f"show it again and again, until Ctrl-C (default: every {DEFAULT_SECONDS} s)",
    )


def status(options: dict[str, Any]) -> tuple[Any, list[str], bool]:
    """Return the state of the installation as JSON values and as lines; with ``--watch``, print it until Ctrl-C."""
    if options["watch"] is None:
        return *_report(), True
    if options["json"]:
        raise CommandError("--watch and --json exclude each other: JSON is printed as one value.")
    seconds = _seconds(options["watch"])
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        _watch(seconds, options)
    return None, [], True


def _watch(seconds: float, options: dict[str, Any]) -> None:
    pause = threading.Event()
    while True:
        lines = [f"{clock.now():%Y-%m-%d %H:%M:%S %Z}, every {seconds:g} s; Ctrl-C ends", "", *_report()[1], ""]
        height = screen().height
        if height is not None and len(lines) > height > 1:
            lines = [*lines[: height - 2], f"… {len(lines) - height + 2} more lines"]
        # One write, so that a terminal does not show an empty screen in between.
        options["print"]((CLEAR if screen().is_terminal else "") + "\n".join(map(tables.shown, lines)))
        options["flush"]()
        pause.wait(seconds)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= MAX_SECONDS:  # NaN compares false, too
        raise CommandError(f"--watch is {text[:80]!r}; it must be a number of seconds from 1 to {MAX_SECONDS}. For example, 5.")
    return seconds


def _report() -> tuple[Any, list[str]]:
    found = health.status()
    lines = ["Queues", *tables.table(tables.QUEUE_COLUMNS, [tables.queue_cells(queue) for queue in found.queues])]
    lines += ["  More queues are left out: forget those that you do not use."] if found.more_queues else []
    lines += ["", "Workers", *tables.table(tables.WORKER_COLUMNS, [tables.worker_cells(worker) for worker in found.workers])]
    counts = [(count.state, f"{bounded(count.number, count.or_more)}{f' {count.scope}' if count.scope else ''}") for count in found.jobs]
    data = asdict(found)
    for queue in data["queues"]:
        queue["name"], queue["paused_until"] = mask_text(queue["name"]), tables.iso(queue["paused_until"])
    return data, [*lines, "", "Jobs", *tables.table(("state", "jobs"), counts)]
