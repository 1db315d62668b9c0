"""Failing: the plain ends of runs that failed, many in one statement.

Plain is a run that only has its failure to tell, of a job that nobody has asked to stop. All others are decided on one by one, as
`finish` says; what both write to a row and to the log is the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from jobqueue import states
from jobqueue.db import Failed
from jobqueue.events.record import shown
from jobqueue.lifecycle import history, wakeup
from jobqueue.lifecycle.endings import told_of
from jobqueue.lifecycle.outcome import Kind, Outcome, Settled
from jobqueue.models import Job

PLACES = {Kind.RETRY: states.PENDING_TIME, Kind.ERROR: states.ERROR}


def plain(outcomes: Iterable[Outcome]) -> list[list[Outcome]]:
    """Return the plain failures among ends of runs without a target, those of one kind together."""
    found: dict[Kind, list[Outcome]] = {kind: [] for kind in PLACES}
    for one in outcomes:
        if (
            one.kind in PLACES
            and one.failure is not None
            and one.began is not None
            and not (one.phase or one.told or one.done or one.abandoned)
        ):
            found[one.kind].append(one)
    return [alike for alike in found.values() if alike]


def fail(outcomes: Sequence[Outcome]) -> list[Settled]:
    """Write plain failures of one kind; those that are not plain by their rows are left as they are, and not returned."""
    now, kind, by_lease = time.monotonic(), outcomes[0].kind, {outcome.lease: outcome for outcome in outcomes}
    place = PLACES[kind]
    states.check(states.RUNNING, place)
    ends = [_failed(outcome, place[0], now) for outcome in outcomes]
    written = [by_lease[lease] for lease in Job.objects.database.fail(ends, again=kind is Kind.RETRY, longest=history.LONGEST)]
    if written and kind is Kind.RETRY:
        wakeup.due(min(outcome.delay_seconds for outcome in written))
    return [Settled(outcome, place[0]) for outcome in written]


def _failed(outcome: Outcome, status: str, now: float) -> Failed:
    message = outcome.text
    return Failed(
        *outcome.lease,
        max(now - (outcome.began or now), 0.0),
        outcome.delay_seconds,
        message,
        outcome.metadata,
        outcome.progress,
        (history.failed(outcome.failure) if outcome.failure else {}) | outcome.left,
        shown(told_of(outcome, status, message)),
    )
