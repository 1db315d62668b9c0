"""Set jobs aside: if the row of a job cannot be read, or its next state cannot be written, end the job in ERROR by SQL alone.

Without this, such a row would fail in each batch. The job ends with the reason in its message, and the rest of the
batch continues.
"""

from __future__ import annotations

import logging

from jobqueue import db
from jobqueue.core import event_names as names
from jobqueue.core import repeats, states
from jobqueue.core.masking import mask_text
from jobqueue.core.texts import clean, shorten
from jobqueue.db import Event, Lease, Now
from jobqueue.db.aside import KEPT, PREFIX, mend, set_aside
from jobqueue.events.record import event, record_all
from jobqueue.models import Job, JobDependency, JobPhase

MAX_BYTES = 400


def reason_of(error: BaseException) -> str:
    """Return the first line of an error. The lines after it may show the whole row, with its secrets."""
    lines = clean(str(error)).strip().splitlines() or [type(error).__name__]
    return shorten(mask_text(lines[0]), MAX_BYTES)


def try_set_aside(lease: Lease, status: str, problem: str, error: BaseException) -> bool:
    """End a job that still has this status as ERROR, and return whether it was moved. `problem` says what cannot be done.

    Raise an error only if the database cannot be reached. If the database refuses the change, log that and return
    False.
    """
    reason = f"{problem}: {reason_of(error)}"
    try:
        with Job.objects.database.atomic():
            row = set_aside(Job.objects.database, lease, status, f"{PREFIX}{reason}")
            if row is None:
                return False
            values = dict(zip(KEPT, row, strict=True))
            _end_what_belongs_to_it(lease.job_id, reason)
            record_all([_failed(lease.job_id, values, reason)])
    except Exception as refusal:
        if not db.is_refusal(refusal):
            raise
        repeats.log(logging.ERROR, "Job %s cannot be set aside (%s): %s", lease.job_id, reason, reason_of(refusal))
        return False
    repeats.log(logging.ERROR, "Job %s is set aside as ERROR: %s", lease.job_id, reason)
    return True


def try_mend(lease: Lease, status: str) -> bool:
    """Change the values of a row that violate its constraints; return whether the row was changed.

    Such values exist if the constraint was not checked when the row was written.
    """
    try:
        with Job.objects.database.atomic():
            return mend(Job.objects.database, lease, status)
    except Exception as refusal:
        if not db.is_refusal(refusal):
            raise
        return False


def end_pending(job_id: int, problem: str, error: BaseException) -> bool:
    """Set aside a job that is PENDING; return whether it was moved."""
    token = Job.objects.current.filter(pk=job_id).values_list("lease_token", flat=True).first()
    return token is not None and try_set_aside(Lease(job_id, token), states.Status.PENDING, problem, error)


def _failed(job_id: int, values: dict[str, object], reason: str) -> Event:
    status = states.Status.ERROR.value
    job = Job(pk=job_id, status=status, **values)
    return event(job, names.FAILED, {"message": f"{PREFIX}{reason}"}, status=status)


def _end_what_belongs_to_it(job_id: int, reason: str) -> None:
    """End the running phases of a job that is set aside, and delete its open dependencies.

    If the database refuses that, leave them unchanged.
    """
    alias = Job.objects.database.alias
    running = JobPhase.objects.using(alias).filter(job=job_id, status=JobPhase.Status.RUNNING)
    try:
        with Job.objects.database.atomic():
            running.update(status=JobPhase.Status.ERROR, finished_at=Now(), message=reason)
            JobDependency.objects.using(alias).filter(parent=job_id, ended=False).delete()
    except Exception as refusal:
        if not db.is_refusal(refusal):
            raise
