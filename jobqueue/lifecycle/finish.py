"""Finish: write the outcomes of runs. Each write is guarded by id, `lease_token` and a live lease.

`decide` returns what becomes of a job. One statement writes most outcomes: those of jobs that have no request to
stop and no phases. It leaves the rows of other jobs unchanged. These rows are then locked and read, their
outcomes are decided by the values, and the same statement writes them. If an outcome changes no row, the lease
was lost, and the outcome is discarded. If another transaction has locked a row, its outcome is skipped and
returned as `later`, so that one locked row does not delay all other outcomes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from jobqueue.core import states
from jobqueue.core.json_columns import UNKNOWN_SINCE, as_dict
from jobqueue.core.targets import Target
from jobqueue.db import EndedRun, Lease, Now, RunEnd, fast_path, run_ends
from jobqueue.db import targets as targets_sql
from jobqueue.lifecycle import suspend, wakeup
from jobqueue.lifecycle.decide import NOT_READ, SUCCESS, RowState, decide, must_read
from jobqueue.lifecycle.outcome import HandOver, Kind, Outcome, Settled
from jobqueue.lifecycle.refusals import one_by_one_if_refused
from jobqueue.lifecycle.release import settle, settle_safely, try_lock
from jobqueue.models import Job

# The columns that a decision, the phases and their events need, without the arguments and the result, which may be
# large.
READ = ("lease_token", "status", "cancel_requested", "cancel_outcome", "options", "progress", "message", "phase", "started_at")
OF_EVENTS = ("attempt", "tenant", "target", "queue", "task", "webhook_url")


def finish(outcomes: Sequence[Outcome], hand_over: HandOver | None = None) -> list[Settled]:
    """Write the outcomes, most of them in one or two statements; raise an error if the database cannot be reached.

    Outcomes with a target are written in a separate transaction that holds the locks of the targets. This
    transaction also releases the next jobs of the targets, or hands them over to this worker.
    """
    success = Kind.SUCCESS
    plain = [outcome for outcome in outcomes if outcome.target is None]
    targeted = [outcome for outcome in outcomes if outcome.target is not None]
    # One call for each kind: if the database refuses the outcomes of one kind, those of the other kind are not
    # written again.
    done = one_by_one_if_refused(_write, [outcome for outcome in plain if outcome.kind is success], _read_and_write)
    failures = [outcome for outcome in plain if outcome.kind is not success and not must_read(outcome)]
    done += one_by_one_if_refused(_write, failures, _read_and_write)
    return [
        *done,
        *one_by_one_if_refused(_read_and_write, _unwritten(plain, done), _read_and_write),
        *one_by_one_if_refused(partial(_finish_targeted, hand_over), targeted, _finish_alone, _finish_alone),
    ]


def finish_with_work(outcome: Outcome) -> Settled:
    """Write one success in the caller's transaction, which contains the work of the task.

    Raise an error if the database refuses the values.

    It never writes another kind of outcome, because that would be committed together with the work of a task that
    has not succeeded.
    """
    return (_write_all([outcome]) if outcome.target is None else _finish_alone([outcome]))[0]


def written_before(outcomes: Iterable[Outcome]) -> dict[Lease, str]:
    """Return the outcomes that are stored already: they were committed, but the acknowledgement was lost."""
    expected = {outcome.lease: outcome for outcome in outcomes}
    rows = Job.objects.current.filter(pk__in=[lease.job_id for lease in expected]).exclude(status=states.Status.RUNNING)
    ended, written = {Kind.SUCCESS: states.Status.SUCCESS, Kind.ERROR: states.Status.ERROR}, {}
    for job_id, token, status in rows.values_list("pk", "lease_token", "status"):
        outcome = expected.get(Lease(job_id, token))
        if outcome is not None and ended.get(outcome.kind) == status:
            written[outcome.lease] = status
    return written


# Targets


def _finish_targeted(hand_over: HandOver | None, outcomes: Sequence[Outcome]) -> list[Settled]:
    if not outcomes:
        return []
    with Job.objects.database.atomic():
        if hand_over is not None and (done := _relay(outcomes, hand_over)) is not None:
            return _move_on(done, None)
        return _move_on(_lock_and_write(outcomes), hand_over)


def _finish_alone(outcomes: Sequence[Outcome]) -> list[Settled]:
    """Write outcomes with a target even if the database refuses to change the row of the next job of a target."""
    with Job.objects.database.atomic():
        return _move_on(_lock_and_write(outcomes), None, settle_safely)


def _lock_and_write(outcomes: Sequence[Outcome]) -> list[Settled]:
    # Take the locks before any row. Do not wait for a lock that another transaction holds: its outcome is written
    # later, and does not delay the rest.
    locked = try_lock({o.target for o in outcomes if o.target is not None})
    later = [Settled(o, "", later=True) for o in outcomes if o.target not in locked]
    return [*later, *_write_all([o for o in outcomes if o.target in locked])]


def _relay(outcomes: Sequence[Outcome], hand_over: HandOver) -> list[Settled] | None:
    """Lock, write and take the next job in one message if there is exactly one outcome and it is a success; otherwise return None.

    Also return None if the statement wrote nothing.
    """
    outcome = outcomes[0]
    if len(outcomes) > 1 or outcome.kind is not Kind.SUCCESS or outcome.target is None or outcome.lease not in hand_over.leases:
        return None
    to = (hand_over.holder, outcome.target, hand_over.queues, hand_over.excluded_queues)
    done = fast_path.end_and_take_next(Job.objects.database, decide(outcome, NOT_READ, time.monotonic()), to)
    if done is None or (done.locked and not done.written):
        return None
    if not done.locked:
        return [Settled(outcome, "", later=True)]
    return [Settled(outcome, states.Status.SUCCESS.value, following=next(iter(done.taken), None))]


def _move_on(done: Sequence[Settled], hand_over: HandOver | None, release: Callable[[Collection[Target]], int] = settle) -> list[Settled]:
    """Hand the next job of each free target over to this worker if the worker may take it; call `release` for the other targets."""
    freed = {end.outcome.target: end for end in done if end.status in states.FINAL and end.outcome.target is not None}
    following = {target: end.following for target, end in freed.items() if end.following is not None}
    if hand_over is not None and (to_hand_over := [target for target, end in freed.items() if end.outcome.lease in hand_over.leases]):
        # A statement after the one that writes the ends: one statement must not end the holder of a target and
        # make another row the holder.
        jobs = targets_sql.hand_over(Job.objects.database, hand_over.holder, to_hand_over, hand_over.queues, hand_over.excluded_queues)
        following = {Target(job.tenant, job.target): job for job in jobs}
    to_release = [target for target in freed if target not in following]
    releases = release(to_release) > 0
    ended = {id(end): target for target, end in freed.items()}
    return [
        end._replace(following=following.get(target), releases=releases and target in to_release) if (target := ended.get(id(end))) else end
        for end in done
    ]


# Rows


def _write_all(outcomes: Sequence[Outcome]) -> list[Settled]:
    """Write outcomes. The caller has opened a transaction, because a statement may be refused after another has written outcomes."""
    done = _write([outcome for outcome in outcomes if not must_read(outcome)])
    return [*done, *_read_and_write(_unwritten(outcomes, done))]


def _unwritten(outcomes: Sequence[Outcome], done: Sequence[Settled]) -> list[Outcome]:
    if len(done) == len(outcomes):
        return []
    written = {end.outcome.lease for end in done}
    return [outcome for outcome in outcomes if outcome.lease not in written]


def _write(outcomes: Sequence[Outcome]) -> list[Settled]:
    """Write the outcomes of jobs without a request to stop and without phases; return those that were written."""
    now = time.monotonic()
    return _end(outcomes, [decide(outcome, NOT_READ, now) for outcome in outcomes])


def _read_and_write(outcomes: Sequence[Outcome]) -> list[Settled]:
    """Lock and read the rows of jobs, decide their outcomes by the values of the rows, and write them."""
    if not outcomes:
        return []
    now = time.monotonic()
    with Job.objects.database.atomic():
        jobs = _locked(outcomes)
        owned = [outcome for outcome in outcomes if outcome.lease in jobs]
        ends = [decide(outcome, _row_state(jobs[outcome.lease]), now) for outcome in owned]
        for outcome, end in zip(owned, ends, strict=True):
            if outcome.kind is not Kind.SUCCESS:
                suspend.end_phases(jobs[outcome.lease], outcome, (end.status, end.waiting_for), end.message or "")
        done = _end(owned, ends)
    return [*done, *_missed([outcome for outcome in outcomes if outcome.lease not in jobs])]


def _locked(outcomes: Sequence[Outcome]) -> dict[Lease, Job]:
    rows = Job.objects.current.unlocked().only(*READ, *OF_EVENTS).filter(pk__in=[o.lease.job_id for o in outcomes]).order_by("pk")
    return {Lease(job.pk, job.lease_token): job for job in rows.annotate(now=Now()) if job.status == states.Status.RUNNING}


def _row_state(job: Job) -> RowState:
    since = as_dict(job.options).get(UNKNOWN_SINCE, "")
    flag = job.cancel_outcome if job.cancel_requested else ""
    return RowState(job.now, flag, str(since), job.progress, job.message, has_start=job.started_at is not None)  # type: ignore[attr-defined]


def _end(outcomes: Sequence[Outcome], ends: Sequence[RunEnd]) -> list[Settled]:
    """Write the decision of each outcome, and wake the workers and duties that act on them; return the outcomes that were written."""
    if not ends:
        return []
    written = {row[:2]: row for row in run_ends.end_runs(Job.objects.database, ends)}
    done = [Settled(outcome, end.status) for outcome, end in zip(outcomes, ends, strict=True) if outcome.lease in written]
    if {end.status for end in ends} != {SUCCESS}:
        _wake(done, written)
    return done


def _wake(done: Sequence[Settled], written: Mapping[tuple[int, int], EndedRun]) -> None:
    for end in done:
        if end.status == states.Status.QUEUED:
            row = written[end.outcome.lease]
            wakeup.work(row.queue, row.tenant)
    waiting = [end.outcome for end in done if end.status == states.Status.PENDING]
    if waiting:  # for a time or for children: the same duty promotes both
        wakeup.due(min(0.0 if outcome.kind is Kind.WAIT else outcome.delay_seconds for outcome in waiting))


def _missed(outcomes: Sequence[Outcome]) -> list[Settled]:
    """Return the outcomes that were not written: those whose leases were lost, and, marked as `later`, those whose rows are locked now."""
    if not outcomes:
        return []
    still_ours = Job.objects.still_ours(o.lease for o in outcomes)
    return [Settled(o, "", later=o.lease in still_ours) for o in outcomes]
