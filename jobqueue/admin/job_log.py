"""The section of a job's page with what the job has logged, by run and by level."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from django.http import HttpRequest

from jobqueue.admin.formatting import moment
from jobqueue.insight.log import LEVELS, log_entries, logging_runs
from jobqueue.models import Job

MAX_SHOWN: Final = 400
CHOICES: Final = ("info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Line:
    """One line; `at` is a time as HTML."""

    at: str
    level: str
    logger: str
    text: str


@dataclass(frozen=True, slots=True)
class LogSection:
    """The newest lines of one run: `missing` is the number of its lines before them that are not shown or not kept."""

    runs: list[int]
    run: int
    level: str
    levels: tuple[str, ...]
    lines: list[Line]
    missing: int


def log_section(request: HttpRequest, job: Job) -> LogSection | None:
    """Return the log of the run that the request names, by default the newest; None if the user may not see it."""
    if not request.user.has_perm("jobqueue.view_job_log"):
        return None
    runs = logging_runs(job)
    wanted, level = request.GET.get("log_run", ""), request.GET.get("log_level", "")
    level = level if level in CHOICES else CHOICES[0]
    run = next((one for one in runs if str(one) == wanted), runs[-1] if runs else 0)
    entries: deque[Any] = (
        deque(log_entries(job, level=0 if level == "info" else LEVELS[level], attempt=run), MAX_SHOWN) if runs else deque()
    )
    missing = entries[0].number - 1 if entries and level == "info" else 0
    lines = [Line(moment(one.at), one.level, one.logger, one.text) for one in entries]
    return LogSection(runs[-MAX_SHOWN:], run, level, CHOICES, lines, missing)
