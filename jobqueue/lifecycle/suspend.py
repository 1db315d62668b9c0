"""Suspend: the end of a run whose job has not ended, because the job sleeps or waits for children.

The end of the phase and the move of the job are one transaction, so neither is visible without the other. As with
a hand-back, a suspended run uses up no attempt, and a holder keeps its target. If the job has a request to stop,
it becomes PAUSED or CANCELED. The phase has nevertheless ended. After a resume, the job sleeps or waits again.
"""

from __future__ import annotations

from jobqueue.core import states
from jobqueue.lifecycle import children, phases
from jobqueue.lifecycle.outcome import Kind, Outcome
from jobqueue.models import Job

SUSPENDED = (Kind.SLEEP, Kind.WAIT)


def end_phases(job: Job, outcome: Outcome, destination: states.Place, message: str = "") -> None:
    """Update the phases of a job whose run has ended, in the transaction that moved the job."""
    if not job.phase:
        return
    suspended = outcome.kind in SUSPENDED
    if suspended and outcome.done is not None:
        phases.finish(job, outcome.done, outcome.phase.message if outcome.phase else None)
    phases.settle(job, destination, None if suspended else outcome.phase, message)
    if outcome.kind is not Kind.WAIT or destination == states.CANCELED:
        children.forget_unended(job)
