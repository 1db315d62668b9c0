"""Fixtures of the admin's tests: users with only the permissions that a test names."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse

LIST = "/admin/jobqueue/job/"
VERBS = ("cancel_job", "pause_job", "resume_job", "run_now_job", "delete_job")

Login = Callable[..., Client]


def detail(job: Any) -> str:
    return reverse("admin:jobqueue_job_change", args=[job.pk])


def button(job: Any, verb: str) -> str:
    return reverse("admin:jobqueue_job_act", args=[job.pk, verb])


def told(response: Any) -> list[str]:
    """Return the messages that a request left for the user."""
    return [str(message) for message in get_messages(response.wsgi_request)]


def choose(client: Client, action: str, *jobs: Any, url: str = LIST, **more: Any) -> Any:
    """Post a bulk action as the form of the list does."""
    data = {"action": action, "index": 0, "select_across": 0, "_selected_action": [job.pk for job in jobs], **more}
    return client.post(url, data)


@pytest.fixture
def login(db: None) -> Login:
    def make(*codenames: str, **options: Any) -> Client:
        user = get_user_model().objects.create_user(f"user{get_user_model().objects.count()}", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(content_type__app_label="jobqueue", codename__in=codenames))
        client = Client(**options)
        client.force_login(user)
        return client

    return make


@pytest.fixture
def viewer(login: Login) -> Client:
    return login("view_job", "view_worker")


@pytest.fixture
def operator(login: Login) -> Client:
    return login("view_job", *VERBS)
