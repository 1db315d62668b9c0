"""Suspend: what becomes of a run that ends before its job does, since the job sleeps or waits for other jobs; and when it goes on.

The end of the phase and the job's move are one transaction, so neither is ever seen without the other. Like a hand-back it costs no
attempt, and a holder keeps its target. Where somebody has asked the job to stop, that comes first; the phase has ended all the same,
and a resume goes back to what it slept or waited for.
"""

from __future__ import annotations

from datetime import datetime

from jobqueue.core import states
from jobqueue.core.moments import moment_of
from jobqueue.lifecycle import children, history, phases
from jobqueue.lifecycle.outcome import Kind, Outcome
from jobqueue.lifecycle.phases import SLEEPS_UNTIL
from jobqueue.models import Job

SUSPENDED = (Kind.SLEEP, Kind.WAIT)


def sleeps(job: Job, now: datetime) -> bool:
    """Return whether a job's own sleep is not over; it may be paused meanwhile."""
    until = moment_of(history.as_dict(job.options).get(SLEEPS_UNTIL))
    return until is not None and job.run_at is not None and job.run_at > now and job.run_at == until


def end_phases(job: Job, outcome: Outcome, destination: states.Place, message: str = "") -> None:
    """Let a job's phases tell how its run ended, in the transaction that moved it."""
    if not job.phase:
        return
    suspended = outcome.kind in SUSPENDED
    if suspended and outcome.done is not None:
        phases.finish(job, outcome.done, outcome.phase.message if outcome.phase else None)
    phases.settle(job, destination, None if suspended else outcome.phase, message)
    if outcome.kind is not Kind.WAIT or destination == states.CANCELED:
        children.forget_unended(job)
