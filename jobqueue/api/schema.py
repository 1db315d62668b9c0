"""The OpenAPI document, built from the table of endpoints and the shapes of their responses."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

import jobqueue
from jobqueue import conf
from jobqueue.api import params, shapes
from jobqueue.api.endpoint import Endpoint
from jobqueue.api.shape_parts import OBJECT, ref
from jobqueue.bulk.actions import VERBS
from jobqueue.core import scaling
from jobqueue.core.loads import RINGS
from jobqueue.core.search import MAX_LENGTH
from jobqueue.insight.log import LEVELS
from jobqueue.insight.problems import Severity
from jobqueue.models import WebhookDelivery

NAME = {"type": "string", "minLength": 1, "maxLength": params.MAX_TEXT}
QUERY = {"type": "string", "maxLength": params.MAX_TEXT, "pattern": r"^[^\u0000-\u001f\u007f-\u009f]*$"}

PARAMETERS: dict[str, tuple[dict[str, Any], str]] = {
    "job_id": (
        {"anyOf": [{"type": "string", "format": "uuid"}, {"type": "integer", "minimum": 1, "maximum": params.MAX_ID}]},
        "The job's public id, or its number.",
    ),
    "target": ({**NAME, "pattern": r"^[^/\u0000-\u001f\u007f-\u009f]+$"}, "The job's target, percent-encoded."),
    "queue": (
        {**NAME, "pattern": r"^[^\u0000]+$"},
        "The queue's name, percent-encoded; it may have slashes.",
    ),
    "worker": (
        {**NAME, "pattern": r"^[^/\u0000-\u001f\u007f-\u009f]+$"},
        "The id of a worker, or its host and process id, percent-encoded.",
    ),
    "tenant": (QUERY, "The tenant; empty for a target without a tenant."),
    "bulk_id": ({"type": "integer", "minimum": 1, "maximum": params.MAX_ID}, "The number of the bulk action."),
    "schedule": (
        {**NAME, "pattern": r"^[^\u0000]+$"},
        "The schedule's name, percent-encoded; it may have slashes.",
    ),
    "actor": (QUERY, "Only what this user did, or this system user on the command line."),
    "did": (QUERY, "Only this verb, such as `cancel` or `redeliver`."),
    "job": (
        {"anyOf": [{"type": "string", "format": "uuid"}, {"type": "string", "pattern": "^[1-9][0-9]{0,17}$"}]},
        "Only what was done to this job: its public id, or its number.",
    ),
    "since": (QUERY, "Only what was done since then: an ISO 8601 time, by default in UTC, or a number with s, m, h, d or w, such as `2h`."),
    "before": (QUERY, "Only what was done before then, in the same forms as `since`."),
    "delivery": ({"type": "integer", "minimum": 1, "maximum": params.MAX_ID}, "The number of the delivery."),
    "delivery_status": ({"enum": [*WebhookDelivery.Status.values]}, "Only deliveries in this state."),
    "verb": ({"enum": [*VERBS]}, "What to do; needs the permission of the verb, such as `cancel_job`."),
    "dry_run": ({"enum": ["0", "1"], "default": "0"}, "Whether only to count the jobs."),
    "q": ({**QUERY, "maxLength": MAX_LENGTH}, "The search, such as `status:ERROR order_id=7 since:2h`; without it, all jobs."),
    "after": ({"type": "integer", "minimum": 1, "maximum": params.MAX_ID}, "The `after` of the page before; without it, the first page."),
    "level": ({"enum": [*LEVELS], "default": "debug"}, "The lowest level of the lines."),
    "attempt": ({"type": "integer", "minimum": 1, "maximum": 999_999_999}, "The number of the run; without it, all runs."),
    "search": (QUERY, "A part of the target's name."),
    "snapshot": ({"enum": ["0", "1"]}, "Whether the stream starts with the current state; by default only for a new client."),
    "last_event_id": (
        {"type": "integer", "minimum": 0, "maximum": params.MAX_ID},
        "The id of the last message that was received, for clients that cannot send the header Last-Event-ID.",
    ),
    "until": (
        {"type": "integer", "minimum": 1, "maximum": params.MAX_PAUSE},
        "The number of seconds after which the pause ends; by default it ends with a resume.",
    ),
    "fail_on": ({"enum": [*map(str, Severity)], "default": "error"}, "The lowest severity for which the status is 503."),
    "task": ({**NAME, "maxLength": params.MAX_TASK, "pattern": r"^[^\u0000]+$"}, "The dotted path of the task."),
    "period": ({"enum": [*RINGS], "default": "1h"}, "The last hour, day or fortnight, in points of 10 seconds, 1 minute or 15 minutes."),
    "within": (
        {"type": "integer", "minimum": scaling.MIN_TARGET, "maximum": scaling.MAX_TARGET, "default": scaling.DEFAULT_TARGET},
        "In how many seconds a backlog shall be gone.",
    ),
    "limit": (
        {"type": "integer", "minimum": 1, "maximum": params.MAX_LINES, "default": params.DEFAULT_LINES},
        "The maximum number of entries.",
    ),
}
ERRORS = {
    400: "A parameter of the query is invalid, or the request cannot be read.",
    401: "The credentials are missing or invalid.",
    403: "A permission or the session's CSRF token is missing.",
    404: "The job does not exist, or it belongs to another target or tenant.",
    409: "The job's state does not allow it; nothing was changed.",
    429: "The user has reached the limit of open streams.",
    500: "The server failed to process the request.",
    503: "The database did not respond.",
}
STREAM = "Messages in text/event-stream; the data of each is one such object."
DONE = {200: "Done.", 201: "Done: a job was created.", 202: "Requested: a running job was asked to stop, or a bulk action will be done."}


def document(endpoints: Iterable[Endpoint], *, server: str) -> dict[str, Any]:
    """Return the OpenAPI document of these endpoints, with a server address."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(f"/{endpoint.path}", {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "jobqueue", "version": jobqueue.__version__, "description": "Observe and control background jobs."},
        "servers": [{"url": server.rstrip("/") or "/"}],
        "security": [*([{"token": []}] if conf.api_authenticator() is not None else []), {"session": []}],
        "paths": paths,
        "components": {"schemas": shapes.SHAPES, "securitySchemes": _schemes()},
    }


def _schemes() -> dict[str, Any]:
    token = {"token": {"type": "http", "scheme": "bearer"}} if conf.api_authenticator() is not None else {}
    description = "The session of a user who is logged in; a change needs the header X-CSRFToken, too."
    return {**token, "session": {"type": "apiKey", "in": "cookie", "name": conf.session_cookie_name(), "description": description}}


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    in_path = re.findall(r"\{(\w+)\}", endpoint.path)
    parameters = [_parameter(name, "path") for name in in_path] + [_parameter(name, "query", endpoint.required) for name in endpoint.query]
    shape = ref(endpoint.returns) if endpoint.returns else OBJECT
    description, kind = (STREAM, "text/event-stream") if endpoint.streams else ("", endpoint.content_type)
    responses = {str(status): _response(description or DONE[status], shape, kind) for status in endpoint.success_statuses}
    responses |= {str(status): _response(ERRORS[status], ref("Error")) for status in _errors(endpoint, in_path)}
    if endpoint.fails:
        responses["503"] = _response(ERRORS[503], {"anyOf": [shape, ref("Error")]})
    described: dict[str, Any] = {
        "operationId": f"{endpoint.name}_{endpoint.method.lower()}",
        "summary": endpoint.summary,
        "parameters": parameters,
        "responses": responses,
    }
    if endpoint.body is not None:
        described["requestBody"] = {"required": False, "content": {"application/json": {"schema": endpoint.body}}}
    if endpoint.public:
        return {**described, "security": []}
    needs = " and ".join(f"jobqueue.{name}" for name in endpoint.permissions)
    return {**described, "description": f"Requires the permission {needs}."}


def _errors(endpoint: Endpoint, in_path: list[str]) -> list[int]:
    """Return the statuses of the errors with which an endpoint can respond."""
    possible = {
        400: bool(endpoint.query) or endpoint.method != "GET",
        401: not endpoint.public,
        403: not endpoint.public,
        404: bool(in_path),
        409: endpoint.can_be_refused,
        429: endpoint.streams,
        500: True,
        503: True,
    }
    return [status for status, is_possible in possible.items() if is_possible]


def _parameter(name: str, place: str, required: Collection[str] = ()) -> dict[str, Any]:
    schema, description = PARAMETERS[name]
    return {"name": name, "in": place, "required": place == "path" or name in required, "schema": schema, "description": description}


def _response(description: str, shape: dict[str, Any], kind: str = "application/json") -> dict[str, Any]:
    return {"description": description, "content": {kind: {"schema": shape}}}
