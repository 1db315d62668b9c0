"""Why a job waits: the gate that stops it now, and a sentence for an operator.

The row of the job is read again, together with a bounded number of index entries. The gates are checked in the
order in which a claim meets them. The answer is true only for one moment, because a worker can take the job in
the meantime.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from jobqueue import conf, public_ids
from jobqueue.access.hiding import declared
from jobqueue.core import masking, states
from jobqueue.core.amounts import plural, verb
from jobqueue.core.json_columns import UNKNOWN_SINCE, as_dict
from jobqueue.core.moments import moment_of
from jobqueue.core.texts import safe_repr
from jobqueue.db import Now, overview
from jobqueue.exceptions import InvalidOption, JobDoesNotExist
from jobqueue.insight import children
from jobqueue.insight.targets import blocker_of
from jobqueue.insight.why_words import about, busy, clock, queue, times
from jobqueue.insight.workers import Serving, serving
from jobqueue.models import Job, Queue

COLUMNS = (
    *("pk", "tenant", "queue", "task", "status", "waiting_for", "claim_rank", "target", "holds_target", "run_at", "attempt", "failures"),
    *("crashes", "max_attempts", "options", "enqueued_at", "started_at", "finished_at", "first_started_at", "expires_at"),
    *("lease_expires_at", "cancel_requested", "cancel_outcome"),
)
WHAT_TO_DO = {
    states.Status.PAUSED: "resume, cancel or delete it",
    states.Status.ERROR: "resume, cancel or delete it",
    states.Status.RUNNING: "the next job of the line starts when it ends; cancel it to end it now",
}


@dataclass(frozen=True, slots=True)
class Why:
    """The reason for a wait: the gate for programs, the sentence for people, and the job that is waited for, if there is one."""

    gate: str
    text: str
    job_id: int | None = None


def why_waiting(job: Any) -> Why | None:
    """Return the reason why a job waits; None if it runs or has ended.

    `job` is a job, its number or public id, or the result of an enqueue. Raise `JobDoesNotExist`.
    """
    row = _read(_number(job))
    why = _gate(row)
    if why is None or row.expires_at is None or row.status == states.Status.PAUSED or row.first_started_at is not None:
        return why
    return replace(why, text=f"{why.text} It is canceled if it has not started by {clock(row.expires_at, row.now)}.")


def _gate(job: Any) -> Why | None:
    if job.status == states.Status.RUNNING or job.status in states.ENDED:
        return None
    if job.status == states.Status.PAUSED:
        return Why("paused", f"It is PAUSED{_paused_since(job)}: resume it, or cancel it.")
    if job.place == states.PENDING_CHILDREN:
        return _children(job)
    if job.place == states.PENDING_TIME:
        return _unknown_task(job) or _not_due(job)
    if job.place == states.PENDING_TARGET:
        return _target(job) or Why("free", f"{_named(job)} is free: a worker releases the next job of its line within 5 s.")
    return _paused_queue(job) or _target(job) or _limit(job) or _no_worker(job) or _unknown_task(job) or _free(job)


def _number(job: Any) -> int:
    """Return the number of a job, given as a job, a number, a public id or a result."""
    number = job if isinstance(job, int | str) else getattr(job, "pk", None) or getattr(job, "id", None)
    text = str(public_ids.number_of(number))
    if isinstance(job, bool) or not (text.isascii() and text.isdigit() and len(text) < 20):
        raise InvalidOption(f"job is {safe_repr(job)}; it must be a job, its number, or the result of its enqueue.")
    return int(text)


def _read(number: int) -> Any:
    job = Job.objects.current.only(*COLUMNS).annotate(now=Now()).filter(pk=number).first()
    if job is None:
        raise JobDoesNotExist(f"There is no job {number}.")
    return job


# The gates


def _paused_queue(job: Any) -> Why | None:
    row = Queue.objects.current.filter(pk=job.queue, paused=True).values_list("changed_at", "paused_until").first()
    if row is None:
        return None
    until = f" until {clock(row[1], job.now)}" if row[1] else ""
    return Why("paused_queue", f"Its queue {queue(job)} is paused{until} (last changed at {clock(row[0], job.now)}): resume the queue.")


def _target(job: Any) -> Why | None:
    """Return the job that holds or blocks the target, or the next job in its line, by priority and age."""
    if not job.target:
        return None
    [head] = overview.target_heads(Job.objects.database, [job.tenant_target])
    ids = [job_id for job_id in head.job_ids if job_id != job.pk]
    jobs = {job.pk: job for job in Job.objects.current.only(*COLUMNS).annotate(now=Now()).filter(pk__in=ids)}
    other = blocker_of(head, jobs)
    if other is not None:
        verb = "holds" if other.holds_target else "blocks"
        return Why("target", f"{_who(other)} {verb} {_named(job, capital=False)}: {_state_text(other)}.", other.pk)
    if job.holds_target:
        return None
    line = [ahead for ahead in jobs.values() if (ahead.claim_rank, ahead.pk) < (job.claim_rank, job.pk)]
    if not line:
        return None
    first = min(line, key=lambda ahead: (ahead.claim_rank, ahead.pk))
    order = "has a higher priority" if first.claim_rank < job.claim_rank else "is older"
    line_name = _named(job, capital=False)
    return Why("target", f"{_who(first)} is before it in the line of {line_name}, because it {order}: {_state_text(first)}.", first.pk)


def _limit(job: Any) -> Why | None:
    alive = Job.objects.current.filter(status=states.Status.RUNNING, lease_expires_at__gte=Now()).order_by()
    most = Queue.objects.current.filter(pk=job.queue).values_list("max_running", flat=True).first()
    in_all = conf.current().max_running
    if most is not None:
        running = alive.filter(queue=job.queue).count()
        if running >= most:
            return Why(
                "limit", f"{running} of at most {most} jobs of queue {queue(job)} run (its max_running): {_room(most, 'its limit')}."
            )
    if in_all is not None:
        running = alive.count()
        if running >= in_all:
            return Why("limit", f"{running} of at most {in_all} jobs run in all queues together (MAX_RUNNING): {_room(in_all, 'it')}.")
    return None


def _room(most: int, limit: str) -> str:
    return f"raise {limit}" if most == 0 else f"it can start when one of them ends; raise {limit} to let more run"


def _not_due(job: Any) -> Why:
    if job.run_at is None or job.run_at <= job.now:
        due = f" since {clock(job.run_at, job.now)}" if job.run_at else ""
        alive = serving(None)
        if not alive.able:
            return Why("no_worker", f"It is due{due}, and no worker is alive that could promote it: start 'manage.py runworkers'.")
        return Why("not_due", f"It is due{due}: a worker promotes it within a second.")
    until = f"{clock(job.run_at, job.now)} (in {about(job.run_at - job.now)})"
    if job.sleeps(job.now):
        return Why("sleeping", f"It sleeps until {until}, as its task requested; 'run now' does not wait.")
    if job.crashes and job.crashes >= job.failures:
        return Why("not_due", f"Its worker was lost {times(job.crashes)}, so it waits until {until}; 'run now' does not wait.")
    if job.failures:
        tried = f"{job.failures} of {job.max_attempts} attempts failed"
        return Why("not_due", f"It waits for a retry until {until}: {tried}; 'run now' does not wait.")
    return Why("not_due", f"It is scheduled for {until}; 'run now' does not wait.")


def _children(job: Any) -> Why:
    waits = children.waits(job)
    first = Job.objects.current.only(*COLUMNS).annotate(now=Now()).filter(pk=waits.first or 0).first()
    return Why("children", f"{waits.text}{f' ({first.task}): {_state_text(first)}.' if first is not None else '.'}", waits.first)


def _no_worker(job: Any) -> Why | None:
    workers = serving(job.queue)
    if workers.able:
        return None
    start = "start 'manage.py runworkers'"
    if workers.draining:
        number = f"{plural(workers.draining, 'worker')} for queue {queue(job)} {verb(workers.draining, 'is', 'are')}"
        return Why("no_worker", f"{number} drained or about to stop: {start}, or 'manage.py jobqueue undrain'.")
    if workers.others:
        alive = f"{plural(workers.others, 'worker')} {verb(workers.others, 'is', 'are')} alive"
        return Why("no_worker", f"{alive}, but none serves queue {queue(job)}: {start} for it.")
    return Why("no_worker", f"No worker is alive (none sent a heartbeat in the last {workers.heard_seconds} s): {start}.")


def _unknown_task(job: Any) -> Why | None:
    since = moment_of(as_dict(job.options).get(UNKNOWN_SINCE))
    if since is None:
        return None
    last = since + timedelta(seconds=conf.current().unknown_task_grace_seconds)
    return Why(
        "unknown_task",
        f"The worker that claimed it has not had the task {job.task!r} since {clock(since, job.now)}: deploy its code, name its"
        f" module in TASK_MODULES, or cancel the job. It is tried again every few seconds, and ends in ERROR after {clock(last, job.now)}.",
    )


def _free(job: Any) -> Why:
    workers: Serving = serving(job.queue)
    if workers.slots and workers.running >= workers.slots:
        crowd = busy(workers.slots, f"the {plural(workers.able, 'worker')} for queue {queue(job)}")
        return Why("free", f"It waits only for the jobs before it: {crowd} a moment ago. The next free slot takes the next job.")
    if declared(job.task) is None:
        return Why("free", f"The next free worker whose code has the task {job.task!r} can run it. This process has no such task.")
    return Why("free", "Nothing blocks it: the next free worker claims it.")


# Words


def _who(job: Any) -> str:
    return f"Job {job.pk} ({job.task})"


def _named(job: Any, *, capital: bool = True) -> str:
    of_tenant = f" of tenant {job.tenant!r}" if job.tenant else ""
    return f"{'T' if capital else 't'}arget {masking.mask_text(job.target)!r}{of_tenant}"


def _state_text(job: Any) -> str:
    """Return the state of another job, and what an operator can do about it."""
    now, status = job.now, job.status
    if job.place in (states.PENDING_TIME, states.PENDING_CHILDREN):
        return _waiting_text(job)
    if status in (states.Status.QUEUED, states.Status.PENDING):
        return _queued_text(job) if status == states.Status.QUEUED else "it waits, too"
    if status == states.Status.RUNNING and job.lease_expires_at is not None and job.lease_expires_at < now:
        return f"its worker was lost: its lease ran out at {clock(job.lease_expires_at, now)}, and a worker recovers it at the next check"
    if status == states.Status.RUNNING and job.cancel_requested:
        end = "canceled" if job.cancel_outcome == states.Status.CANCELED else "paused, and then holds it until it is resumed or canceled"
        return f"it is RUNNING and was asked to stop, to be {end}"
    return f"it is {status}{_since(job)}; {WHAT_TO_DO[states.Status(status)]}"


def _queued_text(job: Any) -> str:
    place = f"it is QUEUED in queue {queue(job)}, which"
    if _paused_queue(job) is not None:
        return f"{place} is paused: resume the queue, or cancel the job"
    workers = serving(job.queue)
    if workers.others and not workers.able and not workers.draining:
        return f"{place} no live worker serves: start 'manage.py runworkers' for it, or cancel the job"
    return "it is QUEUED, and is claimed first"


def _waiting_text(job: Any) -> str:
    if job.place == states.PENDING_CHILDREN:
        return "it waits for its children to end; cancel it to free the target"
    until = f" until {clock(job.run_at, job.now)}" if job.run_at else ""
    return f"it {'sleeps' if job.sleeps(job.now) else 'waits for a retry'}{until}; cancel it to free the target, or run it now"


def _since(job: Any) -> str:
    if job.status == states.Status.PAUSED:
        return _paused_since(job)
    when = job.finished_at if job.status == states.Status.ERROR else job.started_at
    return f" since {clock(when, job.now)}" if when else ""


def _paused_since(job: Any) -> str:
    """Return the time since which a job is paused, as text. Only the history of a job that was paused while it ran has this time."""
    ending = overview.endings(Job.objects.database, [job.pk]).get(job.pk)
    when = moment_of(ending.finished_at) if ending is not None and ending.outcome == states.Status.PAUSED else None
    return f" since {clock(when, job.now)}" if when else ""
