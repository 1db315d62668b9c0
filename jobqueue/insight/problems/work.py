"""Problems of queues, jobs, targets and schedules; each check reads a bounded number of index entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from jobqueue.core import queue_rules, states
from jobqueue.core.masking import mask_text
from jobqueue.core.sentences import Sentence, bounded, counted, sentence
from jobqueue.core.texts import safe_repr, shorten
from jobqueue.db import Now, counting
from jobqueue.db import overview as overview_sql
from jobqueue.db.aside import PREFIX
from jobqueue.db.overview import MAX_QUEUES
from jobqueue.insight.problems.base import MAX_COUNTED, PageLink, Problem, Severity, Thresholds, above, within
from jobqueue.insight.queues import queue_states
from jobqueue.insight.targets import MAX_STUCK_CHECKED, blocking_jobs
from jobqueue.insight.why import waiting_reasons
from jobqueue.insight.workers import MAX_WORKERS, alive, live_with_counts, serving_among
from jobqueue.models import BulkAction, Job, Queue, Schedule

STUCK_SECONDS = 60
MAX_FIRST = 20  # the queues whose first job is read
WAITS = {*states.WaitingFor.values} - {states.WaitingFor.NOTHING.value}
MAX_READ = 1000  # the newest jobs in ERROR that are read for those that were set aside
MAX_SCANNED = 500  # the oldest and the newest jobs that are read for states that no index has


def long_wait(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem for each queue whose oldest QUEUED job waits for too long, unless the queue is paused or limited to 0."""
    if given.max_age is None:
        return
    for queue in queue_states():
        waited = queue.oldest_queued_seconds
        if queue.paused or queue.max_running == 0 or waited is None or not above(waited, given.max_age):
            continue
        text = sentence(
            "Queue %(queue)s: the oldest QUEUED job has waited for %(seconds)s s; the limit is %(limit)s s.",
            queue=repr(queue.name),
            seconds=f"{waited:.0f}",
            limit=f"{given.max_age:g}",
        )
        fix = sentence("Start more workers for this queue, or check on the page of one of its jobs why it waits.")
        link = _jobs(status=states.Status.QUEUED, queue=queue.name)
        yield Problem("long_wait", Severity.ERROR, text, fix, queue.name, queue.queued, link=link)


def unserved_queue(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem for each queue that has QUEUED jobs and no live worker that starts jobs; without any, `no_worker` reports that."""
    workers = list(alive().filter(drain_requested=False)[:MAX_WORKERS])
    rules = {rule for worker in workers if (rule := queue_rules.parse_stored(worker.queues)) is not None}
    if given.max_unserved_queues is None or not workers or queue_rules.ALL in rules:
        return
    closed = {*Queue.objects.current.not_starting().values_list("pk", flat=True)}
    filled = {pair.name for pair in overview_sql.queues_in(Job.objects.database, MAX_QUEUES)} - closed
    unserved = sorted(name for name in filled if not any(rule.matches(name) for rule in rules))
    if above(len(unserved), given.max_unserved_queues):
        for name in unserved:
            text = sentence("Queue %(queue)s has QUEUED jobs, and no live worker serves it.", queue=repr(name))
            fix = sentence("Start a worker for it: manage.py runworkers --queues. If the name is wrong, cancel the jobs.")
            yield Problem("unserved_queue", Severity.ERROR, text, fix, name, link=_jobs(status=states.Status.QUEUED, queue=name))


def failed_jobs(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem if too many jobs ended in ERROR recently and are still in it."""
    if given.max_failed_jobs is None:
        return
    rows = Job.objects.current.filter(status=states.Status.ERROR, finished_at__gt=Now() - timedelta(seconds=given.since))
    most = max(MAX_COUNTED, int(given.max_failed_jobs) + 1)
    number = counting.count_in_order(Job.objects.database, rows.order_by("-finished_at"), most, "finished_at")
    if above(number, given.max_failed_jobs):
        more = number >= MAX_COUNTED
        text = counted(
            "%(number)s job ended in ERROR %(within)s.",
            "%(number)s jobs ended in ERROR %(within)s.",
            bounded(number, more),
            within=within(given.since),
        )
        fix = sentence("Read the error on the page of one of them. Then resume or cancel them.")
        link = _jobs(status=states.Status.ERROR, ended_within=f"{given.since:g}")
        yield Problem("failed_jobs", Severity.WARNING, text, fix, count=number, more=more, link=link)


def set_aside_jobs(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem for each job in ERROR that was set aside recently because its row could not be read or written."""
    recently = Now() - timedelta(seconds=given.since)
    rows = Job.objects.current.filter(status=states.Status.ERROR, finished_at__gt=recently).order_by("-finished_at")
    for job_id, message in rows.values_list("pk", "message")[:MAX_READ]:
        if message.startswith(PREFIX):
            reason = shorten(mask_text(message[len(PREFIX) :]), 300)
            text = sentence("Job %(job)s was set aside: %(reason)s.", job=str(job_id), reason=reason)
            fix = sentence(
                "A value of its row is invalid, usually one that raw SQL has written. Correct it and resume the job, or cancel it."
            )
            yield Problem("set_aside_jobs", Severity.WARNING, text, fix, str(job_id), link=PageLink("jobqueue_job_change", (str(job_id),)))


def stuck_rows(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem if live workers do not recover the jobs of lost workers, or do not promote jobs that are due."""
    if not alive().exists():
        return
    long_ago = Now() - timedelta(seconds=STUCK_SECONDS)
    due = Job.objects.current.filter(status=states.Status.PENDING, waiting_for=states.WaitingFor.TIME)
    kinds: tuple[tuple[Callable[[int, str], Sentence], Any], ...] = (
        (_with_expired_leases, Job.objects.current.expired().exclude(lease_expires_at__gt=long_ago, lease_expires_at__lt=Now())),
        (_past_their_times, due.filter(run_at__lt=long_ago)),
        (_without_times, due.filter(run_at__isnull=True)),
    )
    for text_of, rows in kinds:
        ids = list(rows.order_by().values_list("pk", flat=True)[:MAX_COUNTED])
        if ids:
            more = len(ids) >= MAX_COUNTED
            text = text_of(bounded(len(ids), more), str(min(ids)))
            fix = sentence("Check that the duties run; the log of their leader names the rows that it cannot move.")
            link = PageLink("jobqueue_job_change", (str(min(ids)),))
            yield Problem("stuck_rows", Severity.ERROR, text, fix, count=len(ids), more=more, link=link)


def _with_expired_leases(number: int, job: str) -> Sentence:
    return counted(
        "No worker moves %(number)s job that is RUNNING, although its lease expired more than %(seconds)s s ago, job %(job)s.",
        "No worker moves %(number)s jobs that are RUNNING, although their leases expired more than %(seconds)s s ago, such as job %(job)s.",
        number,
        seconds=STUCK_SECONDS,
        job=job,
    )


def _past_their_times(number: int, job: str) -> Sentence:
    return counted(
        "No worker moves %(number)s job that is PENDING, although its time came more than %(seconds)s s ago, job %(job)s.",
        "No worker moves %(number)s jobs that are PENDING, although their times came more than %(seconds)s s ago, such as job %(job)s.",
        number,
        seconds=STUCK_SECONDS,
        job=job,
    )


def _without_times(number: int, job: str) -> Sentence:
    return counted(
        "No worker moves %(number)s job that is PENDING for a time, but has none, job %(job)s.",
        "No worker moves %(number)s jobs that are PENDING for a time, but have none, such as job %(job)s.",
        number,
        job=job,
    )


def passed_over_jobs(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem for each QUEUED job that is first in its queue and has not been claimed for long, although workers have free slots.

    The database refuses to change such a row, for instance by a trigger of the user's project.
    """
    late = timedelta(seconds=STUCK_SECONDS)
    rows = Job.objects.current.filter(pk__in=overview_sql.first_in_queues(Job.objects.database, MAX_FIRST))
    queues = dict(rows.filter(status=states.Status.QUEUED, enqueued_at__lt=Now() - late).order_by().values_list("pk", "queue"))
    workers = live_with_counts() if queues else []
    free = [job_id for job_id, queue in queues.items() if (able := serving_among(workers, queue)).running < able.slots]
    reasons = waiting_reasons(free) if free else {}
    for job_id, why in sorted(reasons.items()):
        if why is not None and why.gate == "free":
            text = sentence(
                "Job %(job)s has been QUEUED for more than %(seconds)s s, and workers with free slots do not claim it.",
                job=str(job_id),
                seconds=STUCK_SECONDS,
            )
            fix = sentence("The database probably refuses to change its row; the log of the workers says why.")
            link = PageLink("jobqueue_job_change", (str(job_id),))
            yield Problem("passed_over_jobs", Severity.ERROR, text, fix, str(job_id), link=link)


def unknown_states(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem for each job whose status or reason to wait does not exist, so that no worker, duty or retention finds it.

    No index has these jobs. The check reads the oldest jobs, among which they remain, and the newest.
    """
    unknown: dict[int, Sentence] = {}
    for order in ("pk", "-pk"):
        for job_id, status, waiting_for in Job.objects.current.order_by(order).values_list("pk", "status", "waiting_for")[:MAX_SCANNED]:
            if status not in states.Status.values:
                unknown[job_id] = sentence(
                    "Job %(job)s has the status %(status)s, which does not exist. No worker or duty moves it.",
                    job=str(job_id),
                    status=safe_repr(status),
                )
            elif status == states.Status.PENDING and waiting_for not in WAITS:
                unknown[job_id] = sentence(
                    "Job %(job)s has the status PENDING and waits for %(reason)s, which does not exist. No worker or duty moves it.",
                    job=str(job_id),
                    reason=safe_repr(waiting_for),
                )
    for job_id, text in sorted(unknown.items()):
        fix = sentence("It was written by raw SQL. Correct its status by SQL, or delete it.")
        yield Problem("unknown_states", Severity.WARNING, text, fix, str(job_id), link=PageLink("jobqueue_job_change", (str(job_id),)))


def blocked_targets(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem if jobs wait for targets that a PAUSED or failed job blocks: only an operator can release these."""
    if given.max_blocked_targets is None:
        return
    blockers, more = blocking_jobs()
    if above(len(blockers), given.max_blocked_targets):
        first = blockers[0]
        only = sentence(" (only the first %(number)s targets that jobs wait for were checked)", number=MAX_STUCK_CHECKED)
        text = counted(
            "The jobs of %(number)s target wait for an operator, behind job %(job)s, which is %(status)s%(scope)s.",
            "The jobs of %(number)s targets wait for an operator, such as behind job %(job)s, which is %(status)s%(scope)s.",
            len(blockers),
            job=str(first.pk),
            status=first.status,
            scope=only if more else "",
        )
        fix = sentence("Resume, cancel or delete the job that blocks each target, or clear the target.")
        link = PageLink("jobqueue_job_targets", query={"stuck": "1"})
        yield Problem("blocked_targets", Severity.WARNING, text, fix, count=len(blockers), more=more, link=link)


def failing_schedules(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem if schedules could not enqueue their job at the last attempt."""
    names = list(Schedule.objects.current.failing().order_by("name").values_list("name", flat=True)[: MAX_COUNTED + 1])
    if above(len(names), given.max_failing_schedules):
        more = len(names) > MAX_COUNTED
        number = min(len(names), MAX_COUNTED)
        text = counted(
            "%(number)s schedule could not enqueue its job at the last try, %(name)s.",
            "%(number)s schedules could not enqueue their jobs at the last try, such as %(name)s.",
            bounded(number, more),
            name=repr(names[0]),
        )
        fix = sentence("The schedule's last error says why.")
        link = PageLink("jobqueue_schedule_changelist", query={"failing": "1"})
        yield Problem("failing_schedules", Severity.ERROR, text, fix, count=number, more=more, link=link)


def schedule_conflicts(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem for each schedule that several projects or services declare by one name: only the first is enqueued."""
    for row in Schedule.objects.current.active().exclude(conflict="").order_by("name")[: MAX_COUNTED + 1]:
        text = sentence("The schedule %(name)s is declared twice: %(conflict)s.", name=repr(row.name), conflict=row.conflict)
        fix = sentence("Give one of the two schedules another name.")
        link = PageLink("jobqueue_schedule_change", (str(row.pk),))
        yield Problem("schedule_conflicts", Severity.ERROR, text, fix, row.name, link=link)


def failed_bulk_actions(given: Thresholds) -> Iterator[Problem]:
    """Yield a problem for each bulk action that failed recently."""
    rows = BulkAction.objects.using(Job.objects.database.alias).filter(state=BulkAction.State.FAILED)
    for action in rows.filter(finished_at__gt=Now() - timedelta(seconds=given.since)).order_by("-pk")[:MAX_COUNTED]:
        text = counted(
            "Bulk action %(action)s (%(verb)s) has failed after %(number)s job: %(reason)s",
            "Bulk action %(action)s (%(verb)s) has failed after %(number)s jobs: %(reason)s",
            action.done,
            action=str(action.pk),
            verb=action.verb,
            reason=mask_text(action.message),
        )
        fix = sentence("Correct the reason, and request it again.")
        yield Problem("failed_bulk_actions", Severity.WARNING, text, fix, str(action.pk))


def _jobs(**query: str) -> PageLink:
    return PageLink("jobqueue_job_changelist", query={name: str(value) for name, value in query.items()})
