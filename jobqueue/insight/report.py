"""A report on one job as JSON values: attempts, waits, run time, outcome and errors, with masked secrets.

A report has the same shape even if raw SQL has written a wrong value into a JSON column: if a value should be a
list and is not, it counts as an empty list.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from jobqueue import clock, public_ids
from jobqueue.access.hiding import arguments_of, mask_of
from jobqueue.core import states, time_limits
from jobqueue.core.capping import MAX_BYTES, capped
from jobqueue.core.json_columns import as_dict, as_list
from jobqueue.core.masking import Mask
from jobqueue.insight.timeline import timeline
from jobqueue.insight.waits import between, moment, waits
from jobqueue.insight.waits import in_all as in_all_waits
from jobqueue.models import Job, JobPhase

MAX_BRIEF = 1000
ENTRY_TEXTS = ("worker", "outcome", "exception", "message", "abandoned", "release", "started_at", "finished_at")


def report(job: Job, *, tracebacks: bool = False, most: int = MAX_BYTES) -> dict[str, Any]:
    """Return the report on a job whose row was read with all columns; tracebacks only if they are requested.

    The first `most` characters of each value are shown. Durations end at the database's time if the job was read
    with it (``annotate(now=Now())``).
    """
    runs = [entry for entry in as_list(job.history) if isinstance(entry, dict)]
    last, in_all = _ran(job, runs)
    waited = waits(job, runs, _now(job))
    mask = mask_of(job)
    newest = as_list(capped(runs[::-1], most, mask))[::-1]
    events, older = timeline(job, mask=mask)
    return {
        **_identity(job, mask),
        "attempts": _attempts(job),
        "timeout_seconds": time_limits.of_options(job.options),
        "times": _times(job),
        "waited_seconds": _waited(job),
        "waited_seconds_in_all": in_all_waits(waited),
        "waits": waited,
        "ran_seconds": last,
        "ran_seconds_in_all": in_all,
        "progress": job.progress,
        "phase": mask(job.phase),
        "phases": [_phase(row, mask) for row in phases_of(job)],
        "outcome": {"message": mask(job.message), "result": mask.value(capped(job.result, most, mask))},
        "runs": [_entry(entry, mask, tracebacks=tracebacks) for entry in newest if isinstance(entry, dict)],
        "events": [event.as_json() for event in events],
        "older_events": older,
        "metadata": mask.value(capped(as_dict(job.metadata), most, mask)),
        "arguments": _arguments(job, most),
    }


def summary(job: Job) -> dict[str, Any]:
    """Return the entry of a job in a list: its identity and times, and the beginnings of its message and its arguments."""
    mask = mask_of(job)
    return {
        **_identity(job, mask),
        "attempts": _attempts(job),
        "times": _times(job),
        "message": mask.cut(job.message, MAX_BRIEF),
        "arguments": _arguments(job, MAX_BRIEF),
    }


def phases_of(job: Job) -> list[JobPhase]:
    """Return the phases of a job in order, without their results and checkpoints."""
    if not job.phase:
        return []
    return list(job.phases.defer("result", "checkpoint").order_by("position", "pk"))


def _phase(row: JobPhase, mask: Mask) -> dict[str, Any]:
    return {
        "name": mask(row.name),
        "position": row.position,
        "status": row.status,
        "progress": row.progress,
        "message": mask(row.message),
        "attempts": row.attempts,
        "started_at": row.started_at.isoformat() if row.started_at else None,
        "finished_at": row.finished_at.isoformat() if row.finished_at else None,
    }


def _identity(job: Job, mask: Mask) -> dict[str, Any]:
    return {
        "id": job.pk,
        "public_id": public_ids.public_id(job.pk),
        "task": job.task,
        "queue": mask(job.queue),
        "tenant": mask(job.tenant),
        "target": mask(job.target),
        "holds_target": job.holds_target,
        "unique_key": mask(job.unique_key),
        "priority": job.priority,
        "status": job.status,
        "waiting_for": job.waiting_for,
        "assigned": job.assigned,
        "cancel_requested": job.cancel_outcome if job.cancel_requested else "",
    }


def _attempts(job: Job) -> dict[str, int]:
    return {"runs": job.attempt, "failures": job.failures, "crashes": job.crashes, "max_attempts": job.max_attempts}


def _times(job: Job) -> dict[str, str | None]:
    names = ("created_at", "run_at", "expires_at", "enqueued_at", "first_started_at", "started_at", "finished_at")
    times: dict[str, datetime | None] = {name: getattr(job, name) for name in names}
    return {name: when.isoformat() if when else None for name, when in times.items()}


def _now(job: Job) -> datetime:
    now: datetime = getattr(job, "now", None) or clock.now()
    return now


def _waited(job: Job) -> float | None:
    """Return for how many seconds the job was claimable before its last run, or until now; None if it was not claimable."""
    if job.status == states.Status.QUEUED or job.assigned:
        return between(job.enqueued_at, _now(job))
    return between(job.enqueued_at, job.started_at)


def _ran(job: Job, runs: Sequence[dict[str, Any]]) -> tuple[float | None, float]:
    """Return the seconds that the last run took, or has taken until now, and the sum of all known runs."""
    durations = [between(moment(entry, "started_at"), moment(entry, "finished_at")) for entry in runs]
    in_all = sum(seconds for seconds in durations if seconds is not None)
    if job.status == states.Status.RUNNING:
        last = between(job.started_at, _now(job))
    elif job.status == states.Status.SUCCESS:
        last = between(job.started_at, job.finished_at)
    else:  # by its entry in the history, because an operator can have changed the job's own times later
        return (durations[-1] if durations else None), in_all
    return last, in_all + (last or 0.0)


def _entry(entry: dict[str, Any], mask: Mask, *, tracebacks: bool) -> dict[str, Any]:
    attempt = entry.get("attempt")
    shown: dict[str, Any] = {"attempt": attempt if isinstance(attempt, int) else None}
    shown |= {name: _text(entry.get(name), mask) for name in ENTRY_TEXTS}
    if tracebacks:
        shown["traceback"] = _text(entry.get("traceback"), mask)
    return shown


def _text(value: object, mask: Mask) -> str | None:
    return mask(value) if isinstance(value, str) else None


def _arguments(job: Job, most: int) -> dict[str, Any]:
    """Return the arguments, masked by the names of the parameters of the task's function."""
    args, kwargs = arguments_of(job, most)
    return {"args": as_list(args), "kwargs": as_dict(kwargs)}
