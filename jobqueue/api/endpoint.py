"""One endpoint of the REST API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jobqueue.api.views import Handler


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One method of one URL; `path` has its parameters in braces, as OpenAPI writes them."""

    method: str
    path: str
    name: str
    summary: str
    handler: Handler
    returns: str  # the shape of the response, one of `shapes.SHAPES`; empty: any object
    permissions: tuple[str, ...] = ("view_job",)
    query: tuple[str, ...] = ()
    required: tuple[str, ...] = ()  # the parameters of the query that must be given
    success_statuses: tuple[int, ...] = (200,)
    fails: bool = False  # whether a response of the status 503 can have the same shape as one of success
    body: dict[str, Any] | None = None  # the shape of the request's body, which may be left out
    can_be_refused: bool = False  # whether the state of the job can forbid it
    content_type: str = "application/json"
    streams: bool = False  # the response is a stream of events, not JSON
    public: bool = False
