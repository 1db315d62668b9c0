"""What a job has logged: its lines, oldest first, in pages, by run and by level."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import QuerySet

from jobqueue.access.hiding import mask_of
from jobqueue.core.masking import Mask
from jobqueue.core.texts import clean
from jobqueue.models import Job, JobLog

LEVELS: Final = {name: logging.getLevelName(name.upper()) for name in ("debug", "info", "warning", "error", "critical")}
LINES_PER_ROW: Final = 1000  # a row has at most 200
ROWS: Final = 100  # read in one query


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line of a run's log. `id` rises in the order in which lines were written; `number` counts the lines of the run from 1 on."""

    id: int
    attempt: int
    number: int
    at: datetime
    level: str
    logger: str
    text: str


def log_entries(job: Job, *, after: int = 0, level: int = 0, attempt: int | None = None) -> Iterator[LogEntry]:
    """Yield what a job, which was read with all columns, has logged: after a line, at a level or above, in one run or in all."""
    mask, position = mask_of(job), after // LINES_PER_ROW
    rows = _rows(job).filter(level__gte=level)
    rows = rows if attempt is None else rows.filter(attempt=attempt)
    while batch := list(rows.filter(pk__gte=position)[:ROWS]):
        for row in batch:
            yield from (entry for entry, number in _entries(row, mask) if entry.id > after and number >= level)
        position = batch[-1].pk + 1


def logging_runs(job: Job) -> list[int]:
    """Return the numbers of the runs of a job that have logged anything."""
    return sorted(set(_rows(job).order_by().values_list("attempt", flat=True).distinct()))


def _rows(job: Job) -> QuerySet[JobLog]:
    return JobLog.objects.using(Job.objects.database.alias).filter(job=job).order_by("pk")


def _entries(row: JobLog, mask: Mask) -> Iterator[tuple[LogEntry, int]]:
    """Yield the lines of a row, each with the number of its level."""
    for place, (milliseconds, level, logger, text) in enumerate(_lines(row)):
        at = row.at + timedelta(milliseconds=milliseconds)
        key = row.pk * LINES_PER_ROW + min(place, LINES_PER_ROW - 1)
        yield LogEntry(key, row.attempt, row.first + place, at, logging.getLevelName(level), mask(logger), mask(text)), level


def _lines(row: JobLog) -> list[tuple[int, int, str, str]]:
    """Return the lines of a row; if it holds something else, as after a change by hand, return that as one line."""
    try:
        found: Any = json.loads(row.lines)
        return [(min(int(ms), 10**12), int(level), clean(str(logger)), clean(str(text))) for ms, level, logger, text in found]
    except (ValueError, TypeError, RecursionError, OverflowError):
        return [(0, row.level, "", clean(str(row.lines)))]
