"""The handlers of the endpoints: each gets the request, its user and the path's parameters, and returns the HTTP status and the body."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from jobqueue import public_ids
from jobqueue.access import visible
from jobqueue.api import audit, params
from jobqueue.api.params import Given
from jobqueue.api.responses import ApiError
from jobqueue.api.streams import endpoints
from jobqueue.core.answers import Answer, Verdict
from jobqueue.core.masking import mask_text
from jobqueue.exceptions import WorkerDoesNotExist
from jobqueue.insight import queue_names
from jobqueue.insight.error_kinds import ErrorKind, error_kinds_for
from jobqueue.insight.health import Alive, live_workers
from jobqueue.insight.narrowed import queue_states_for, target_summaries_for
from jobqueue.insight.queues import QueueState
from jobqueue.insight.report import summary
from jobqueue.insight.reruns import reruns_of
from jobqueue.insight.search import page
from jobqueue.insight.targets import TargetSummary
from jobqueue.insight.worker_page import left_workers, worker_detail
from jobqueue.lifecycle import queues
from jobqueue.lifecycle.workers import drain_worker, find_worker
from jobqueue.models import Job

Reply = tuple[int, dict[str, Any]] | HttpResponseBase
Handler = Callable[[HttpRequest, Any, Given], Reply]
STATUSES = {Verdict.DONE: 200, Verdict.REQUESTED: 202}


def show_job(request: HttpRequest, user: Any, given: Given) -> Reply:
    """Return the job's report and what it waits for; with tracebacks if the user may open the admin, which shows them, too."""
    job = params.job(request, user, given)
    return 200, {**endpoints.as_json(job, user), "reruns": asdict(reruns_of(user, job))}


def list_jobs(request: HttpRequest, user: Any, given: Given) -> Reply:
    """Return a page of the jobs that meet a search, the newest first."""
    search, most, after = params.search(request), params.limit(request), params.after(request)
    found = page(visible.narrow(user, Job.objects.current), search, most, after)
    return 200, {"jobs": [summary(job) for job in found.jobs], "more": found.after is not None, "after": found.after, "scope": found.scope}


def act(verb: str, do: Callable[[int], Answer]) -> Handler:
    """Return the handler of a verb for a job."""

    def handle(request: HttpRequest, user: Any, given: Given) -> Reply:
        job = params.job(request, user, given, "task", "tenant", "target", "status")
        with Job.objects.database.atomic():
            answer = do(job.pk)
            audit.record(request, user, job, verb, answer)
        ids: dict[str, Any] = {"job": job.pk, "public_id": public_ids.public_id(job.pk)}
        if answer.verdict is Verdict.REFUSED:
            text = f"{answer.reason[:1].upper()}{answer.reason[1:]}."
            raise ApiError(409, text, reason=answer.reason, **ids, status=answer.status)
        return STATUSES[answer.verdict], {**ids, "verdict": answer.verdict.value, "status": answer.status}

    return handle


def list_targets(request: HttpRequest, user: Any, given: Given) -> Reply:
    """Return the targets that are held, blocked or waited for."""
    most = params.limit(request)
    summaries = target_summaries_for(user, search=params.text(request, "search") or "", tenant=params.text(request, "tenant"))[: most + 1]
    return 200, {"targets": [_target(summary) for summary in summaries[:most]], "more": len(summaries) > most}


def _target(summary: TargetSummary) -> dict[str, Any]:
    holder = None if summary.holder_id is None else public_ids.public_id(summary.holder_id)
    return {**_plain(summary), "target": mask_text(summary.target), "tenant": mask_text(summary.tenant), "holder_public_id": holder}


def act_on_queue(verb: str) -> Handler:
    """Return the handler that pauses or resumes a queue."""

    def handle(request: HttpRequest, user: Any, given: Given) -> Reply:
        name = params.queue(given["queue"])
        until = params.until(request) if verb == "pause" else None
        with Job.objects.database.atomic():
            answer = queues.pause_queue(name, until=until) if verb == "pause" else queues.resume_queue(name)
            audit.record_queue(request, user, name, verb, changed=answer.changed)
        return 200, {**_plain(answer), "warning": queue_names.warning(name) if answer.paused else ""}

    return handle


def list_queues(request: HttpRequest, user: Any, given: Given) -> Reply:
    """Return the queues, their pauses and limits, and their numbers of queued and running jobs."""
    return 200, {"queues": [queue_as_json(state) for state in queue_states_for(user)], "more": queue_names.are_left_out()}


def queue_as_json(state: QueueState) -> dict[str, Any]:
    """Return the state of a queue, with its name masked."""
    return {**_plain(state), "name": mask_text(state.name)}


def list_workers(request: HttpRequest, user: Any, given: Given) -> Reply:
    """Return the live workers, and the newest that left."""
    return 200, {"workers": [worker_as_json(worker) for worker in live_workers()], "left": [_plain(one) for one in left_workers()]}


def show_worker(request: HttpRequest, user: Any, given: Given) -> Reply:
    """Return one worker with the jobs that it runs and that the user may see."""
    try:
        found = worker_detail(user, find_worker(given["worker"]))
    except WorkerDoesNotExist as error:
        raise ApiError(404, str(error)) from error
    jobs = {name: [as_json(job) for job in found[name]] for name in ("jobs", "stuck")}
    return 200, {**as_json(found), **jobs, "queues": [mask_text(queue) for queue in found["queues"]]}


def worker_as_json(worker: Alive) -> dict[str, Any]:
    """Return a live worker, with the names of its queues masked."""
    return {**asdict(worker), "queues": [mask_text(queue) for queue in worker.queues]}


def drain(*, drained: bool) -> Handler:
    """Return the handler that drains a worker, or makes it start jobs again."""

    def handle(request: HttpRequest, user: Any, given: Given) -> Reply:
        with Job.objects.database.atomic():
            try:
                answer = drain_worker(given["worker"], drained=drained)
            except WorkerDoesNotExist as error:
                raise ApiError(404, str(error)) from error
            audit.record_worker(request, user, answer)
        return 200, asdict(answer)

    return handle


def list_errors(request: HttpRequest, user: Any, given: Given) -> Reply:
    """Return the kinds of errors of the jobs in ERROR, the most frequent first."""
    most = params.limit(request)
    found = error_kinds_for(user)
    return 200, {"errors": [_error(kind) for kind in found[:most]], "more": len(found) > most}


def _error(kind: ErrorKind) -> dict[str, Any]:
    return {**_plain(kind), "newest_public_id": public_ids.public_id(kind.newest_id)}


def _plain(record: Any) -> dict[str, Any]:
    """Return a record's fields, with times as ISO text, as in a report."""
    return as_json(asdict(record))


def as_json(values: dict[str, Any]) -> dict[str, Any]:
    """Return values with times as ISO text."""
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()}
