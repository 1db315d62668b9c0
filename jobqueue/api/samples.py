"""The handlers of the endpoints that read samples: recent loads, series, metrics, the autoscaling signal."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.http import HttpRequest, HttpResponse

from jobqueue.api import params
from jobqueue.api.params import Given
from jobqueue.api.responses import ApiError
from jobqueue.api.views import Handler, Reply
from jobqueue.core.loads import QUEUE, RINGS
from jobqueue.core.masking import mask_text
from jobqueue.core.scaling import DEFAULT_TARGET, MAX_TARGET, MIN_TARGET
from jobqueue.insight import prometheus, samples
from jobqueue.insight.samples import Figures
from jobqueue.insight.scaler import queue_demands


def recent_loads(kind: str) -> Handler:
    """Return the handler that returns the load of each queue, or of each task, in the last five minutes."""

    def handle(request: HttpRequest, user: Any, given: Given) -> Reply:
        _check_sight(user)
        return 200, {"loads": [{"name": mask_text(one.name), **_plain(one.figures)} for one in samples.recent(kind)]}

    return handle


def series(kind: str) -> Handler:
    """Return the handler that returns the load of one queue or task over time."""

    def handle(request: HttpRequest, user: Any, given: Given) -> Reply:
        _check_sight(user)
        name = params.queue(given["queue"]) if kind == QUEUE else params.task(given["task"])
        found = samples.series(kind, name, params.choice(request, "period", tuple(RINGS), "1h"))
        points = [_plain(point) for point in found.points]
        return 200, {"name": mask_text(name), "period": found.period, "points": points, "total": _plain(found.total)}

    return handle


def scaler(request: HttpRequest, user: Any, given: Given) -> Reply:
    """Return how many slots each queue needs."""
    _check_sight(user)
    within = params.whole(request, "within", MIN_TARGET, MAX_TARGET, DEFAULT_TARGET)
    found = queue_demands(within)
    return 200, {
        "slots_wanted": sum(one.slots_wanted for one in found),
        "queues": [{**asdict(one), "queue": mask_text(one.queue)} for one in found],
    }


def metrics(request: HttpRequest, user: Any, given: Given) -> Reply:
    """Return the metrics for Prometheus."""
    _check_sight(user)
    try:
        body = prometheus.text()
    except prometheus.PrometheusMissing as error:
        raise ApiError(503, f"{error}.", code="no_metrics") from error
    return HttpResponse(body, content_type=prometheus.CONTENT_TYPE, headers={"Cache-Control": "no-store, private"})


def _check_sight(user: Any) -> None:
    if not samples.may_see(user):
        raise ApiError(403, "Samples count the jobs of all tenants, and you may not see all jobs (VISIBLE_JOBS).")


def _plain(figures: Figures) -> dict[str, Any]:
    return {**asdict(figures), "at": figures.at.isoformat()}
