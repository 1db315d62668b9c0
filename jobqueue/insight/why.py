"""Why a job waits: the gate that stops it now, and a sentence for an operator.

The row of the job is read again, together with a bounded number of index entries. The gates are checked in the
order in which a claim meets them. The answer is true only for one moment, because a worker can take the job in
the meantime.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from jobqueue import conf, public_ids
from jobqueue.access.hiding import declared
from jobqueue.core import states
from jobqueue.core.json_columns import UNKNOWN_SINCE, as_dict
from jobqueue.core.moments import moment_of
from jobqueue.core.queue_rules import limit_of
from jobqueue.core.sentences import counted, joined, sentence
from jobqueue.exceptions import JobDoesNotExist
from jobqueue.insight import children
from jobqueue.insight.targets import blocker_of
from jobqueue.insight.why_facts import Facts, read
from jobqueue.insight.why_words import about, clock, named, paused_since, queue, state_text, who


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
    number = public_ids.number_of(job)
    if number < 0:
        raise public_ids.not_a_job(job)
    rows = read([number])
    if not rows:
        raise JobDoesNotExist(f"There is no job {number}.")
    return _why(rows[0], Facts(rows))


def waiting_reasons(ids: Collection[int]) -> dict[int, Why | None]:
    """Return the result of `why_waiting` for each of some jobs that exist, in a few statements."""
    rows = read(ids)
    facts = Facts(rows)
    return {row.pk: _why(row, facts) for row in rows}


def _why(row: Any, facts: Facts) -> Why | None:
    why = _gate(row, facts)
    if why is None or row.expires_at is None or row.status == states.Status.PAUSED or row.first_started_at is not None:
        return why
    ends = sentence("It is canceled if it has not started by %(time)s.", time=clock(row.expires_at, row.now))
    return replace(why, text=joined(why.text, ends))


def _gate(job: Any, facts: Facts) -> Why | None:
    if job.status == states.Status.RUNNING or job.status in states.ENDED:
        return None
    if job.status == states.Status.PAUSED:
        return Why("paused", sentence("It is PAUSED%(since)s: resume it, or cancel it.", since=paused_since(job)))
    if job.place == states.PENDING_CHILDREN:
        return _children(job)
    if job.place == states.PENDING_TIME:
        return _unknown_task(job) or _not_due(job, facts)
    if job.place == states.PENDING_TARGET:
        text = sentence("Target %(target)s is free: a worker releases the next job of its line within 5 s.", target=named(job))
        return _target(job, facts) or Why("free", text)
    return (
        _paused_queue(job, facts)
        or _target(job, facts)
        or _limit(job, facts)
        or _no_worker(job, facts)
        or _unknown_task(job)
        or _free(job, facts)
    )


# The gates


def _paused_queue(job: Any, facts: Facts) -> Why | None:
    row = facts.queues.get(job.queue)
    if row is None or not row.paused:
        return None
    values = {"queue": queue(job), "changed": clock(row.changed_at, job.now)}
    if row.paused_until:
        text = sentence(
            "Its queue %(queue)s is paused until %(time)s (last changed at %(changed)s): resume the queue.",
            time=clock(row.paused_until, job.now),
            **values,
        )
    else:
        text = sentence("Its queue %(queue)s is paused (last changed at %(changed)s): resume the queue.", **values)
    return Why("paused_queue", text)


def _target(job: Any, facts: Facts) -> Why | None:
    """Return the job that holds or blocks the target, or the next job in its line, by priority and age."""
    if not job.target:
        return None
    head = facts.heads[job.tenant_target]
    jobs = {job_id: facts.ahead[job_id] for job_id in head.job_ids if job_id != job.pk and job_id in facts.ahead}
    other = blocker_of(head, jobs)
    if other is not None:
        values = {"target": named(job), "state": state_text(other, facts), **who(other)}
        if other.holds_target:
            text = sentence("Job %(job)s (%(task)s) holds target %(target)s: %(state)s.", **values)
        else:
            text = sentence("Job %(job)s (%(task)s) blocks target %(target)s: %(state)s.", **values)
        return Why("target", text, other.pk)
    if job.holds_target:
        return None
    line = [ahead for ahead in jobs.values() if (ahead.claim_rank, ahead.pk) < (job.claim_rank, job.pk)]
    if not line:
        return None
    first = min(line, key=lambda ahead: (ahead.claim_rank, ahead.pk))
    values = {"target": named(job), "state": state_text(first, facts), **who(first)}
    if first.claim_rank < job.claim_rank:
        text = sentence(
            "Job %(job)s (%(task)s) is before it in the line of target %(target)s, because it has a higher priority: %(state)s.", **values
        )
    else:
        text = sentence("Job %(job)s (%(task)s) is before it in the line of target %(target)s, because it is older: %(state)s.", **values)
    return Why("target", text, first.pk)


def _limit(job: Any, facts: Facts) -> Why | None:
    row = facts.queues.get(job.queue)
    most = None if row is None or row.max_running is None else limit_of(row.max_running)
    in_all = conf.current().max_running
    if most is not None:
        running = facts.running.get(job.queue, 0)
        if running >= most:
            text = sentence(
                "%(running)s of at most %(most)s jobs of queue %(queue)s run (its max_running): %(fix)s.",
                running=running,
                most=most,
                queue=queue(job),
                fix=sentence("raise its limit")
                if most == 0
                else sentence("it can start when one of them ends; raise its limit to let more run"),
            )
            return Why("limit", text)
    if in_all is not None:
        running = sum(facts.running.values())
        if running >= in_all:
            text = sentence(
                "%(running)s of at most %(most)s jobs run in all queues together (MAX_RUNNING): %(fix)s.",
                running=running,
                most=in_all,
                fix=sentence("raise it") if in_all == 0 else sentence("it can start when one of them ends; raise it to let more run"),
            )
            return Why("limit", text)
    return None


def _not_due(job: Any, facts: Facts) -> Why:
    if job.run_at is None or job.run_at <= job.now:
        due = sentence(" since %(time)s", time=clock(job.run_at, job.now)) if job.run_at else ""
        if not facts.serving(None).able:
            text = sentence("It is due%(since)s, and no worker is alive that could promote it: start 'manage.py runworkers'.", since=due)
            return Why("no_worker", text)
        return Why("not_due", sentence("It is due%(since)s: a worker promotes it within a second.", since=due))
    until = {"time": clock(job.run_at, job.now), "distance": about(job.run_at - job.now)}
    if job.sleeps(job.now):
        text = sentence("It sleeps until %(time)s (%(distance)s), as its task requested; 'run now' does not wait.", **until)
        return Why("sleeping", text)
    if job.crashes and job.crashes >= job.failures:
        text = counted(
            "Its worker was lost once, so it waits until %(time)s (%(distance)s); 'run now' does not wait.",
            "Its worker was lost %(number)s times, so it waits until %(time)s (%(distance)s); 'run now' does not wait.",
            job.crashes,
            **until,
        )
    elif job.failures:
        text = sentence(
            "It waits for a retry until %(time)s (%(distance)s): %(failures)s of %(most)s attempts failed; 'run now' does not wait.",
            failures=job.failures,
            most=job.max_attempts,
            **until,
        )
    else:
        text = sentence("It is scheduled for %(time)s (%(distance)s); 'run now' does not wait.", **until)
    return Why("not_due", text)


def _children(job: Any) -> Why:
    waits = children.waits(job)
    first = next(iter(read([waits.first or 0])), None)
    if first is None:
        return Why("children", sentence("%(children)s.", children=waits.text), waits.first)
    text = sentence("%(children)s (%(task)s): %(state)s.", children=waits.text, task=first.task, state=state_text(first, Facts([first])))
    return Why("children", text, waits.first)


def _no_worker(job: Any, facts: Facts) -> Why | None:
    workers = facts.serving(job.queue)
    if workers.able:
        return None
    if workers.draining:
        text = counted(
            "%(number)s worker for queue %(queue)s is drained or about to stop: start 'manage.py runworkers', or "
            "'manage.py jobqueue undrain'.",
            "%(number)s workers for queue %(queue)s are drained or about to stop: start 'manage.py runworkers', or "
            "'manage.py jobqueue undrain'.",
            workers.draining,
            queue=queue(job),
        )
    elif workers.others:
        text = counted(
            "%(number)s worker is alive, but none serves queue %(queue)s: start 'manage.py runworkers' for it.",
            "%(number)s workers are alive, but none serves queue %(queue)s: start 'manage.py runworkers' for it.",
            workers.others,
            queue=queue(job),
        )
    else:
        text = sentence(
            "No worker is alive (none sent a heartbeat in the last %(seconds)s s): start 'manage.py runworkers'.",
            seconds=workers.heard_seconds,
        )
    return Why("no_worker", text)


def _unknown_task(job: Any) -> Why | None:
    since = moment_of(as_dict(job.options).get(UNKNOWN_SINCE))
    if since is None:
        return None
    last = since + timedelta(seconds=conf.current().unknown_task_grace_seconds)
    text = sentence(
        "The worker that claimed it has not had the task %(task)s since %(time)s: deploy its code, name its module in TASK_MODULES, or "
        "cancel the job. It is tried again every few seconds, and ends in ERROR after %(end)s.",
        task=repr(job.task),
        time=clock(since, job.now),
        end=clock(last, job.now),
    )
    return Why("unknown_task", text)


def _free(job: Any, facts: Facts) -> Why:
    workers = facts.serving(job.queue)
    if workers.slots and workers.running >= workers.slots:
        text = counted(
            "It waits only for the jobs before it: the only slot of the workers for queue %(queue)s was busy a moment ago. "
            "The next free slot takes the next job.",
            "It waits only for the jobs before it: all %(number)s slots of the workers for queue %(queue)s were busy a moment ago. "
            "The next free slot takes the next job.",
            workers.slots,
            queue=queue(job),
        )
    elif declared(job.task) is None:
        text = sentence(
            "The next free worker whose code has the task %(task)s can run it. This process has no such task.", task=repr(job.task)
        )
    else:
        text = sentence("Nothing blocks it: the next free worker claims it.")
    return Why("free", text)
