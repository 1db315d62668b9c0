"""The handlers of the endpoints of bulk actions."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.contrib.auth import get_user_model
from django.http import HttpRequest

from jobqueue.access import audit, visible
from jobqueue.api import access, params
from jobqueue.api.params import Given
from jobqueue.api.responses import ApiError
from jobqueue.bulk import actions
from jobqueue.bulk.actions import VERBS
from jobqueue.core.masking import mask_text
from jobqueue.exceptions import InvalidSearch
from jobqueue.models import BulkAction

Reply = tuple[int, dict[str, Any]]


def request_action(request: HttpRequest, user: Any, given: Given) -> Reply:
    """Request a bulk action, or with `dry_run` only count what it would change."""
    verb, query = params.text(request, "verb"), params.search_text(request)
    if verb not in VERBS:
        raise ApiError(400, f"verb is {params.shown(verb)}; it must be one of {', '.join(VERBS)}.")
    dry_run = request.GET.get("dry_run", "0")
    if dry_run not in ("0", "1"):
        raise ApiError(400, f"dry_run is {params.shown(dry_run)}; it must be 0 or 1.")
    access.check_permissions(user, [f"{verb}_job"])
    try:
        found = actions.preview(verb, query, user)
    except InvalidSearch as error:
        raise ApiError(400, f"q: {error}") from error
    if dry_run == "1":
        return 200, {"preview": asdict(found), "action": None}
    if not isinstance(user, get_user_model()) or user.pk is None:
        raise ApiError(403, "A bulk action needs a user of the project's user model, whose permissions are checked again while it runs.")
    made = actions.create(verb, query, actor=user, source="rest", address=audit.address_of(request), counted=found.number)
    return 202, {"preview": asdict(found), "action": _shown(made)}


def show_action(request: HttpRequest, user: Any, given: Given) -> Reply:
    """Return the state of a bulk action."""
    return 200, _shown(_action(user, given))


def stop_action(request: HttpRequest, user: Any, given: Given) -> Reply:
    """Stop a bulk action after its present batch."""
    action = _action(user, given)
    access.check_permissions(user, [f"{action.verb}_job"])
    if not actions.stop(action, actor=user, address=audit.address_of(request)):
        reason = f"a bulk action in state {action.state} cannot be stopped"
        raise ApiError(409, f"{reason.capitalize()}.", reason=reason)
    return 202, _shown(action)


def _action(user: Any, given: Given) -> BulkAction:
    """Return the action that the path names; a user who may not see all jobs sees only the user's own actions."""
    text = given["bulk_id"]
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else 0
    found = actions.rows().filter(pk=number).first() if 0 < number <= params.MAX_ID else None
    if found is None or (visible.is_narrowed(user) and found.user != str(user.pk)):
        raise ApiError(404, f"There is no bulk action {params.shown(text)}.")
    return found


def _shown(action: BulkAction) -> dict[str, Any]:
    return {**actions.as_json(action), "query": mask_text(action.query)}
