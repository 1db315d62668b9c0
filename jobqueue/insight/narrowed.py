"""Targets, queues and waiting jobs for users who may not see all jobs (``VISIBLE_JOBS``).

A line is shown if the user may see one of the jobs at its front. Its numbers, times and jobs are only those of
jobs that the user may see.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db.models import Count, Min, Q

from jobqueue.access import visible
from jobqueue.core import states
from jobqueue.core.sentences import sentence
from jobqueue.db import overview as overview_sql
from jobqueue.db.overview import TargetHead
from jobqueue.insight.queues import MAX_COUNTED, QueueState, queue_states, queues_in_use, sampled_names
from jobqueue.insight.targets import TargetSummary, summaries_with_heads
from jobqueue.insight.why import Why, why_waiting
from jobqueue.models import Job, Queue

BUDGET = 100_000  # the number of jobs that one request counts
HIDDEN = sentence("It waits for a job that you may not see.")
WAITING = Q(status=states.Status.QUEUED) | Q(status=states.Status.PENDING, waiting_for=states.WaitingFor.TARGET)


def why_for(user: Any, job: Any) -> Why | None:
    """Return what a job waits for, as `why_waiting`, without naming a job that the user may not see."""
    why = why_waiting(job)
    if why is None or why.job_id is None or visible.may_see(user, why.job_id):
        return why
    return Why(why.gate, HIDDEN)


def target_summaries_for(user: Any, *, search: str = "", tenant: str | None = None) -> list[TargetSummary]:
    """Return the lines of which the user may see a job; see `insight.targets.target_summaries`."""
    return [summary for summary, _ in summaries_with_heads_for(user, search=search, tenant=tenant)]


def summaries_with_heads_for(user: Any, *, search: str = "", tenant: str | None = None) -> list[tuple[TargetSummary, TargetHead]]:
    """Return these lines, each with the jobs at its front that the user may see."""
    lines = summaries_with_heads(search=search, tenant=tenant)
    if not visible.is_narrowed(user):
        return lines
    seen = _seen(user, {job_id for _, head in lines for job_id in head.job_ids})
    visible_lines = [(summary, head) for summary, head in lines if seen.intersection(head.job_ids)]
    waiting = _waiting(user, [summary for summary, _ in visible_lines])
    return [(_narrowed(summary, seen, waiting), _narrowed_head(head, seen)) for summary, head in visible_lines]


def queue_states_for(user: Any, *, idle: bool = True) -> list[QueueState]:
    """Return the queues that have a row, or jobs that the user may see; only such jobs are counted.

    If not `idle`, a queue without a row needs a job that is queued or runs.
    """
    used = queues_in_use() if idle else {}
    if not visible.is_narrowed(user):
        return queue_states({*used.values(), *sampled_names()} if idle else ())
    jobs = visible.narrow(user, Job.objects.current)
    queued = _by_queue(jobs.filter(status=states.Status.QUEUED))
    running = _by_queue(jobs.filter(status=states.Status.RUNNING))
    rows = Queue.objects.current.values_list("pk", flat=True)
    names = {*rows, *queued, *running, *(used[pk] for pk in _seen(user, used))}
    return [
        replace(
            queue,
            queued=min(queued.get(queue.name, (0, None))[0], MAX_COUNTED),
            running=running.get(queue.name, (0, None))[0],
            oldest_queued_seconds=queued.get(queue.name, (0, None))[1],
            queued_is_capped=queued.get(queue.name, (0, None))[0] >= MAX_COUNTED,
        )
        for queue in queue_states(names)
        if queue.name in names
    ]


def _seen(user: Any, ids: Iterable[int]) -> set[int]:
    return set(visible.narrow(user, Job.objects.current.filter(pk__in={*ids})).values_list("pk", flat=True))


def _narrowed_head(head: TargetHead, seen: Collection[int]) -> TargetHead:
    jobs = (job_id if job_id in seen else None for job_id in (head.holder, head.blocker, head.queued, head.parked))
    return TargetHead(head.tenant, head.target, *jobs)


def _narrowed(summary: TargetSummary, seen: Collection[int], waiting: dict[tuple[str, str], tuple[int, datetime]]) -> TargetSummary:
    number, oldest = waiting.get((summary.tenant, summary.target), (0, None))
    if summary.holder_id is not None and summary.holder_id not in seen:
        summary = replace(summary, holder_id=None, holder_task="", since=None)  # the status shows that the target is not free
    return replace(summary, waiting=min(number, summary.waiting), oldest_waiting_at=oldest if summary.waiting else None)


def _waiting(user: Any, summaries: Collection[TargetSummary]) -> dict[tuple[str, str], tuple[int, datetime]]:
    """Return the number of visible jobs that wait for each target, and the time since which the oldest waits."""
    jobs = visible.narrow(user, Job.objects.current.filter(WAITING, target__in={summary.target for summary in summaries}))
    counted = Job.objects.current.filter(pk__in=jobs.order_by().values("pk")[:BUDGET]).order_by()
    rows = counted.values_list("tenant", "target").annotate(number=Count("pk"), oldest=Min("enqueued_at"))
    return {(tenant, target): (number, oldest) for tenant, target, number, oldest in rows}


def _by_queue(jobs: Any) -> dict[str, tuple[int, float | None]]:
    """Return the number of jobs in each queue, and the seconds that the oldest has waited."""
    counted = Job.objects.current.filter(pk__in=jobs.order_by().values("pk")[:BUDGET]).order_by()
    rows = counted.values_list("queue").annotate(number=Count("pk"), oldest=Min("enqueued_at"))
    now = overview_sql.clock(Job.objects.database)
    return {queue: (number, max((now - oldest).total_seconds(), 0.0) if oldest else None) for queue, number, oldest in rows}
