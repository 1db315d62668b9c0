"""The subcommand ``manage.py jobqueue log``, which shows what a job has logged."""

from __future__ import annotations

import threading
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, Final

from django.core.management.base import CommandError

from jobqueue.core.amounts import plural
from jobqueue.core.states import ENDED
from jobqueue.exceptions import JobDoesNotExist
from jobqueue.insight.log import LEVELS, LogEntry, log_entries
from jobqueue.management import tables
from jobqueue.models import Job

FOLLOW_SECONDS: Final = 1.0
NOTHING: Final = "Nothing is stored. See docs/logs.md: the logger must be enabled for the level, and JOB_LOG must include it."


def add_arguments(parser: ArgumentParser) -> None:
    """Add the job, the filters and the option to follow."""
    parser.add_argument("job", metavar="JOB_ID", help="the number of the job, or its public id")
    parser.add_argument("--level", choices=[*LEVELS], default="debug", help="show lines of this level or above (default: all)")
    parser.add_argument("--run", metavar="N", help="show only the run with this number (default: all)")
    parser.add_argument("--follow", action="store_true", help="also show new lines, until the job has ended")


def show_log(options: dict[str, Any], job_id: int) -> tuple[Any, list[str], bool]:
    """Return what a job has logged, as JSON values and as lines; print the lines as they come if they are to be followed."""
    attempt = _number(options["run"])
    if options["follow"] and options["json"]:
        raise CommandError("--follow and --json exclude each other: JSON is printed as one value at the end.")
    job, level = _job(job_id), LEVELS[options["level"]]
    if options["follow"]:
        _follow(job, level, attempt, options["print"])
        return None, [], True
    entries = list(log_entries(job, level=level, attempt=attempt))
    data = [{**asdict(entry), "at": tables.iso(entry.at)} for entry in entries]
    return data, [*_shown(entries)] or [NOTHING], True


def _follow(job: Job, level: int, attempt: int | None, write: Callable[[str], None]) -> None:
    after, pause = 0, threading.Event()
    while True:
        has_ended = job.status in ENDED  # read before the lines: the lines are written before the end
        entries = list(log_entries(job, after=after, level=level, attempt=attempt))
        for line in _shown(entries, begins=not after):
            write(tables.printable(line))
        after = entries[-1].id if entries else after
        if has_ended:
            return
        pause.wait(FOLLOW_SECONDS)
        job = _job(job.pk)


def _shown(entries: list[LogEntry], *, begins: bool = True) -> Iterator[str]:
    """Yield the lines of a terminal; the further lines of a text are indented."""
    attempt = 0 if begins else entries[0].attempt if entries else 0
    for entry in entries:
        if entry.attempt != attempt:
            attempt = entry.attempt
            dropped = f" ({plural(entry.number - 1, 'earlier line')} not kept)" if entry.number > 1 else ""
            yield f"Run {attempt}{dropped}"
        first, *more = entry.text.split("\n")
        yield f"  {tables.brief(entry.at)} {entry.level} {entry.logger}: {first}"
        yield from (f"    {line}" for line in more)


def _job(job_id: int) -> Job:
    job = Job.objects.current.filter(pk=job_id).first()
    if job is None:
        raise JobDoesNotExist(f"There is no job {job_id}.")
    return job


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text)):
        raise CommandError(f"--run is {text[:80]!r}; it must be a whole number from 1 on: the number of a run.")
    return int(text)
