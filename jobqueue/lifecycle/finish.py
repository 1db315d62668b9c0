"""Finish: write what came of runs, each guarded by id, `lease_token` and a live lease.

The status is decided by the flag on the locked row, since the worker's view of it may be old. SUCCESS and ERROR stand. Everything
that would let the job run again (retry, hand-back, interrupt, unknown task, sleep, wait) becomes PAUSED or CANCELED where a flag stands; an
interrupt whose flag was withdrawn becomes QUEUED, its attempt given back. An outcome that moves no row came too late: the lease
was lost, and nothing of it counts. A row that somebody has locked is passed over and told as `later`: one locked row must not
hold up the outcomes of all others.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from jobqueue import conf, states
from jobqueue import event_names as names
from jobqueue.db import Claimed, Event, Lease, Now, Success
from jobqueue.events.record import event, last_progress, record_all
from jobqueue.lifecycle import failing, history, suspend, wakeup
from jobqueue.lifecycle.endings import ending, is_repeated
from jobqueue.lifecycle.lines import moment_of
from jobqueue.lifecycle.outcome import (
    EXPIRED,
    FINISHED_FIRST,
    INTERRUPTED_BY_SHUTDOWN,
    INTERRUPTED_BY_USER,
    UNKNOWN_SINCE,
    UNKNOWN_TASK_PAUSE_SECONDS,
    HandOver,
    Kind,
    Outcome,
    Settled,
)
from jobqueue.lifecycle.refusals import one_by_one_if_refused
from jobqueue.lifecycle.release import settle, settle_safely, try_lock
from jobqueue.line import Target
from jobqueue.models import Job

UNREAD = ("args", "kwargs", "result", "created_at", "enqueued_at", "heartbeat_at", "lease_expires_at")  # it decides nothing
Decision = tuple[states.Place, dict[str, Any]]


def finish(outcomes: Sequence[Outcome], hand_over: HandOver | None = None) -> list[Settled]:
    """Write the outcomes, successes and plain failures in few statements and the others row by row; raise where the database is not there.

    Those with a target are written in a transaction of their own that holds the targets' locks; it lets the lines move on, or hands
    the next job of a target to this worker.
    """
    plain = [outcome for outcome in outcomes if outcome.target is None]
    targeted = [outcome for outcome in outcomes if outcome.target is not None]
    successes = [outcome for outcome in plain if outcome.kind is Kind.SUCCESS]
    done = one_by_one_if_refused(_succeed, successes, _decide_all)
    for alike in failing.plain(plain):  # one statement each: what it has written must not be tried again since another was refused
        done += one_by_one_if_refused(failing.fail, alike, _decide_all)
    written = {one.outcome.lease for one in done}
    others = [outcome for outcome in plain if outcome.lease not in written]
    return [
        *done,
        *one_by_one_if_refused(_decide_all, others, _decide_all),
        *one_by_one_if_refused(partial(_finish_targeted, hand_over), targeted, alone := partial(_finish_alone, hand_over), alone),
    ]


def finish_with_work(outcome: Outcome) -> Settled:
    """Write one success in the caller's transaction, which is that of its work; raise where the database refuses its values.

    It never becomes another ending: that would be committed together with work that counts as not done.
    """
    return (_succeed([outcome]) if outcome.target is None else _finish_targeted(None, [outcome]))[0]


def _finish_targeted(hand_over: HandOver | None, outcomes: Sequence[Outcome]) -> list[Settled]:
    if not outcomes:
        return []
    with Job.objects.database.atomic():
        done = _relay(outcomes, hand_over) or (_lock_and_write(outcomes), None)
        freed = {one.outcome.target: one.outcome.lease for one in done[0] if one.status in states.FINAL and one.outcome.target is not None}
        jobs, let_go = _move_on(freed, hand_over, done[1])
    if hand_over is not None:
        hand_over.taken += jobs
        hand_over.let_go |= let_go
    return done[0]


def _finish_alone(hand_over: HandOver | None, outcomes: Sequence[Outcome]) -> list[Settled]:
    """Write outcomes with a target that were refused: the row of the next job of a target may be what refuses, which is not their fault."""
    with Job.objects.database.atomic():
        done = _lock_and_write(outcomes)
        freed = {one.outcome.target for one in done if one.status in states.FINAL and one.outcome.target is not None}
        let_go = settle_safely(freed)
    if hand_over is not None and let_go:
        hand_over.let_go |= {target.tenant for target in freed}
    return done


def _lock_and_write(outcomes: Sequence[Outcome]) -> list[Settled]:
    # The locks come first, whatever the outcomes, and rows only then. It does not wait for a lock: one that somebody keeps must not
    # hold up the others. Those outcomes are written later.
    locked = try_lock({o.target for o in outcomes if o.target is not None})
    ready = [o for o in outcomes if o.target in locked]
    later = [Settled(o, "", later=True) for o in outcomes if o.target not in locked]
    successes = _succeed([o for o in ready if o.kind is Kind.SUCCESS])
    return [*later, *successes, *_decide_all([o for o in ready if o.kind is not Kind.SUCCESS])]


def _relay(outcomes: Sequence[Outcome], hand_over: HandOver | None) -> tuple[list[Settled], list[Claimed]] | None:
    """Lock, write and take the next in one message where it is one success alone; None where it is not, or this connection cannot."""
    outcome = outcomes[0]
    if hand_over is None or len(outcomes) > 1 or outcome.kind is not Kind.SUCCESS or outcome.target is None:
        return None
    if outcome.lease not in hand_over.leases:
        return None
    to = (hand_over.lender, outcome.target, hand_over.queues, hand_over.closed)
    done = Job.objects.database.relay(_success(outcome, time.monotonic()), FINISHED_FIRST, to)
    if done is None:
        return None
    if not done.locked:
        return [Settled(outcome, "", later=True)], []
    return [Settled(outcome, states.Status.SUCCESS.value)] if done.written else _missed(outcomes), done.taken


def _move_on(freed: Mapping[Target, Lease], hand_over: HandOver | None, taken: list[Claimed] | None) -> tuple[list[Claimed], set[str]]:
    """Hand the next jobs of free targets over to this worker where it may take them; let the others go, and return their tenants.

    `taken` are those that it has taken already; None: not tried yet.
    """
    if not freed:
        return [], set()
    jobs = taken or []
    if taken is None and hand_over is not None and (mine := [target for target, lease in freed.items() if lease in hand_over.leases]):
        # After the holders' rows were written: two rows of a target must not change places in one statement.
        jobs = Job.objects.database.hand_over(hand_over.lender, mine, hand_over.queues, hand_over.closed)
    moved = {Target(job.tenant, job.target) for job in jobs}
    rest = [target for target in freed if target not in moved]
    return jobs, {target.tenant for target in rest} if settle(rest) else set()


def written_before(outcomes: Iterable[Outcome]) -> dict[Lease, str]:
    """Return the outcomes that the database has already: their commit was done, but its acknowledgement was lost."""
    expected = {outcome.lease: outcome for outcome in outcomes}
    rows = Job.objects.current.filter(pk__in=[lease.job_id for lease in expected]).exclude(status=states.Status.RUNNING)
    ended, found = {Kind.SUCCESS: states.Status.SUCCESS, Kind.ERROR: states.Status.ERROR}, {}
    for job_id, token, status in rows.values_list("pk", "lease_token", "status"):
        outcome = expected.get(Lease(job_id, token))
        if outcome is not None and ended.get(outcome.kind) == status:
            found[outcome.lease] = status
    return found


def _succeed(outcomes: Sequence[Outcome]) -> list[Settled]:
    if not outcomes:
        return []
    now = time.monotonic()
    written = set(Job.objects.database.succeed([_success(o, now) for o in outcomes], FINISHED_FIRST))
    if len(written) == len(outcomes):
        return [Settled(o, states.Status.SUCCESS.value) for o in outcomes]
    done = [Settled(o, states.Status.SUCCESS.value) for o in outcomes if o.lease in written]
    return done + _missed([o for o in outcomes if o.lease not in written])


def _success(outcome: Outcome, now: float) -> Success:
    job_id, token = outcome.lease
    began, ended = now - (outcome.began or now), now - (outcome.ended or now)
    return Success(job_id, token, outcome.result, began, ended, outcome.message, outcome.metadata)


def _missed(outcomes: Sequence[Outcome]) -> list[Settled]:
    """Tell the outcomes that came too late from those whose row somebody has locked just now."""
    if not outcomes:
        return []
    standing = Job.objects.still_ours(o.lease for o in outcomes)
    return [Settled(o, "", later=o.lease in standing) for o in outcomes]


def _decide_all(outcomes: Sequence[Outcome]) -> list[Settled]:
    if not outcomes:
        return []
    now = time.monotonic()
    with Job.objects.database.atomic():
        found = Job.objects.current.unlocked().defer(*UNREAD).filter(pk__in=[o.lease.job_id for o in outcomes]).order_by("pk")
        rows = found.annotate(now=Now())
        jobs = {Lease(job.pk, job.lease_token): job for job in rows if job.status == states.Status.RUNNING}
        ours = [(o, jobs[o.lease]) for o in outcomes if o.lease in jobs]
        decisions = [decide(job, o, job.now, now) for o, job in ours]  # type: ignore[attr-defined]
        moved = Job.objects.move_all([(job, *decision) for (_, job), decision in zip(ours, decisions, strict=True)])
        events: list[Event] = []
        done = [
            Settled(o, _follow_up(job, o, decision, now, events) if job.pk in moved else "")
            for (o, job), decision in zip(ours, decisions, strict=True)
        ]
        record_all(events)
    return done + _missed([o for o in outcomes if o.lease not in jobs])


def _follow_up(job: Job, outcome: Outcome, decision: Decision, now: float, events: list[Event]) -> str:
    """Do what comes with a move, and add what happened to the events; return the new status."""
    destination, fields = decision
    message, began = fields.get("message", ""), _began(job, outcome, job.now, now)  # type: ignore[attr-defined]
    if job.started_at is None and began is not None:
        events.append(event(job, names.STARTED, at=began))
    if outcome.told is not None and (last := last_progress(job, *outcome.told)) is not None:
        events.append(last)
    if not is_repeated(job, outcome, destination[0]):
        events.append(ending(job, outcome, destination[0], message))
    suspend.end_phases(job, outcome, destination, message)
    if destination == states.QUEUED:
        wakeup.work(job.queue, job.tenant)
    elif destination == states.PENDING_TIME:
        wakeup.due(outcome.delay_seconds)
    elif destination == states.PENDING_CHILDREN:
        wakeup.due(0)  # whoever promotes looks after parents, too
    return destination[0]


def decide(job: Job, outcome: Outcome, db_now: datetime, now: float) -> Decision:
    """Return where a run's end moves its (locked) job, and with which columns."""
    flag = job.cancel_outcome if job.cancel_requested else ""
    began = _began(job, outcome, db_now, now)
    fields: dict[str, Any] = {"started_at": began, "first_started_at": job.first_started_at or began}
    if outcome.metadata is not None:
        fields["metadata"] = json.loads(outcome.metadata)
    if outcome.progress is not None:
        fields["progress"] = outcome.progress
    if flag and outcome.kind is not Kind.ERROR:
        destination, more = states.place(flag), {"message": INTERRUPTED_BY_USER}
        fields.update(suspend.kept(job, outcome, db_now))
    else:
        destination, more = DECISIONS[outcome.kind](job, outcome, db_now)
    fields.update(outcome.explained(more))
    options = history.as_dict(fields.get("options", job.options))
    if UNKNOWN_SINCE in options and outcome.kind is not Kind.UNKNOWN_TASK:
        fields["options"] = {key: value for key, value in options.items() if key != UNKNOWN_SINCE}
    if "attempt" not in fields:  # the run counts
        fields["worker_ids"] = [*history.as_list(job.worker_ids), job.lease_owner]
        label = outcome.kind.name if destination[0] == states.Status.PENDING else destination[0]
        new = history.entry(attempt=job.attempt, worker=job.lease_owner, outcome=label, began=began, ended=db_now, failure=outcome.failure)
        fields["history"] = history.extended(job.history, new | outcome.left)
    return destination, fields


def _began(job: Job, outcome: Outcome, db_now: datetime, now: float) -> datetime | None:
    return job.started_at or (db_now - timedelta(seconds=max(now - outcome.began, 0.0)) if outcome.began else None)


def _error(job: Job, outcome: Outcome, db_now: datetime) -> Decision:
    return states.ERROR, {"failures": job.failures + 1, "message": outcome.text}


def _retry(job: Job, outcome: Outcome, db_now: datetime) -> Decision:
    fields = {"failures": job.failures + 1, "message": outcome.text, "run_at": db_now + timedelta(seconds=outcome.delay_seconds)}
    return states.PENDING_TIME, fields


def _hand_back(job: Job, outcome: Outcome, db_now: datetime) -> Decision:
    back = {"attempt": max(job.attempt - 1, 0), "started_at": None, "message": outcome.message or ""}
    if outcome.delay_seconds:
        return states.PENDING_TIME, {**back, "run_at": db_now + timedelta(seconds=outcome.delay_seconds)}
    return states.QUEUED, back


def _unknown_task(job: Job, outcome: Outcome, db_now: datetime) -> Decision:
    known = history.as_dict(job.options)
    since = moment_of(known.get(UNKNOWN_SINCE))
    if since is not None and db_now - since >= timedelta(seconds=conf.current().unknown_task_grace_seconds):
        return _error(job, outcome, db_now)
    options = {**known, UNKNOWN_SINCE: (since or db_now).isoformat()}
    run_at = db_now + timedelta(seconds=UNKNOWN_TASK_PAUSE_SECONDS)
    fields = {"attempt": max(job.attempt - 1, 0), "started_at": None, "options": options, "run_at": run_at, "message": outcome.text}
    return states.PENDING_TIME, fields


DECISIONS: dict[Kind, Callable[[Job, Outcome, datetime], Decision]] = {
    Kind.ERROR: _error,
    Kind.RETRY: _retry,
    Kind.HANDED_BACK: _hand_back,
    Kind.UNKNOWN_TASK: _unknown_task,
    Kind.INTERRUPTED: _hand_back,
    Kind.EXPIRED: lambda job, outcome, db_now: (states.CANCELED, {**_hand_back(job, outcome, db_now)[1], "message": EXPIRED}),
    Kind.SLEEP: suspend.sleep,
    Kind.WAIT: suspend.wait,
    Kind.STOPPED: lambda job, outcome, db_now: (states.PAUSED, {"message": INTERRUPTED_BY_SHUTDOWN}),
}
