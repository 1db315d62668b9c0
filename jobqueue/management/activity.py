"""The subcommand ``activity`` of ``manage.py jobqueue``."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from jobqueue import public_ids
from jobqueue.core.search import time_of
from jobqueue.exceptions import InvalidSearch
from jobqueue.insight.activity import activity, as_json
from jobqueue.management import tables

MAX_SHOWN, MAX_LIMIT = 50, 1000
COLUMNS = ("at (UTC)", "who", "from", "did", "to", "result", "text")


def add_activity_arguments(parser: ArgumentParser) -> None:
    """Add the options of ``activity``."""
    parser.add_argument("--actor", default="", metavar="NAME", help="only what this user or system user did")
    parser.add_argument("--verb", default="", help="only this verb, such as cancel or redeliver")
    parser.add_argument("--job", metavar="JOB_ID", help="only what was done to this job: its number, or its public id")
    parser.add_argument("--since", metavar="WHEN", help="only what was done since then: 2h, or 2026-01-31 (in UTC)")
    parser.add_argument("--before", metavar="WHEN", help="only what was done before then, in the same forms")
    parser.add_argument("--limit", type=int, default=MAX_SHOWN, help=f"the maximum number of entries ({MAX_SHOWN})")


def show_activity(options: dict[str, Any]) -> tuple[Any, list[str], bool]:
    """Show who did what, the newest first."""
    most = options["limit"]
    if not 1 <= most <= MAX_LIMIT:
        raise CommandError(f"--limit is {most}; it must be a whole number from 1 to {MAX_LIMIT}.")
    job_id = None if options["job"] is None else _job_id(options["job"])
    try:
        since, before = (None if options[name] is None else time_of(name, options[name]) for name in ("since", "before"))
    except InvalidSearch as error:
        raise CommandError(f"--{error}") from None
    name, verb = options["actor"].replace("\0", ""), options["verb"].replace("\0", "")
    found, _ = activity(None, most, name=name, verb=verb, job_id=job_id, since=since, before=before)
    rows = [(tables.brief(one.at), one.name, one.source, one.verb, one.object, one.verdict, one.text) for one in found]
    return [as_json(one) for one in found], ["Activity", *tables.table(COLUMNS, rows)], True


def _job_id(text: str) -> int:
    found = public_ids.job_id_of(text)
    number = found if found is not None else int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0
    if number <= 0:
        raise CommandError(f"--job is {text[:80]!r}; it must be the number of a job, or its public id.")
    return number
