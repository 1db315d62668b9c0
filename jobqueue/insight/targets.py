"""The targets and their lines: the job that holds each target, and the jobs that wait for it.

The cost is bounded: at most `MAX_TARGETS` lines are read, of each line only the front. Its jobs are counted only so
far that all lines together read at most `BUDGET` entries of an index.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jobqueue.core import states
from jobqueue.core.masking import mask_text
from jobqueue.core.moments import moment_of
from jobqueue.core.targets import BLOCKING, Target
from jobqueue.core.texts import clean
from jobqueue.db import overview as overview_sql
from jobqueue.db.overview import QUEUED_IN_LINE, Ending, Front
from jobqueue.db.targets import HELD, PARKED
from jobqueue.models import Job

MAX_TARGETS = 1001  # one more than any caller requests, so that callers can see that there are more
MAX_SEARCHED = 5000
MAX_TENANTS = 1000
MAX_COUNTED = 10_000  # of the jobs that wait for one target
BUDGET = 100_000
MAX_STUCK_LOOKS = 500  # targets of each kind that `stuck_lines` checks
STOPPED = (*BLOCKING, states.Status.PENDING)
COLUMNS = ("pk", "task", "status", "waiting_for", "holds_target", "run_at", "enqueued_at", "started_at", "finished_at")


@dataclass(frozen=True, slots=True)
class Line:
    """A target, the job that holds or blocks it (None: the next job can be taken), and the jobs that wait for it."""

    tenant: str
    target: str
    holder_id: int | None
    holder_status: str
    holder_task: str
    since: datetime | None
    waiting: int
    waiting_is_capped: bool
    oldest_waiting_at: datetime | None

    @property
    def stuck(self) -> bool:
        """Whether jobs wait for a job that only an operator can move."""
        return self.waiting > 0 and self.holder_status in BLOCKING


def lines(*, search: str = "", tenant: str | None = None, limit: int = 100) -> list[Line]:
    """Return the lines that are held, blocked or waited for: first those that wait for an operator, then by age of their wait.

    `search` is a part of a target's name as shown, with its secrets masked; beyond the first `MAX_SEARCHED` names,
    only a full name is found. `tenant` selects a tenant, or the jobs without one ("").
    """
    return [line for line, _ in look(search=search, tenant=tenant)][:limit]


def look(*, search: str = "", tenant: str | None = None) -> list[tuple[Line, Front]]:
    """Return up to `MAX_TARGETS` lines in the order of `lines`, each with the jobs at its front."""
    fronts = overview_sql.fronts(Job.objects.database, _targets(clean(search).strip(), tenant if tenant is None else clean(tenant)))
    found = [front for front in fronts if any(front[2:])]
    return sorted(zip(_lines(found), found, strict=True), key=lambda one: _by_need(one[0]))


def stuck_lines() -> tuple[list[Job], bool]:
    """Return the jobs that block a target for which other jobs wait, and whether there are more targets than were checked."""
    database = Job.objects.database
    targets: dict[Target, None] = {}
    more = False
    for where in (PARKED, QUEUED_IN_LINE):
        found = overview_sql.targets_in(database, where, Target("", ""), MAX_STUCK_LOOKS + 1)
        more = more or len(found) > MAX_STUCK_LOOKS
        targets.update(dict.fromkeys(found[:MAX_STUCK_LOOKS]))
    fronts = overview_sql.fronts(database, targets)
    jobs = _jobs(one for front in fronts for one in (front.holder, front.blocker) if one is not None)
    blockers = [blocker_of(front, jobs) for front in fronts]
    return [job for job in blockers if job is not None and job.status in BLOCKING], more


def blocker_of(front: Front, jobs: Mapping[int, Any]) -> Any | None:
    """Return the job at the front that stops the line; a blocker takes precedence over a holder that waits to run again."""
    holder, blocker = jobs.get(front.holder or 0), jobs.get(front.blocker or 0)
    if holder is not None and (blocker is None or holder.place not in (states.QUEUED, states.PENDING_TARGET)):
        return holder
    return blocker or holder


def stands_since(job: Job, ending: Ending | None) -> datetime | None:
    """Return the time since which a job is in its state, if its row has it; for a stopped job, the end of its last run."""
    known: datetime | None
    if job.status in (states.Status.RUNNING, states.Status.ERROR):
        known = job.started_at if job.status == states.Status.RUNNING else job.finished_at
        return known
    if job.place in (states.QUEUED, states.PENDING_TARGET):
        known = job.enqueued_at
        return known
    return moment_of(ending.finished_at) if ending is not None else None


def _targets(search: str, tenant: str | None) -> list[Target]:
    """Return the targets to read: first those that jobs wait for, then those that are held, then the rest."""
    database = Job.objects.database
    whole, found = list[Target](), dict[Target, None]()
    if search:
        whole = [Target(one, search) for one in (overview_sql.tenants_in_lines(database, MAX_TENANTS) if tenant is None else [tenant])]
    for where in (PARKED, HELD, QUEUED_IN_LINE):
        several = overview_sql.targets_in(database, where, Target(tenant or "", ""), MAX_SEARCHED if search else MAX_TARGETS, tenant)
        found.update(dict.fromkeys(one for one in several if search.casefold() in mask_text(one.name).casefold()))
    return list(dict.fromkeys([*whole, *list(found)[:MAX_TARGETS]]))


def _lines(fronts: list[Front]) -> list[Line]:
    jobs = _jobs(one for front in fronts for one in (front.holder, front.blocker) if one is not None)
    waiting = _waiting([Target(front.tenant, front.target) for front in fronts])
    shown = [(front, blocker_of(front, jobs), jobs.get(front.holder or 0)) for front in fronts]
    since = _since([job for _, job, _ in shown if job is not None])
    return [_line(front, job, holder, since, *waiting[front.tenant, front.target]) for front, job, holder in shown]


def _line(
    front: Front, job: Any, holder: Any, since: Mapping[int, datetime | None], count: int, capped: bool, oldest: datetime | None
) -> Line:
    # A holder that waits to run again is in its own line, but waits for no other job.
    alone = holder is not None and holder.place in (states.QUEUED, states.PENDING_TARGET) and not capped
    waiting = count - 1 if alone else count
    return Line(
        front.tenant,
        front.target,
        holder_id=None if job is None else job.pk,
        holder_status="" if job is None else job.status,
        holder_task="" if job is None else job.task,
        since=None if job is None else since[job.pk],
        waiting=waiting,
        waiting_is_capped=capped,
        oldest_waiting_at=oldest if waiting else None,
    )


def _jobs(ids: Iterable[int]) -> dict[int, Job]:
    return {job.pk: job for job in Job.objects.current.filter(pk__in={*ids}).only(*COLUMNS)}


def _waiting(targets: list[Target]) -> dict[tuple[str, str], tuple[int, bool, datetime | None]]:
    """Return for each target the number of waiting jobs, whether there may be more, and the time since which the first waits."""
    share = BUDGET // max(len(targets), 1)
    most, first = min(max(share, 10), MAX_COUNTED), min(max(share // 10, 5), 1000)
    found: dict[tuple[str, str], tuple[int, bool, datetime | None]] = {(one.tenant, one.name): (0, False, None) for one in targets}
    for where in (PARKED, QUEUED_IN_LINE):
        for group in overview_sql.groups(Job.objects.database, "target", where, targets, most, first):
            count, capped, oldest = found[group.tenant, group.name]
            times = [when for when in (oldest, group.oldest) if when is not None]
            found[group.tenant, group.name] = (count + group.number, capped or group.number == most, min(times, default=None))
    return found


def _since(jobs: list[Job]) -> dict[int, datetime | None]:
    """Return the time since which each job is in its state, if its row has it."""
    endings = overview_sql.endings(Job.objects.database, [job.pk for job in jobs if job.status in STOPPED])
    return {job.pk: stands_since(job, endings.get(job.pk)) for job in jobs}


def _by_need(line: Line) -> tuple[bool, bool, float, str, str]:
    when = line.oldest_waiting_at or line.since
    return (not line.stuck, not line.waiting, when.timestamp() if when else math.inf, line.tenant, line.target)
