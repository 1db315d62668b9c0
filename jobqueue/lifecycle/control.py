"""Control: pause, cancel, resume, delete and run now, from any process.

Each verb is one transaction. It takes the lock of the job's target and waits for it. A target never changes, so
it is read without a lock. It then locks the row, decides by the status of the **locked** row, moves the job by a
guarded UPDATE, and settles the target: it releases the next job if the target is free. It settles the target
even if the job did not hold it. For example, a job was released from its line and is canceled before a worker
claims it. It does not hold the target, but the jobs behind it wait for it.

A job that is not running changes immediately. A running job gets a flag, and its worker interrupts the run when a
notification or the next heartbeat reports the flag. CANCELED outranks PAUSED: a pause does not replace a cancel
that was requested before. Resume withdraws the flag of a job that is still stopping.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.db import IntegrityError

from jobqueue import public_ids
from jobqueue.access.hiding import mask_of
from jobqueue.core import event_names as names
from jobqueue.core import states
from jobqueue.core.answers import Answer, Verdict
from jobqueue.core.json_columns import UNKNOWN_SINCE, as_dict
from jobqueue.core.sentences import sentence
from jobqueue.core.targets import Target
from jobqueue.core.texts import clean
from jobqueue.db import Now
from jobqueue.events.record import event, record, record_all
from jobqueue.exceptions import InvalidOption, JobDoesNotExist
from jobqueue.lifecycle import children, phases, wakeup
from jobqueue.lifecycle.outcome import INTERRUPTED_BY_USER
from jobqueue.lifecycle.release import lock, settle_safely
from jobqueue.models import Job

CANCELED_BY_USER = "Job was canceled by user"


def request_job_cancel(job_id: int, *, outcome: str = states.Status.PAUSED) -> Answer:
    """Pause a job, which can be resumed, or cancel it for good. If the job runs, its worker interrupts it.

    Raise `JobDoesNotExist`, or `InvalidOption` if `outcome` is neither PAUSED nor CANCELED.
    """
    if outcome not in (states.Status.PAUSED, states.Status.CANCELED):
        raise InvalidOption(f"outcome is {outcome!r}; it must be PAUSED or CANCELED.")
    with _locked(job_id) as job:
        if job.status == states.Status.RUNNING:
            return _flag(job, str(outcome))
        destination = states.place(outcome)
        if not states.allows(job.place, destination):
            if destination == states.PAUSED:
                return _refused(job, sentence("a job in state %(status)s cannot be paused", status=job.status))
            return _refused(job, sentence("a job in state %(status)s cannot be canceled", status=job.status))
        message = INTERRUPTED_BY_USER if destination == states.PAUSED else CANCELED_BY_USER
        answer = _moved(job, destination, message=message)
        record(job, names.ENDING_OF[outcome], {"message": message})
        if destination == states.CANCELED:
            _settle(job)
        return answer


def pause(job_id: int) -> Answer:
    """Stop a job so that it can be resumed."""
    return request_job_cancel(job_id, outcome=states.Status.PAUSED)


def cancel(job_id: int) -> Answer:
    """Stop a job for good."""
    return request_job_cancel(job_id, outcome=states.Status.CANCELED)


def resume(job_id: int) -> Answer:
    """Return a PAUSED or ERROR job to the queue and reset its failures and crashes; if the job is stopping, withdraw the request."""
    with _locked(job_id) as job:
        if job.status == states.Status.RUNNING:
            return _withdraw(job)
        if job.status not in (states.Status.PAUSED, states.Status.ERROR):
            return _refused(job, sentence("a job in state %(status)s cannot be resumed", status=job.status))
        answer = _resume(job, job.now)  # type: ignore[attr-defined]
        if answer:
            _settle(job)
        return answer


def run_now(job_id: int) -> Answer:
    """Make a job that waits for a time claimable immediately."""
    with _locked(job_id) as job:
        if job.place != states.PENDING_TIME:
            return _refused(job, sentence("a job in state %(status)s does not wait for a time", status=job.status))
        answer = _moved(job, states.QUEUED, run_at=Now())
        wakeup.work(job.queue, job.tenant)
        return answer


def delete(job_id: int) -> Answer:
    """Delete a job for good and release the next job of its target; refuse to delete a running job."""
    with _locked(job_id) as job:
        if job.status == states.Status.RUNNING:
            return _refused(job, sentence("a running job cannot be deleted: cancel it first"))
        Job.objects.current.filter(pk=job.pk).erase()
        _settle(job)
        return Answer(job_id, Verdict.DONE, job.status)


def clear_target(target: str, *, tenant: str = "") -> list[Answer]:
    """Cancel the jobs that hold or block a target, so that its line continues.

    Return one answer for each job, so none if the target is free.
    """
    if clean(target) != target or clean(tenant) != tenant:
        return []  # no row can have such a name
    return [cancel(job_id) for job_id in Job.objects.current.blocking(Target(tenant, target)).values_list("pk", flat=True)]


@contextlib.contextmanager
def _locked(given: Any) -> Iterator[Job]:
    """Open a transaction that locks the target, then the row of a job, given as in `public_ids.number_of`."""
    job_id = public_ids.number_of(given)
    with Job.objects.database.atomic():
        row = Job.objects.current.filter(pk=job_id).values_list("tenant", "target").first()
        if row is not None and row[1]:
            lock([Target(*row)])
        job = Job.objects.current.locked().annotate(now=Now()).filter(pk=job_id).first()
        if job is None:
            raise JobDoesNotExist(f"There is no job {job_id}.")
        yield job


def _settle(job: Job) -> None:
    if job.target:
        settle_safely([job.tenant_target])


def _moved(job: Job, destination: states.Place, **fields: Any) -> Answer:
    # The row is locked, so the guard of the move cannot miss.
    Job.objects.move(job, destination, **fields)
    phases.settle(job, destination)
    if destination == states.CANCELED and job.phase:
        children.forget_unended(job)
    return Answer(job.pk, Verdict.DONE, destination[0])


def _refused(job: Job, reason: str) -> Answer:
    return Answer(job.pk, Verdict.REFUSED, job.status, reason)


def _flag(job: Job, outcome: str) -> Answer:
    if job.cancel_requested and job.cancel_outcome == states.Status.CANCELED:
        outcome = states.Status.CANCELED.value
    Job.objects.flag(job, outcome)
    wakeup.owner(job.lease_owner)
    return Answer(job.pk, Verdict.REQUESTED, job.status)


def _withdraw(job: Job) -> Answer:
    if not job.cancel_requested:
        return _refused(job, sentence("the job is running, and was not asked to stop"))
    Job.objects.flag(job, "")
    wakeup.owner(job.lease_owner)
    return Answer(job.pk, Verdict.DONE, job.status)


def _resume(job: Job, now: datetime) -> Answer:
    # Keep a time in the future only if the caller set it for a job that never ran, or if the job sleeps. Resume ends
    # the wait for a retry.
    ahead = job.sleeps(now) or (job.attempt == 0 and job.run_at is not None and job.run_at > now)
    destination = states.PENDING_TIME if ahead else states.QUEUED
    if job.phase and children.has_live(job):
        destination = states.PENDING_CHILDREN
    options = {key: value for key, value in as_dict(job.options).items() if key != UNKNOWN_SINCE}
    try:
        with Job.objects.database.atomic():  # a savepoint, so that the transaction stays usable if another job has the key
            answer = _moved(job, destination, failures=0, crashes=0, message="", progress=phases.progress_of(job), options=options)
            if job.phase and destination != states.PENDING_CHILDREN:
                children.keep_ended(job, none_lives=True)
            record_all([event(job, names.RESUMED, status=destination[0])])
    except IntegrityError:
        rival = Job.objects.current.filter(tenant=job.tenant, unique_key=job.unique_key, status__in=states.LIVE).exclude(pk=job.pk)
        rival_id = rival.values_list("pk", flat=True).first()
        if rival_id is None:
            return _refused(job, sentence("its unique key is taken"))
        key = repr(mask_of(job)(job.unique_key))
        return _refused(job, sentence("unique key %(key)s is taken by job %(job)s", key=key, job=str(rival_id)))
    if destination == states.QUEUED:
        wakeup.work(job.queue, job.tenant)
    return answer
