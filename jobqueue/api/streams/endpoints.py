"""The endpoints that stream the events of a job, of a target or of all jobs, and the JSON of a job (`as_json`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from jobqueue import public_ids
from jobqueue.access import visible
from jobqueue.api import params
from jobqueue.api.params import Given
from jobqueue.api.responses import ApiError
from jobqueue.api.streams import recheck, response
from jobqueue.api.streams.parts import StreamSource
from jobqueue.core.capping import MAX_BYTES, SHOWN_BYTES
from jobqueue.core.masking import mask_text
from jobqueue.core.states import Status
from jobqueue.core.targets import Target
from jobqueue.db import Now
from jobqueue.events.wanted import EventSelection
from jobqueue.insight.narrowed import why_for
from jobqueue.insight.report import report
from jobqueue.insight.why import Why
from jobqueue.models import Job

MAX_IN_SNAPSHOT = 100
REQUIRED_PERMISSIONS = ("view_job",)
SUMMARY_COLUMNS = ("pk", "task", "queue", "tenant", "target", "status", "waiting_for", "attempt", "progress", "phase")
ENDED = (Status.SUCCESS.value, Status.CANCELED.value)


def as_json(job: Job, user: Any, most: int = MAX_BYTES) -> dict[str, Any]:
    """Return the report on a job and why it waits; with tracebacks if the user may open the admin."""
    why = why_for(user, job)
    shown = report(job, tracebacks=getattr(user, "is_staff", False), most=most)
    return {**shown, "why_waiting": _why(why) if why is not None else None}


def _why(why: Why) -> dict[str, Any]:
    return {**asdict(why), "job_public_id": None if why.job_id is None else public_ids.public_id(why.job_id)}


def snapshot_of(job_id: int, user: Any) -> Callable[[], dict[str, Any]]:
    """Return a function that reads a job's state as ``GET jobs/{job_id}/`` returns it, or None if the job is gone."""

    def read() -> dict[str, Any]:
        job = Job.objects.current.annotate(now=Now()).filter(pk=job_id).first()
        shown = job if job is not None and visible.may_see(user, job.pk) else None
        return {"job": as_json(shown, user, SHOWN_BYTES) if shown is not None else None}

    return read


def of_job(request: HttpRequest, user: Any, given: Given) -> HttpResponseBase:
    """Stream the events of one job."""
    job = params.job(request, user, given, "tenant", "target")
    still_allowed = recheck.permission_check(request, user, REQUIRED_PERMISSIONS)

    def allowed() -> bool:
        return still_allowed() and visible.may_see(user, job.pk)

    return response.respond(request, user, StreamSource(EventSelection(job_id=job.pk), allowed, snapshot_of(job.pk, user)))


def of_target(request: HttpRequest, user: Any, given: Given) -> HttpResponseBase:
    """Stream the events of the jobs of one target, which may have no job yet."""
    name, tenant = given["target"], params.text(request, "tenant") or ""
    if len(name) > params.MAX_TEXT or params.has_control(name):
        raise ApiError(404, f"{params.shown(name)} is not a valid name of a target.")
    jobs = Job.objects.current.filter(tenant=tenant, target=name).exclude(status__in=ENDED)
    return _stream(request, user, EventSelection(target=Target(tenant, name)), jobs)


def of_all(request: HttpRequest, user: Any, given: Given) -> HttpResponseBase:
    """Stream the events of all jobs, or of those of one tenant."""
    tenant = params.text(request, "tenant")
    jobs = Job.objects.current.filter(status=Status.RUNNING)
    if tenant is not None:
        jobs = jobs.filter(tenant=tenant)
    return _stream(request, user, EventSelection(tenant=tenant), jobs)


def _stream(request: HttpRequest, user: Any, wanted: EventSelection, jobs: QuerySet[Job]) -> HttpResponseBase:
    """Stream the events of jobs that the user may see; when that set changes, the stream ends and its client reconnects."""
    still_allowed, seen = recheck.permission_check(request, user, REQUIRED_PERMISSIONS), visible.sight(user)

    def allowed() -> bool:
        return still_allowed() and visible.sight(user) == seen

    return response.respond(request, user, StreamSource(wanted._replace(sight=seen), allowed, _jobs_snapshot(user, jobs)))


def _jobs_snapshot(user: Any, jobs: QuerySet[Job]) -> Callable[[], dict[str, Any]]:
    """Return a function that reads the state of some jobs in short form."""

    def read() -> dict[str, Any]:
        rows = list(visible.narrow(user, jobs).order_by("pk").values(*SUMMARY_COLUMNS)[: MAX_IN_SNAPSHOT + 1])
        shown = [_job_summary(row) for row in rows[:MAX_IN_SNAPSHOT]]
        return {"jobs": shown, "more": len(rows) > MAX_IN_SNAPSHOT}

    return read


def _job_summary(row: dict[str, Any]) -> dict[str, Any]:
    job_id = row.pop("pk")
    return {
        "id": job_id,
        "public_id": public_ids.public_id(job_id),
        **row,
        "target": mask_text(row["target"]),
        "phase": mask_text(row["phase"]),
    }
