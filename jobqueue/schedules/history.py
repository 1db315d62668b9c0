"""The history of a schedule: its nominal times that got a job, what became of the jobs, and the times that got none."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import islice, pairwise, takewhile
from typing import Any

from jobqueue.access import visible
from jobqueue.exceptions import InvalidOption
from jobqueue.models import Job, Schedule, ScheduleTick

MAX_TICKS = 50
MAX_STEPS = 2000  # that are spent on the times that got no job


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A nominal time that got a job, or `missed` times in a row that got none, of which `nominal_at` is the first.

    `job_id` is None if the user may not see the job, and `status` is empty if the job has been deleted since.
    """

    nominal_at: datetime
    job_id: int | None = None
    status: str = ""
    late_seconds: float = 0.0
    missed: int = 0


def history(user: Any, schedule: Schedule) -> list[HistoryEntry]:
    """Return the newest entries of a schedule, the newest first; `user` None is an operator, who sees all jobs."""
    ticks = list(ScheduleTick.objects.current.filter(schedule=schedule).order_by("-nominal_at")[:MAX_TICKS])
    ids = [tick.job_id for tick in ticks if tick.job_id is not None]
    jobs = Job.objects.current.filter(pk__in=ids)
    existing = set(jobs.values_list("pk", flat=True))
    statuses = dict((jobs if user is None else visible.narrow(user, jobs)).values_list("pk", "status"))
    shown = {job_id for job_id in ids if job_id in statuses or (job_id not in existing and (user is None or not visible.is_narrowed(user)))}
    entries = [
        HistoryEntry(
            tick.nominal_at,
            tick.job_id if tick.job_id in shown else None,
            statuses.get(tick.job_id or 0, ""),
            max((tick.created_at - tick.nominal_at).total_seconds(), 0.0),
        )
        for tick in ticks
    ]
    missed = _missed(schedule, [tick.nominal_at for tick in reversed(ticks)])
    return sorted([*entries, *missed], key=lambda entry: entry.nominal_at, reverse=True)


def _missed(schedule: Schedule, times: list[datetime]) -> list[HistoryEntry]:
    """Return the times between these that got no job. Times before the last change of the schedule are not known."""
    found, left = [], MAX_STEPS
    for before, after in reversed(list(pairwise(times))):
        if before < schedule.changed_at or left <= 0:
            break
        try:
            between = list(takewhile(lambda moment, end=after: moment < end, islice(schedule.timing.times(before), left)))  # type: ignore[misc]
        except InvalidOption:
            break
        left -= len(between) + 1
        if between:
            found.append(HistoryEntry(between[0], missed=len(between)))
    return found
