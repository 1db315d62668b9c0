"""The phases of a pipeline on the page of its job; the texts are plain, masked and of bounded length."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from jobqueue.admin.formatting import between, excerpt, moment, prose
from jobqueue.admin.labels import translated
from jobqueue.core.masking import Mask
from jobqueue.insight.report import phases_of
from jobqueue.models import Job, JobPhase

MAX_NAME = 80
MAX_MESSAGE = 300


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """The data of one phase."""

    name: str
    status: str
    label: str
    progress: int
    message: str
    attempts: int
    began: str
    took: str


def rows(job: Job, now: datetime, mask: Mask) -> list[PhaseRow]:
    """Return the phases of a job, in order."""
    return [_row(row, now, mask) for row in phases_of(job)]


def _row(row: JobPhase, now: datetime, mask: Mask) -> PhaseRow:
    until = row.finished_at or (now if row.status == JobPhase.Status.RUNNING else None)
    return PhaseRow(
        name=excerpt(prose(row.name, mask=mask), MAX_NAME),
        status=row.status,
        label=translated(row.get_status_display()),
        progress=row.progress,
        message=excerpt(prose(row.message, mask=mask), MAX_MESSAGE),
        attempts=row.attempts,
        began=moment(row.started_at, now) if row.started_at else "",
        took=between(row.started_at, until) if row.started_at and until else "",
    )
