"""Record changes over REST, including rejected ones, in the audit log and in the admin's log."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest

from jobqueue.access import audit
from jobqueue.core import states
from jobqueue.core.answers import Answer, Verdict
from jobqueue.lifecycle.workers import WorkerAnswer
from jobqueue.models import Job, Queue, Worker

PAST_FORMS = {"cancel": "Canceled", "pause": "Paused", "resume": "Resumed", "run_now": "Queued to run now", "delete": "Deleted"}


def record(request: HttpRequest, user: Any, job: Job, verb: str, answer: Answer) -> None:
    """Record the result of a verb for a job, including a refusal."""
    deleted = False
    if answer.verdict is Verdict.REFUSED:
        text = f"Not {PAST_FORMS[verb].lower()} over REST: {answer.reason}."
    elif answer.verdict is Verdict.REQUESTED:
        text = f"While it ran: asked to stop ({verb}), over REST."
    elif verb != "delete" and answer.status == states.Status.RUNNING:
        text = "Request to stop withdrawn, over REST."
    else:
        text, deleted = f"{PAST_FORMS[verb]} over REST; the job was {job.status}.", verb == "delete"
    audit.record(user, verb, job, answer.verdict.value, audit.address_of(request), text=text, deleted=deleted)


def record_queue(request: HttpRequest, user: Any, name: str, verb: str, *, changed: bool) -> None:
    """Record the result of a verb for a queue."""
    if changed:
        audit.record(user, verb, Queue(name=name), audit.DONE, audit.address_of(request), text=f"{PAST_FORMS[verb]} over REST.")
    else:
        audit.log_line(user, verb, Queue(name=name), "no change", audit.address_of(request))


def record_worker(request: HttpRequest, user: Any, answer: WorkerAnswer) -> None:
    """Record a request to drain a worker, or to make it start jobs again."""
    verb, worker = "drain" if answer.drained else "undrain", Worker(pk=UUID(answer.id))
    if answer.changed:
        text = f"{'Drained' if answer.drained else 'Made to start jobs again'} over REST: {answer.process}."
        audit.record(user, verb, worker, audit.DONE, audit.address_of(request), text=text)
    else:
        audit.log_line(user, verb, worker, "no change", audit.address_of(request))


def record_invalid(request: HttpRequest, user: Any, why: str) -> None:
    """Record a refused change: the object does not exist, the user may not see it, or the request names it incorrectly."""
    audit.log_line(user, request.method or "", request.path, audit.REFUSED, audit.address_of(request), why)


def record_forbidden(request: HttpRequest, user: Any, why: str) -> None:
    """Record a change that its sender may not make."""
    audit.log_line(
        user if user is not None else "unknown", request.method or "", request.path, audit.FORBIDDEN, audit.address_of(request), why
    )
