"""The subcommand ``manage.py jobqueue jobs``, which searches for jobs."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from jobqueue.core.moments import moment_of
from jobqueue.core.texts import shorten
from jobqueue.insight import search
from jobqueue.insight.report import summary
from jobqueue.management import report_text, tables
from jobqueue.models import Job

DEFAULT_LIMIT, MAX_LIMIT = 20, 1000
MAX_TEXT_BYTES = 80
COLUMNS = ("job", "status", "created (UTC)", "queue", "task", "arguments", "message")


def add_arguments(parser: ArgumentParser) -> None:
    """Add the query and the limit."""
    parser.add_argument("query", nargs="*", metavar="QUERY", help="what to search for, such as: status:ERROR order_id=7 since:2h")
    parser.add_argument("--limit", default=str(DEFAULT_LIMIT), metavar="N", help=f"how many jobs to show (default: {DEFAULT_LIMIT})")


def jobs(options: dict[str, Any]) -> tuple[Any, list[str], bool]:
    """Return the newest jobs that a search finds, as JSON values and as lines."""
    given = options["limit"]
    limit = int(given) if given.isascii() and given.isdigit() and len(given) < 6 else 0
    if not 1 <= limit <= MAX_LIMIT:
        raise CommandError(f"--limit is {given[:80]!r}; it must be a whole number from 1 to {MAX_LIMIT}.")
    found = search.page(Job.objects.current, search.parsed(" ".join(options["query"])), limit)
    rows = [summary(job) for job in found.jobs]
    lines = ["Jobs", *tables.table(COLUMNS, list(map(_cells, rows)))]
    more = [f"There are more; --limit shows up to {MAX_LIMIT:,}."] if found.after is not None else []
    scope = [f"Searched: {found.scope}"] if found.scope else []
    return {"jobs": rows, "more": found.after is not None, "scope": found.scope}, [*lines, *more, *scope], True


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    created = tables.brief(moment_of(row["times"]["created_at"]))
    texts = (shorten(text, MAX_TEXT_BYTES) or "-" for text in (report_text.call(row["arguments"]), row["message"].partition("\n")[0]))
    return (str(row["id"]), row["status"], created, row["queue"], row["task"], *texts)
