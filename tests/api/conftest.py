"""Fixtures of the API's tests: users and programs with only the permissions that a test names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.http import HttpRequest
from django.test import Client

ROOT = "/jobqueue/"
VERBS = ("cancel_job", "pause_job", "resume_job", "run_now_job", "delete_job")

MakeUser = Callable[..., Any]


def by_token(request: HttpRequest) -> Any:
    """Take the name of a user as the token."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return get_user_model().objects.filter(username=token).first() if scheme == "Bearer" else None


def url(job: Any, verb: str = "", target: str | None = None) -> str:
    place = "" if target is None else f"targets/{target}/"
    return f"{ROOT}{place}jobs/{job.pk}/{f'{verb}/' if verb else ''}"


def error(response: Any) -> dict[str, Any]:
    """Return the error of an answer, and check its form."""
    body = response.json()
    assert list(body) == ["error"]
    assert {"code", "message"} <= set(body["error"])
    return dict(body["error"])


@pytest.fixture
def make_user(db: None) -> MakeUser:
    def make(*codenames: str, **more: Any) -> Any:
        users = get_user_model().objects
        user = users.create_user(f"user{users.count()}", **more)
        user.user_permissions.set(Permission.objects.filter(content_type__app_label="jobqueue", codename__in=codenames))
        return user

    return make


@pytest.fixture
def login(make_user: MakeUser) -> Callable[..., Client]:
    def make(*codenames: str, **more: Any) -> Client:
        client = Client()
        client.force_login(make_user(*codenames, **more))
        return client

    return make


@pytest.fixture
def viewer(login: Callable[..., Client]) -> Client:
    return login("view_job")


@pytest.fixture
def operator(login: Callable[..., Client]) -> Client:
    return login("view_job", *VERBS)


@pytest.fixture
def tokens(settings: Any) -> None:
    """Make the API accept tokens."""
    settings.JOBQUEUE = {"API_AUTHENTICATOR": by_token}
