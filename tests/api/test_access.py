"""Permissions of the REST API, and its errors in JSON."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.db import OperationalError
from django.http import HttpRequest
from django.test import Client, RequestFactory
from django.urls import resolve, reverse

from jobqueue import checks
from jobqueue.api import access
from jobqueue.api.endpoint import Endpoint
from jobqueue.api.endpoints import ENDPOINTS
from jobqueue.models import BulkAction, Job, Queue, WebhookDelivery, Worker
from tests.api.conftest import ROOT, VERBS, MakeUser, by_token, error, url
from tests.factories import DeliveryFactory, JobFactory, ScheduleFactory, WorkerFactory

pytestmark = pytest.mark.django_db

GUARDED = [one for one in ENDPOINTS if not one.public]
CHANGES = [one for one in GUARDED if one.method != "GET"]


def ids(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


def address(endpoint: Endpoint, job: Job) -> str:
    """Return the URL of an endpoint, with objects that exist in place of its parameters."""
    worker, action, delivery = Worker.objects.first(), BulkAction.objects.first(), WebhookDelivery.objects.first()
    named = {
        "worker": worker and worker.pk,
        "bulk_id": action and action.pk,
        "queue": "mail",
        "task": "shop.tasks.add",
        "delivery": delivery and delivery.pk,
        "schedule": "nightly",
    }
    query = "?verb=cancel&q=status:ERROR" if endpoint.path == "bulk/" else ""
    return ROOT + endpoint.path.format(job_id=job.pk, target=job.target, **named) + query


def send(client: Client, endpoint: Endpoint, job: Job, **more: Any) -> Any:
    return client.generic(endpoint.method, address(endpoint, job), **more)


@pytest.fixture
def job(db: None) -> Job:
    WorkerFactory()
    DeliveryFactory()
    ScheduleFactory(name="nightly")
    BulkAction.objects.create(verb="cancel", query="status:ERROR", upto_id=0)
    made: Job = JobFactory(target="customer:7")
    return made


def untouched(job: Job) -> bool:
    return Job.objects.filter(pk=job.pk, status="QUEUED").exists() and not Queue.objects.exists()


@pytest.mark.parametrize("endpoint", GUARDED, ids=ids)
def test_unknown_users_are_rejected(client: Client, job: Job, endpoint: Endpoint) -> None:
    response = send(client, endpoint, job)
    assert (response.status_code, error(response)["code"]) == (401, "not_authenticated")
    assert response.headers["WWW-Authenticate"] == 'Session realm="jobqueue"'
    assert untouched(job)


@pytest.mark.parametrize("endpoint", GUARDED, ids=ids)
@pytest.mark.parametrize("lacking", range(2))
def test_each_permission_is_needed_and_named(login: Any, job: Job, endpoint: Endpoint, lacking: int) -> None:
    every = {"view_job", *VERBS, "view_queue", "pause_queue", "resume_queue", "set_webhook_queue", "view_worker", "drain_worker"}
    every |= {
        "view_job_log",
        "requeue_job",
        "view_webhookdelivery",
        "redeliver_webhookdelivery",
        "give_up_webhookdelivery",
        "view_auditrecord",
        "view_schedule",
    }
    missing = endpoint.permissions[min(lacking, len(endpoint.permissions) - 1)]
    response = send(login(*(every - {missing}), is_staff=True), endpoint, job)
    assert (response.status_code, error(response)["permission"]) == (403, f"jobqueue.{missing}")
    assert untouched(job)


@pytest.mark.parametrize("endpoint", GUARDED, ids=ids)
def test_the_permissions_of_the_table_are_enough(login: Any, job: Job, endpoint: Endpoint) -> None:
    verb = ["cancel_job"] if endpoint.path.startswith("bulk/") else []  # a bulk action needs the permission of its verb, too
    response = send(login(*endpoint.permissions, *verb), endpoint, job)
    assert response.status_code in (*endpoint.success_statuses, 409)


def test_a_user_who_is_not_active_any_more_is_unknown(tokens: None, client: Client, make_user: MakeUser, job: Job) -> None:
    user = make_user("view_job", is_active=False)
    assert client.get(url(job), headers={"Authorization": f"Bearer {user.username}"}).status_code == 401


@pytest.mark.parametrize("endpoint", CHANGES, ids=ids)
def test_a_session_needs_its_csrf_token_for_a_change(make_user: MakeUser, job: Job, endpoint: Endpoint) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(make_user(is_superuser=True))
    for more in ({}, {"headers": {"Authorization": "Bearer made-up"}}, {"headers": {"Origin": "https://evil.example"}}):
        response = send(client, endpoint, job, **more)
        assert (response.status_code, error(response)["code"]) == (403, "csrf_failed")
    assert untouched(job)


def test_a_session_changes_with_its_csrf_token(make_user: MakeUser, job: Job) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(make_user(is_superuser=True))
    client.get(reverse("admin:login") + "?next=/admin/")
    client.get("/admin/")
    token = client.cookies["csrftoken"].value
    assert client.post(url(job, "pause"), headers={"X-CSRFToken": "x" * len(token)}).status_code == 403
    assert client.post(url(job, "pause"), headers={"X-CSRFToken": token}).status_code == 200
    assert client.post(url(job, "resume"), {"csrfmiddlewaretoken": token}).status_code == 200
    assert client.delete(url(job), headers={"X-CSRFToken": token, "Origin": "https://evil.example"}).status_code == 403
    assert client.delete(url(job), headers={"X-CSRFToken": token}).status_code == 200


def test_the_csrf_check_does_not_depend_on_the_projects_middleware(settings: Any, make_user: MakeUser, job: Job) -> None:
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if "Csrf" not in name]
    client = Client(enforce_csrf_checks=True)
    client.force_login(make_user(is_superuser=True))
    assert client.post(url(job, "pause")).status_code == 403
    assert untouched(job)
    client.cookies["csrftoken"] = "x" * 32
    assert client.post(url(job, "pause"), headers={"X-CSRFToken": "y" * 32}).status_code == 403
    assert client.post(url(job, "pause"), headers={"X-CSRFToken": "x" * 32}).status_code == 200


def test_a_session_reads_without_a_csrf_token(make_user: MakeUser, job: Job) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(make_user("view_job"))
    assert client.get(url(job)).status_code == 200


def test_a_token_needs_no_csrf_token(tokens: None, make_user: MakeUser, job: Job) -> None:
    user, client = make_user("view_job", "pause_job"), Client(enforce_csrf_checks=True)
    assert client.post(url(job, "pause"), headers={"Authorization": f"Bearer {user.username}"}).status_code == 200
    # The token counts, even beside the session of another user.
    client.force_login(make_user())
    assert client.get(url(job), headers={"Authorization": f"Bearer {user.username}"}).status_code == 200


def test_a_wrong_token_is_refused(tokens: None, client: Client, job: Job) -> None:
    response = client.get(url(job), headers={"Authorization": "Bearer unknown"})
    assert (response.status_code, response.headers["WWW-Authenticate"]) == (401, 'Bearer realm="jobqueue"')


def test_a_project_whose_pages_all_need_a_login_leaves_the_api_alone(settings: Any, tokens: None, make_user: MakeUser, job: Job) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    client, user = Client(), make_user("view_job", "pause_job")
    assert client.post(url(job, "pause"), headers={"Authorization": f"Bearer {user.username}"}).status_code == 200
    assert client.get(url(job)).status_code == 401
    assert client.get(f"{ROOT}nowhere/").status_code == 404


def either(request: HttpRequest) -> Any:
    return by_token(request) or access.session_user(request)


def basic(request: HttpRequest) -> Any:
    from django.contrib.auth import get_user_model

    return get_user_model().objects.first() if request.headers.get("Authorization") else None


def test_an_authenticator_that_falls_back_on_the_session_opens_no_hole(settings: Any, make_user: MakeUser, job: Job) -> None:
    settings.JOBQUEUE = {"API_AUTHENTICATOR": f"{__name__}.either"}
    client = Client(enforce_csrf_checks=True)
    client.force_login(make_user(is_superuser=True))
    for headers in ({}, {"Authorization": "Bearer made-up"}, {"Authorization": "Basic eDp5"}):
        assert client.post(url(job, "pause"), headers=headers).status_code == 403
        assert client.get(url(job), headers=headers).status_code == 200
    assert untouched(job)


@pytest.mark.parametrize("scheme", ["Basic", "basic", "Digest", "Negotiate", "NTLM"])
def test_headers_that_a_browser_sends_by_itself_are_no_token(settings: Any, make_user: MakeUser, job: Job, scheme: str) -> None:
    make_user(is_superuser=True)
    settings.JOBQUEUE = {"API_AUTHENTICATOR": basic}
    client = Client(enforce_csrf_checks=True)
    assert client.post(url(job, "pause"), headers={"Authorization": f"{scheme} eDp5"}).status_code == 403
    assert client.post(url(job, "pause"), headers={"Authorization": "Token eDp5"}).status_code == 200


@pytest.mark.parametrize("answer", [None, AnonymousUser()])
def test_an_authenticator_that_returns_none_rejects_all_requests(settings: Any, operator: Client, job: Job, answer: Any) -> None:
    settings.JOBQUEUE = {"API_AUTHENTICATOR": lambda request: answer}
    assert operator.post(url(job, "pause")).status_code == 401
    assert untouched(job)


@pytest.mark.parametrize("endpoint", [one for one in ENDPOINTS if one.path != "jobs/{job_id}/"], ids=ids)
def test_a_wrong_method_is_reported_with_the_right_ones(operator: Client, job: Job, endpoint: Endpoint) -> None:
    allowed = {"GET", "HEAD"} if endpoint.method == "GET" else {endpoint.method}
    for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"} - allowed:
        response = operator.generic(method, address(endpoint, job))
        assert response.status_code == 405
        assert set(response.headers["Allow"].split(", ")) == allowed
        assert method == "HEAD" or error(response)["code"] == "wrong_method"
    assert untouched(job)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "job/",
        "jobs/1",
        "nowhere/",
        "jobs/1/explode/",
        "jobs/1/cancel",
        "targets/a/b/jobs/1/cancel/",
        "targets/a%2Fb/jobs/1/cancel/",
        "%00",
        "%ED%A0%80/",
        "a%0Ab/",
        "queues//pause/",
    ],
)
@pytest.mark.parametrize("method", ["get", "post"])
def test_an_unknown_address_is_reported_in_json(operator: Client, path: str, method: str) -> None:
    response = getattr(operator, method)(ROOT + path)
    assert (response.status_code, error(response)["code"]) == (404, "not_found")


@pytest.mark.parametrize("path", ["jobs/\ud800/cancel/", "targets/\ud800/jobs/1/cancel/", "queues/\ud800/pause/", "\ud800/"])
def test_half_a_character_in_a_path_is_not_found(make_user: MakeUser, path: str) -> None:
    # Only an ASGI server may hand one on, so the view is called as Django calls it there.
    JobFactory(pk=1)
    found = resolve(ROOT + path)
    request = RequestFactory().post("/")
    request.user = make_user(is_superuser=True)
    request._dont_enforce_csrf_checks = True  # type: ignore[attr-defined]
    response = found.func(request, **found.kwargs)
    assert response.status_code == 404
    assert b"not_found" in response.content


@pytest.mark.parametrize("path", ["jobs/1/", "jobs/x/", "targets/?limit=0", "nowhere/", "openapi.json"])
def test_no_answer_is_stored_or_taken_for_another_type(viewer: Client, path: str) -> None:
    response = viewer.get(ROOT + path)
    assert response.headers["Content-Type"] == "application/json"
    assert "no-store" in response.headers["Cache-Control"]
    assert response.headers["X-Content-Type-Options"] == "nosniff"


def test_a_body_that_cannot_be_read_is_reported(settings: Any, make_user: MakeUser, job: Job) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10
    client = Client(enforce_csrf_checks=True)
    client.force_login(make_user(is_superuser=True, is_staff=True))
    client.get("/admin/")
    kinds = {"application/x-www-form-urlencoded": "a=" + "x" * 100, "multipart/form-data": "no boundary"}
    for kind, body in kinds.items():
        response = client.generic("POST", url(job, "pause"), body, content_type=kind)
        assert (response.status_code, error(response)["code"]) == (400, "bad_request")
    assert untouched(job)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(OperationalError("gone"), (503, "no_database")), (KeyError("x"), (500, "failed")), (SystemExit("x"), (500, "failed"))],
)
def test_a_failure_is_logged_and_reported_without_its_text(
    settings: Any, client: Client, job: Job, caplog: pytest.LogCaptureFixture, raised: BaseException, expected: tuple[int, str]
) -> None:
    def fail(request: HttpRequest) -> None:
        raise raised

    settings.JOBQUEUE = {"API_AUTHENTICATOR": fail}
    client.raise_request_exception = False
    with caplog.at_level(logging.ERROR, "jobqueue"):
        response = client.get(url(job))
    assert (response.status_code, error(response)["code"]) == expected
    assert str(raised.args[0]) not in error(response)["message"].split()
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [raised]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, []),
        (by_token, []),
        (f"{__name__}.either", []),
        ("no.such.thing", ["jobqueue.E007"]),
        (f"{__name__}.GUARDED", ["jobqueue.E007"]),
        ("both wrong", []),
    ],
)
def test_an_authenticator_that_is_not_there_is_reported(settings: Any, value: Any, expected: list[str]) -> None:
    settings.JOBQUEUE = {"API_AUTHENTICATOR": value}
    assert [message.id for message in checks.check_authenticator()] == expected
    assert bool(checks.check_settings()) == (value == "both wrong")


def test_a_change_is_no_part_of_a_transaction_around_the_request(settings: Any, operator: Client, job: Job) -> None:
    from django.core.handlers.base import BaseHandler
    from django.db import connections

    seen: Callable[..., Any] = resolve(url(job, "pause")).func
    connections["default"].settings_dict["ATOMIC_REQUESTS"] = True
    try:
        assert BaseHandler().make_view_atomic(seen) is seen
    finally:
        connections["default"].settings_dict["ATOMIC_REQUESTS"] = False
