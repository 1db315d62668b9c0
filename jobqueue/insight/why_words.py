"""Times, names and states of other jobs in the sentences of `insight.why`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from jobqueue.core import masking, states
from jobqueue.core.moments import moment_of
from jobqueue.core.sentences import Sentence, counted, sentence
from jobqueue.db import overview
from jobqueue.insight.why_facts import Facts
from jobqueue.models import Job


def clock(when: datetime, now: datetime) -> str:
    """Return a time of day in the project's time zone, with the date unless it is today."""
    local, today = timezone.localtime(when), timezone.localtime(now)
    text = f"{local:%H:%M:%S}" if local.date() == today.date() else f"{local:%Y-%m-%d %H:%M}"
    return f"{text} {local.tzname()}"


def about(delta: timedelta) -> Sentence:
    """Return a duration from now on in its largest unit."""
    seconds = delta.total_seconds()
    if seconds >= 2 * 86400:
        return counted("in %(number)s day", "in %(number)s days", round(seconds / 86400))
    if seconds >= 2 * 3600:
        return counted("in %(number)s hour", "in %(number)s hours", round(seconds / 3600))
    if seconds >= 2 * 60:
        return sentence("in %(number)s min", number=round(seconds / 60))
    return sentence("in %(number)s s", number=round(seconds))


def queue(job: Any) -> str:
    """Return the name of a job's queue as shown."""
    return repr(masking.mask_text(job.queue))


def who(job: Any) -> dict[str, str]:
    """Return the number and the task of a job, as values of a sentence."""
    return {"job": str(job.pk), "task": job.task}


def named(job: Any) -> str:
    """Return the name of a job's target as shown, with its tenant."""
    target = repr(masking.mask_text(job.target))
    return sentence("%(target)s of tenant %(tenant)s", target=target, tenant=repr(job.tenant)) if job.tenant else target


def state_text(job: Any, facts: Facts) -> Sentence:
    """Return the state of another job, and what an operator can do about it."""
    if job.place in (states.PENDING_TIME, states.PENDING_CHILDREN):
        return _waiting_text(job)
    if job.status in (states.Status.QUEUED, states.Status.PENDING):
        return _queued_text(job, facts) if job.status == states.Status.QUEUED else sentence("it waits, too")
    if job.status == states.Status.RUNNING:
        return _running_text(job)
    return sentence("it is %(status)s%(since)s; resume, cancel or delete it", status=job.status, since=_since(job))


def _running_text(job: Any) -> Sentence:
    if job.lease_expires_at is not None and job.lease_expires_at < job.now:
        return sentence(
            "its worker was lost: its lease ran out at %(time)s, and a worker recovers it at the next check",
            time=clock(job.lease_expires_at, job.now),
        )
    if job.cancel_requested and job.cancel_outcome == states.Status.CANCELED:
        return sentence("it is RUNNING and was asked to stop, to be canceled")
    if job.cancel_requested:
        return sentence("it is RUNNING and was asked to stop, to be paused, and then holds it until it is resumed or canceled")
    return sentence("it is RUNNING%(since)s; the next job of the line starts when it ends; cancel it to end it now", since=_since(job))


def _queued_text(job: Any, facts: Facts) -> Sentence:
    row = facts.queues.get(job.queue)
    if row is not None and row.paused:
        return sentence("it is QUEUED in queue %(queue)s, which is paused: resume the queue, or cancel the job", queue=queue(job))
    workers = facts.serving(job.queue)
    if workers.others and not workers.able and not workers.draining:
        return sentence(
            "it is QUEUED in queue %(queue)s, which no live worker serves: start 'manage.py runworkers' for it, or cancel the job",
            queue=queue(job),
        )
    return sentence("it is QUEUED, and is claimed first")


def _waiting_text(job: Any) -> Sentence:
    if job.place == states.PENDING_CHILDREN:
        return sentence("it waits for its children to end; cancel it to free the target")
    until = sentence(" until %(time)s", time=clock(job.run_at, job.now)) if job.run_at else ""
    if job.sleeps(job.now):
        return sentence("it sleeps%(until)s; cancel it to free the target, or run it now", until=until)
    return sentence("it waits for a retry%(until)s; cancel it to free the target, or run it now", until=until)


def _since(job: Any) -> str:
    if job.status == states.Status.PAUSED:
        return paused_since(job)
    when = job.finished_at if job.status == states.Status.ERROR else job.started_at
    return sentence(" since %(time)s", time=clock(when, job.now)) if when else ""


def paused_since(job: Any) -> str:
    """Return the time since which a job is paused, as text. Only the history of a job that was paused while it ran has this time."""
    ending = overview.endings(Job.objects.database, [job.pk]).get(job.pk)
    when = moment_of(ending.finished_at) if ending is not None and ending.outcome == states.Status.PAUSED else None
    return sentence(" since %(time)s", time=clock(when, job.now)) if when else ""
