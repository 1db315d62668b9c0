"""The subcommand ``manage.py jobqueue prune``, which deletes ended jobs by the settings or by options, or counts them."""

from __future__ import annotations

import itertools
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError

from jobqueue import conf
from jobqueue.core.amounts import plural
from jobqueue.core.retention_rules import MAX_SECONDS, OUTCOMES, Rules, after
from jobqueue.lifecycle import queues
from jobqueue.retention import apply

TURN_SECONDS = 1.0
TELL_SECONDS = 2.0
MAX_COUNTED = 100_000
NOTHING_TO_DO = "No retention is set: set DELETE_AFTER in JOBQUEUE, or add --older-than SECONDS."
Lines = list[str]


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of ``prune``."""
    parser.add_argument("--dry-run", action="store_true", help="count the jobs, and change nothing")
    parser.add_argument(
        "--older-than", metavar="SECONDS", help="delete all jobs that ended at least this many seconds ago, whatever the settings say"
    )
    parser.add_argument(
        "--status", action="append", default=[], help=f"only jobs with this outcome: {', '.join(OUTCOMES)}; may be repeated"
    )
    parser.add_argument("--queue", action="append", default=[], help="only jobs of this queue; may be repeated")


def prune(options: dict[str, Any], tell: Callable[[str], None]) -> tuple[Any, Lines, bool]:
    """Delete or count the jobs; return the result as JSON values and as lines, and whether all jobs were handled.

    `tell` is called with a line about the progress.
    """
    sweep = _sweep(options)
    return _counted(sweep) if options["dry_run"] else _done(sweep, tell)


def _sweep(options: dict[str, Any]) -> apply.Sweep:
    statuses = [_status(text) for text in options["status"]]
    for name in options["queue"]:
        queues.check_name(name)
    on_stale, on_delete = conf.retention_hooks()
    if options["older_than"] is not None:
        stale, delete = Rules(), after(OUTCOMES, _seconds(options["older_than"]))
    else:
        stale, delete = conf.retention()
        if not stale and not delete:
            raise CommandError(NOTHING_TO_DO)
    stale, delete = stale.only(statuses, options["queue"]), delete.only(statuses, options["queue"])
    return apply.Sweep(stale, delete, on_stale, on_delete)


def _done(sweep: apply.Sweep, tell: Callable[[str], None]) -> tuple[Any, Lines, bool]:
    deleted = stale = set_aside = events = 0
    logged_at, is_complete = time.monotonic(), False
    try:
        while not is_complete:
            run = sweep.run(TURN_SECONDS)
            deleted, stale, set_aside, is_complete = deleted + run.deleted, stale + run.stale, set_aside + run.set_aside, not run.more
            events += run.events
            if not is_complete and time.monotonic() - logged_at >= TELL_SECONDS:
                logged_at = time.monotonic()
                tell(f"{plural(deleted, 'job')} deleted, {stale:,} marked as stale so far.")
    except KeyboardInterrupt:
        tell("Stopped. The next run continues here.")
    lines = [f"{plural(deleted, 'job')} deleted, {stale:,} marked as stale."]
    if events:
        lines.append(f"{plural(events, 'event')} deleted with them.")
    if set_aside:
        lines.append(f"{plural(set_aside, 'job')} could not be deleted; the log says why.")
    return {"deleted": deleted, "events": events, "stale": stale, "set_aside": set_aside, "complete": is_complete}, lines, is_complete


def _counted(sweep: apply.Sweep) -> tuple[Any, Lines, bool]:
    data: dict[str, Any] = {}
    lines: Lines = []
    going: set[int] = set()
    for key, text, rules in (("delete", "would be deleted", sweep.delete), ("stale", "would be marked as stale", sweep.stale)):
        wanted = (job for job in apply.due(rules) if job.id not in going and (apply.may_go(job) if key == "delete" else not job.stale))
        next_jobs = list(itertools.islice(wanted, MAX_COUNTED))
        counts = Counter((job.queue, job.status) for job in next_jobs)
        going = {job.id for job in next_jobs}
        number = sum(counts.values())
        more = number >= MAX_COUNTED
        groups = [{"queue": queue, "status": status, "jobs": jobs} for (queue, status), jobs in sorted(counts.items())]
        data[key] = {"jobs": number, "or_more": more, "groups": groups}
        lines.append(f"{plural(number, 'job', more=more)} {text}{':' if groups else '.'}")
        lines += [f"  {group['queue']}  {group['status']}  {group['jobs']:,}" for group in groups]
    return data, lines, True


def _status(text: str) -> str:
    if text.upper() not in OUTCOMES:
        raise CommandError(f"--status is {text[:80]!r}; it must be one of {', '.join(OUTCOMES)}: only ended jobs can be deleted.")
    return text.upper()


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_SECONDS:  # NaN compares false, too
        rule = f"it must be a number of seconds from 0 to {MAX_SECONDS}"
        raise CommandError(f"--older-than is {text[:80]!r}; {rule}. For example, 604800 is a week.")
    return seconds
