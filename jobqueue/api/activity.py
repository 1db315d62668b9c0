"""The handler of the endpoint of the activity."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from jobqueue.api import params
from jobqueue.api.params import Given
from jobqueue.insight.activity import activity, as_json


def list_activity(request: HttpRequest, user: Any, given: Given) -> tuple[int, dict[str, Any]]:
    """Return who did what, the newest first."""
    name, verb = params.text(request, "actor") or "", params.text(request, "did") or ""
    text = request.GET.get("job")
    job_id = None if text is None else params.job_id(text, 400)
    found, after = activity(user, params.limit(request), name=name, verb=verb, job_id=job_id, after=params.after(request))
    return 200, {"activity": [as_json(record) for record in found], "more": after is not None, "after": after}
