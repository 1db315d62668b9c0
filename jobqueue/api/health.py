"""The handlers of the endpoints about the whole installation: its problems, and its queues, workers and jobs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.http import HttpRequest

from jobqueue.access import visible
from jobqueue.api import params
from jobqueue.api.params import Given
from jobqueue.api.responses import ApiError, json_response
from jobqueue.api.views import Reply, queue_as_json, worker_as_json
from jobqueue.insight.health import status
from jobqueue.insight.problems import Severity, problems

SEVERITIES = [str(severity) for severity in Severity]


def show_health(request: HttpRequest, user: Any, given: Given) -> Reply:
    """Return the problems; the status is 503 if one of them has at least the severity `fail_on`."""
    _check_sight(user)
    fail_on = params.choice(request, "fail_on", SEVERITIES, str(Severity.ERROR))
    found = problems()
    failing = [one for one in found if fail_on == Severity.WARNING or one.severity == Severity.ERROR]
    shown = [{name: value for name, value in asdict(one).items() if name != "link"} for one in found]
    response = json_response({"healthy": not failing, "problems": shown}, 503 if failing else 200)
    response._has_been_logged = True  # type: ignore[attr-defined] # else Django reports each request of a monitor as an error, by mail
    return response


def show_status(request: HttpRequest, user: Any, given: Given) -> Reply:
    """Return the queues, the live workers, and the number of jobs in each state."""
    _check_sight(user)
    found = status()
    return 200, {
        "queues": [queue_as_json(queue) for queue in found.queues],
        "workers": [worker_as_json(worker) for worker in found.workers],
        "jobs": [asdict(count) for count in found.jobs],
        "more_queues": found.more_queues,
    }


def _check_sight(user: Any) -> None:
    if visible.is_narrowed(user):
        raise ApiError(403, "This response is about the jobs of all tenants, and you may not see all jobs (VISIBLE_JOBS).")
