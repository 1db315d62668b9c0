"""Read the parameters of requests, and reject values that cannot name an object, without a query."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.http import HttpRequest

from jobqueue import public_ids
from jobqueue.access import visible
from jobqueue.api.responses import ApiError
from jobqueue.core.search import MAX_LENGTH, Search, time_of
from jobqueue.core.texts import clean
from jobqueue.db import Now
from jobqueue.exceptions import InvalidSearch
from jobqueue.insight.search import parsed
from jobqueue.models import Job

MAX_ID = 2**63 - 1
MAX_TEXT = 200
MAX_TASK = 450
MAX_LINES = 1000
DEFAULT_LINES = 100
MAX_PAUSE = 999_999_999

Given = dict[str, str]


def job_id(text: str, status: int = 404) -> int:
    """Return the number of the job that a path names by its public id or its number; raise `ApiError` for any other text.

    The status is 404 in a path; a query whose value is wrong gets 400.
    """
    if (found := public_ids.job_id_of(text)) is not None:
        return found
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else 0
    if not 0 < number <= MAX_ID or str(number) != text:
        rule = f"it must be the job's public id, or its number, from 1 to {MAX_ID}"
        raise ApiError(status, f"{shown(text)} is not the id of a job: {rule}.")
    return number


def job(request: HttpRequest, user: Any, given: Given, *columns: str) -> Job:
    """Return the job that the path names, with the database's time; reject a job whose target or tenant is not that of the request.

    For a job that the user may not see, the error is the same as for a job that does not exist.

    If the path has a target and the query has no tenant, the job must have no tenant, because a target belongs to one.
    """
    number = job_id(given["job_id"])
    tenant, target = text(request, "tenant"), given.get("target")
    jobs = visible.narrow(user, Job.objects.current.annotate(now=Now()).filter(pk=number))
    row = (jobs.only("pk", *columns) if columns else jobs).first()
    if row is None:
        raise ApiError(404, f"There is no job {given['job_id']}.")
    if target is not None and row.target != target:
        raise ApiError(404, f"Job {given['job_id']} does not belong to target {shown(target)}.")
    if (target is not None or tenant is not None) and row.tenant != (tenant or ""):
        raise ApiError(
            404, f"Job {given['job_id']} {f'does not belong to tenant {shown(tenant)}' if tenant else 'has a tenant: name it by ?tenant='}."
        )
    return row


def queue(name: str) -> str:
    """Return the name of a queue that the path names; reject names that the table cannot store."""
    return _named(name, "name of a queue", MAX_TEXT)


def task(name: str) -> str:
    """Return the dotted path of a task that the path names; reject names that the table cannot store."""
    return _named(name, "path of a task", MAX_TASK)


def schedule(name: str) -> str:
    """Return the name of a schedule that the path names; reject names that the table cannot store."""
    return _named(name, "name of a schedule", MAX_TEXT)


def _named(name: str, what: str, most: int) -> str:
    if len(name) > most or clean(name) != name:
        raise ApiError(404, f"{shown(name)} is not a valid {what}: it must have at most {most} characters and no NUL.")
    return name


def text(request: HttpRequest, name: str, most: int = MAX_TEXT) -> str | None:
    """Return a text of the query, None if it is not given."""
    value = request.GET.get(name)
    if value is not None and (len(value) > most or has_control(value)):
        raise ApiError(400, f"{name} is {shown(value)}; it must have at most {most} characters and no control characters.")
    return value


def until(request: HttpRequest) -> timedelta | None:
    """Return the length of the pause that the query requests, in whole seconds; None for a pause without an end."""
    value = request.GET.get("until")
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and len(value) <= 9 and value[0] != "0"):
        raise ApiError(400, f"until is {shown(value)}; it must be a whole number of seconds, counted from now, from 1 to {MAX_PAUSE}.")
    return timedelta(seconds=int(value))


def time(request: HttpRequest, name: str) -> datetime | timedelta | None:
    """Return a time of the query, or the length of time until now; None if it is not given."""
    value = request.GET.get(name)
    try:
        return None if value is None else time_of(name, value)
    except InvalidSearch as error:
        raise ApiError(400, str(error)) from None


def choice(request: HttpRequest, name: str, choices: Sequence[str], default: str) -> str:
    """Return a text of the query that must be one of some choices."""
    value = request.GET.get(name, default)
    if value not in choices:
        raise ApiError(400, f"{name} is {shown(value)}; it must be one of: {', '.join(choices)}.")
    return value


def limit(request: HttpRequest) -> int:
    """Return how many entries the query requests."""
    return whole(request, "limit", 1, MAX_LINES, DEFAULT_LINES)


def whole(request: HttpRequest, name: str, least: int, most: int, default: int) -> int:
    """Return a whole number of the query."""
    value = request.GET.get(name)
    if value is None:
        return default
    number = int(value) if value.isascii() and value.isdigit() and len(value) <= 9 else least - 1
    if not least <= number <= most:
        raise ApiError(400, f"{name} is {shown(value)}; it must be a whole number from {least} to {most}.")
    return number


def search_text(request: HttpRequest) -> str:
    """Return the query's `q`, or "" without it."""
    return text(request, "q", MAX_LENGTH) or ""


def search(request: HttpRequest) -> Search:
    """Return the conditions of the query's `q`; without it, those of an empty search."""
    try:
        return parsed(search_text(request))
    except InvalidSearch as error:
        raise ApiError(400, f"q: {error}") from error


def after(request: HttpRequest) -> int | None:
    """Return the number of the job after which a page begins, or None."""
    value = request.GET.get("after")
    if value is None:
        return None
    number = int(value) if value.isascii() and value.isdigit() and len(value) <= 19 else 0
    if not 0 < number <= MAX_ID:
        raise ApiError(400, f"after is {shown(value)}; it must be the `after` of the page before, from 1 to {MAX_ID}.")
    return number


def has_control(value: str) -> bool:
    """Return whether a text contains characters that no name has: a control character or a lone surrogate."""
    return any(unicodedata.category(character) in ("Cc", "Cs") for character in value)


def shown(value: Any) -> str:
    """Return a short form of a value of the request, for an error."""
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
