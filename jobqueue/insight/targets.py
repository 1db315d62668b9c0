"""The targets and their lines: the job that holds each target, and the jobs that wait for it.

The cost is bounded: at most `MAX_TARGETS` lines are read, and only the front of each line. The count of the jobs
in a line ends at a maximum, so that all counts together read at most `BUDGET` entries of an index.
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
from jobqueue.db.overview import QUEUED_IN_LINE, LastEnding, TargetHead
from jobqueue.db.targets import HELD, PARKED
from jobqueue.models import Job

MAX_TARGETS = 1001  # one more than a caller shows, so that the caller can detect that there are more
MAX_SEARCHED = 5000
MAX_TENANTS = 1000
MAX_COUNTED = 10_000  # of the jobs that wait for one target
BUDGET = 100_000
MAX_STUCK_CHECKED = 500  # targets of each kind that `blocking_jobs` checks
STOPPED = (*BLOCKING, states.Status.PENDING)
COLUMNS = ("pk", "task", "status", "waiting_for", "holds_target", "run_at", "enqueued_at", "started_at", "finished_at")


@dataclass(frozen=True, slots=True)
class TargetSummary:
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


def target_summaries(*, search: str = "", tenant: str | None = None, limit: int = 100) -> list[TargetSummary]:
    """Return the lines of the targets that a job holds, blocks or waits for.

    Lines that wait for an operator come first, and then those that have waited longest.

    `search` is a part of a target's name as shown, with its secrets masked; beyond the first `MAX_SEARCHED` names,
    only a full name is found. `tenant` selects a tenant, or the jobs without one ("").
    """
    return [summary for summary, _ in summaries_with_heads(search=search, tenant=tenant)][:limit]


def summaries_with_heads(*, search: str = "", tenant: str | None = None) -> list[tuple[TargetSummary, TargetHead]]:
    """Return up to `MAX_TARGETS` lines in the order of `target_summaries`, each with the jobs at its front."""
    heads = overview_sql.target_heads(Job.objects.database, _targets(clean(search).strip(), tenant if tenant is None else clean(tenant)))
    busy_heads = [head for head in heads if head.job_ids]
    return sorted(zip(_summaries(busy_heads), busy_heads, strict=True), key=lambda pair: _urgency(pair[0]))


def blocking_jobs() -> tuple[list[Job], bool]:
    """Return the jobs that block a target for which other jobs wait, and whether there are more targets than were checked."""
    database = Job.objects.database
    targets: dict[Target, None] = {}
    more = False
    for where in (PARKED, QUEUED_IN_LINE):
        waited_for = overview_sql.targets_in(database, where, Target("", ""), MAX_STUCK_CHECKED + 1)
        more = more or len(waited_for) > MAX_STUCK_CHECKED
        targets.update(dict.fromkeys(waited_for[:MAX_STUCK_CHECKED]))
    heads = overview_sql.target_heads(database, targets)
    jobs = _jobs(job_id for head in heads for job_id in (head.holder, head.blocker) if job_id is not None)
    blockers = [blocker_of(head, jobs) for head in heads]
    return [job for job in blockers if job is not None and job.status in BLOCKING], more


def blocker_of(head: TargetHead, jobs: Mapping[int, Any]) -> Any | None:
    """Return the job at the front that stops the line.

    If one job blocks the target, and the holder only waits to run again, return the one that blocks it.
    """
    holder, blocker = jobs.get(head.holder or 0), jobs.get(head.blocker or 0)
    if holder is not None and (blocker is None or holder.place not in (states.QUEUED, states.PENDING_TARGET)):
        return holder
    return blocker or holder


def state_since(job: Job, ending: LastEnding | None) -> datetime | None:
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
    exact, matching = list[Target](), dict[Target, None]()
    if search:
        exact = [Target(name, search) for name in (overview_sql.tenants_in_lines(database, MAX_TENANTS) if tenant is None else [tenant])]
    for where in (PARKED, HELD, QUEUED_IN_LINE):
        targets = overview_sql.targets_in(database, where, Target(tenant or "", ""), MAX_SEARCHED if search else MAX_TARGETS, tenant)
        matching.update(dict.fromkeys(target for target in targets if search.casefold() in mask_text(target.name).casefold()))
    return list(dict.fromkeys([*exact, *list(matching)[:MAX_TARGETS]]))


def _summaries(heads: list[TargetHead]) -> list[TargetSummary]:
    jobs = _jobs(job_id for head in heads for job_id in (head.holder, head.blocker) if job_id is not None)
    waiting = _waiting([Target(head.tenant, head.target) for head in heads])
    shown = [(head, blocker_of(head, jobs), jobs.get(head.holder or 0)) for head in heads]
    since = _since([job for _, job, _ in shown if job is not None])
    return [_summary(head, job, holder, since, *waiting[head.tenant, head.target]) for head, job, holder in shown]


def _summary(
    head: TargetHead, job: Any, holder: Any, since: Mapping[int, datetime | None], count: int, capped: bool, oldest: datetime | None
) -> TargetSummary:
    # A holder that waits to run again is counted in the line, but waits for no other job.
    alone = holder is not None and holder.place in (states.QUEUED, states.PENDING_TARGET) and not capped
    waiting = count - 1 if alone else count
    return TargetSummary(
        head.tenant,
        head.target,
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
    counts: dict[tuple[str, str], tuple[int, bool, datetime | None]] = {
        (target.tenant, target.name): (0, False, None) for target in targets
    }
    for where in (PARKED, QUEUED_IN_LINE):
        for group in overview_sql.groups(Job.objects.database, "target", where, targets, most, first):
            count, capped, oldest = counts[group.tenant, group.name]
            times = [when for when in (oldest, group.oldest) if when is not None]
            counts[group.tenant, group.name] = (count + group.number, capped or group.number == most, min(times, default=None))
    return counts


def _since(jobs: list[Job]) -> dict[int, datetime | None]:
    """Return the time since which each job is in its state, if its row has it."""
    endings = overview_sql.endings(Job.objects.database, [job.pk for job in jobs if job.status in STOPPED])
    return {job.pk: state_since(job, endings.get(job.pk)) for job in jobs}


def _urgency(summary: TargetSummary) -> tuple[bool, bool, float, str, str]:
    when = summary.oldest_waiting_at or summary.since
    return (not summary.stuck, not summary.waiting, when.timestamp() if when else math.inf, summary.tenant, summary.target)
