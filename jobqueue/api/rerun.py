"""The handler of the endpoint that runs an ended job again."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpRequest

from jobqueue import public_ids
from jobqueue.access import audit
from jobqueue.api import params
from jobqueue.api.params import Given
from jobqueue.api.responses import ApiError
from jobqueue.exceptions import CannotRunAgain
from jobqueue.models import Job
from jobqueue.rerun import run_again

NAMES = ("args", "kwargs")
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


def run_job_again(request: HttpRequest, user: Any, given: Given) -> tuple[int, dict[str, Any]]:
    """Enqueue a copy of a job, with the arguments of the request's body or those of the job."""
    job, values = params.job(request, user, given, "task", "tenant", "target", "status"), _arguments(request)
    ids: dict[str, Any] = {"job": job.pk, "public_id": public_ids.public_id(job.pk)}
    address = audit.address_of(request)
    try:
        with Job.objects.database.atomic():
            copy = run_again(job.pk, **values)
            text = f"Enqueued again over REST as job {copy}{', with other arguments' if values else ''}."
            audit.record(user, "rerun", job, audit.DONE, address, text=text)
    except CannotRunAgain as error:
        audit.record(user, "rerun", job, audit.REFUSED, address, text=str(error))
        raise ApiError(409, str(error), reason=error.problems[0], status=job.status, **ids) from error
    return 201, {**ids, "copy": copy, "copy_public_id": public_ids.public_id(copy)}


def _arguments(request: HttpRequest) -> dict[str, Any]:
    # A form has no arguments; browsers and test clients send an empty one.
    if request.content_type in FORMS or not request.body.strip():
        return {}
    try:
        body = json.loads(request.body)
    except (ValueError, RecursionError):
        raise ApiError(400, "The body is not valid JSON.") from None
    if not isinstance(body, dict) or not body.keys() <= {*NAMES}:
        raise ApiError(400, 'The body must be an object with "args" (a list), "kwargs" (an object), or both; or be empty.')
    for name, kind, rule in (("args", list, "a list"), ("kwargs", dict, "an object")):
        if name in body and not isinstance(body[name], kind):
            raise ApiError(400, f"{name} must be {rule}.")
    return body
