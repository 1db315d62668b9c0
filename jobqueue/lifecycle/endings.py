"""The events of runs that did not succeed. They have the same reasons as the job's row."""

from __future__ import annotations

from typing import Any

from jobqueue.core import event_names as names
from jobqueue.core import states
from jobqueue.db import Event
from jobqueue.events.record import event
from jobqueue.lifecycle.outcome import Kind, Outcome
from jobqueue.models import Job

# The events of runs whose jobs run again.
AGAIN = {
    Kind.RETRY: names.RETRYING,
    Kind.HANDED_BACK: names.HANDED_BACK,
    Kind.UNKNOWN_TASK: names.HANDED_BACK,
    Kind.INTERRUPTED: names.HANDED_BACK,
    Kind.SLEEP: names.SLEEPING,
    Kind.WAIT: names.WAITING,
}


def end_data(outcome: Outcome, status: str, message: str) -> dict[str, Any]:
    """Return the data of the event that ends a run."""
    data: dict[str, Any] = {}
    if outcome.failure is not None and status == states.Status.ERROR:
        data["exception"] = outcome.failure.path
    if outcome.delay_seconds and status == states.Status.PENDING:
        data["delay_seconds"] = outcome.delay_seconds
    if message:
        data["message"] = message
    return data


def lease_lost(job: Job, status: str, message: str, *, exception: str, delay_seconds: float | None, begun: bool) -> list[Event]:
    """Return the events of a lease that has run out and of the end of its run. If the run had not begun, it counts as handed back."""
    data: dict[str, Any] = {"message": message}
    if status == states.Status.ERROR:
        data["exception"] = exception
    if delay_seconds is not None:
        data["delay_seconds"] = delay_seconds
    ended_event = names.RETRYING if begun else names.HANDED_BACK
    return [
        event(job, names.LEASE_EXPIRED, {"worker": job.lease_owner}, status=status),
        event(job, names.ENDING_OF.get(status, ended_event), data, status=status),
    ]
