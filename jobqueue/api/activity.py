"""The handler of the endpoint of the activity."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest

from jobqueue import public_ids
from jobqueue.api import params
from jobqueue.api.params import Given
from jobqueue.insight.activity import activity, as_json


def list_activity(request: HttpRequest, user: Any, given: Given) -> tuple[int, dict[str, Any]]:
    """Return who did what, the newest first."""
    name, verb = params.text(request, "actor") or "", params.text(request, "did") or ""
    text = request.GET.get("job")
    job_id = None if text is None else 0 if _is_of_no_job(text) else params.job_id(text, 400)
    since, before = params.time(request, "since"), params.time(request, "before")
    most, after = params.limit(request), params.after(request)
    found, after = activity(user, most, name=name, verb=verb, job_id=job_id, after=after, since=since, before=before)
    return 200, {"activity": [as_json(record) for record in found], "more": after is not None, "after": after}


def _is_of_no_job(text: str) -> bool:
    """Return whether a text is a UUID that is no public id: nothing was done to that job, and the request is right."""
    try:
        return str(UUID(text)) == text.lower() and public_ids.job_id_of(text) is None
    except ValueError:
        return False
