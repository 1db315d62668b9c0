"""The OpenAPI document agrees with the addresses, and the answers agree with the document, as tested by schemathesis."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import hypothesis
import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from django.test import Client
from django.urls import get_script_prefix, reverse, set_script_prefix
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error

from jobqueue import urls
from jobqueue.api import shapes
from jobqueue.api.endpoint import Endpoint
from jobqueue.api.endpoints import ENDPOINTS
from jobqueue.api.schema import PARAMETERS
from jobqueue.insight.report import report
from jobqueue.models import BulkAction, Job, Queue, Schedule
from tests.api.conftest import ROOT, MakeUser
from tests.factories import DeliveryFactory, JobFactory, ScheduleFactory, WorkerFactory

OPERATIONS = [one for one in ENDPOINTS if not one.public and not one.streams]  # a stream has no end to wait for
STATES = ("queued", "scheduled", "running", "pause_requested", "paused", "error", "success", "canceled", "waiting_for_target")

SEARCH = 'status:ERROR a=1 error:"no" since:2h'


def document(client: Client) -> Any:
    response = client.get(f"{ROOT}openapi.json")
    assert response.status_code == 200
    return response.json()


def test_the_document_is_public_and_has_every_address(client: Client) -> None:
    described = {(method.upper(), path) for path, methods in document(client)["paths"].items() for method in methods}
    assert described == {(one.method, f"/{one.path}") for one in ENDPOINTS}
    named = {pattern.name for pattern in urls.urlpatterns if pattern.name}
    assert named == {one.name for one in ENDPOINTS}
    assert len(urls.urlpatterns) == len(named) + 1


def test_an_address_is_made_from_its_name() -> None:
    assert reverse("jobqueue:job", kwargs={"job_id": 7}) == f"{ROOT}jobs/7/"
    assert reverse("jobqueue:target_job_cancel", kwargs={"target": "a b:7", "job_id": 7}) == f"{ROOT}targets/a%20b:7/jobs/7/cancel/"
    assert reverse("jobqueue:queue_pause", kwargs={"queue": "mail/out"}) == f"{ROOT}queues/mail/out/pause/"


def test_the_document_names_the_place_where_it_was_asked_for(client: Client) -> None:
    assert document(client)["servers"] == [{"url": "/jobqueue"}]
    prefix = get_script_prefix()
    response = client.get(f"{ROOT}openapi.json", SCRIPT_NAME="/site")
    set_script_prefix(prefix)
    assert response.json()["servers"] == [{"url": "/site/jobqueue"}]


def test_the_document_has_tokens_if_they_are_enabled(client: Client, tokens: None) -> None:
    found = document(client)
    assert found["security"] == [{"token": []}, {"session": []}]
    assert set(found["components"]["securitySchemes"]) == {"token", "session"}


def test_every_shape_that_is_referred_to_is_there(client: Client) -> None:
    found = document(client)
    named = set(re.findall(r"#/components/schemas/(\w+)", str(found)))
    assert named == set(found["components"]["schemas"]) == set(shapes.SHAPES)


@pytest.mark.django_db
def test_the_shape_of_a_job_has_the_fields_of_the_report() -> None:
    found = report(JobFactory(error=True, history=[{"attempt": 1}]), tracebacks=True)
    assert set(shapes.SHAPES["Job"]["properties"]) == {*found, "why_waiting", "reruns"}
    assert set(shapes.SHAPES["Run"]["properties"]) == set(found["runs"][0])


def rows() -> list[Job]:
    """Make a job of one tenant in each state, each with a target of its own."""
    history = [{"attempt": 1, "outcome": "RETRY", "started_at": "2026-01-02T12:00:00+00:00", "finished_at": "2026-01-02T12:00:09+00:00"}]
    return [JobFactory(**{state: True}, history=history, tenant="acme", target=f"t:{state}") for state in STATES]


def name_rows(case: Any, job: Job, others: dict[str, list[Any]]) -> None:
    """Replace the parameters of a request by the keys of rows that exist."""
    parameters = case.path_parameters
    if "job_id" in parameters:
        parameters.update({"job_id": job.pk} | ({"target": job.target} if "target" in parameters else {}))
        case.query = {"tenant": "acme"}
    for name, found in others.items():
        if name in parameters:
            row = found[job.pk % len(found)]
            parameters[name] = row.name if isinstance(row, Schedule) else str(row.pk)
    if "queue" in parameters and case.operation.path.endswith("test-webhook/"):
        parameters["queue"] = "default"


@pytest.fixture
def app() -> Iterator[Any]:
    """Provide Django's WSGI application; it does not close the connection, which has the test's open transaction."""
    found = (request_started, request_finished)
    for signal in found:
        signal.disconnect(close_old_connections)
    yield get_wsgi_application()
    for signal in found:
        signal.connect(close_old_connections)


@pytest.fixture
def attempt(app: Any, db: None, tokens: None) -> Callable[..., set[int]]:
    """Send many requests of one operation, and let schemathesis judge the answers; return the statuses that came."""

    def run(endpoint: Endpoint, user: Any, mode: GenerationMode, examples: int) -> set[int]:
        schema = schemathesis.openapi.from_wsgi(f"{ROOT}openapi.json", app)
        headers = {"Authorization": f"Bearer {user.username}"}
        jobs, worker, schedule = rows(), WorkerFactory(), ScheduleFactory(name="nightly")
        actions = [BulkAction.objects.create(verb="resume", query="7", upto_id=1, state=state) for state in ("OPEN", "DONE")]
        deliveries = [DeliveryFactory(), DeliveryFactory(delivered=True)]
        Queue.objects.create(name="default", webhook_url="http://127.0.0.1:9/current")
        seen: set[int] = set()

        @hypothesis.settings(
            max_examples=examples, derandomize=True, database=None, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
        )
        @hypothesis.given(
            schema[f"/{endpoint.path}"][endpoint.method].as_strategy(generation_mode=mode),
            st.none() | st.sampled_from(jobs),
        )
        def one(case: Any, job: Job | None) -> None:
            if mode is GenerationMode.POSITIVE:
                if "q" in (case.query or {}):
                    case.query["q"] = SEARCH  # no schema describes the search language
                for name in {"since", "before"} & {*(case.query or {})}:
                    case.query[name] = "2h"
                if job is not None and case.path_parameters:
                    name_rows(case, job, {"bulk_id": actions, "worker": [worker], "delivery": deliveries, "schedule": [schedule]})
            excluded = [not_a_server_error] if endpoint.fails else []
            seen.add(case.call_and_validate(app=app, headers=headers, excluded_checks=excluded).status_code)

        one()
        if mode is GenerationMode.POSITIVE and "job_id" in endpoint.path:  # each once for certain, however the examples fell
            for job in jobs:
                address = ROOT + endpoint.path.format(job_id=job.pk, target=job.target) + "?tenant=acme"
                answer = Client().generic(endpoint.method.upper(), address, headers=headers)
                seen.add(answer.status_code)
        return seen

    return run


# The query parameters that are numbers or have choices; the rest are texts.
CHECKED = [name for name, (schema, _) in PARAMETERS.items() if schema.get("type") == "integer" or "enum" in schema]


def few_and_many(few: int, many: int) -> Any:
    return pytest.mark.parametrize("examples", [few, pytest.param(many, marks=pytest.mark.slow)])


def ids(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


@pytest.mark.long
@few_and_many(10, 40)
@pytest.mark.parametrize("endpoint", OPERATIONS, ids=ids)
def test_requests_that_fit_the_document_get_answers_that_fit_it(
    attempt: Any, make_user: MakeUser, endpoint: Endpoint, examples: int
) -> None:
    seen = attempt(endpoint, make_user(is_superuser=True, is_staff=True), GenerationMode.POSITIVE, examples)
    assert seen <= {*endpoint.success_statuses, 404, 409, *([503] if endpoint.fails else [])}
    assert seen & {*endpoint.success_statuses} or examples < 40, "a few may all miss"
    assert 409 in seen or not endpoint.can_be_refused or examples < 40


@few_and_many(6, 25)
@pytest.mark.parametrize("endpoint", [one for one in OPERATIONS if one.query], ids=ids)
def test_what_does_not_fit_is_refused(attempt: Any, make_user: MakeUser, endpoint: Endpoint, examples: int) -> None:
    seen = attempt(endpoint, make_user(is_superuser=True), GenerationMode.NEGATIVE, examples)
    assert seen <= {*endpoint.success_statuses, 400, 401, 404, 409, 503}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("endpoint", "name"),
    [(one, name) for one in OPERATIONS for name in one.query if name in CHECKED],
    ids=lambda one: one if isinstance(one, str) else ids(one),
)
def test_a_query_value_that_does_not_fit_is_refused(client: Client, make_user: MakeUser, endpoint: Endpoint, name: str) -> None:
    job, delivery, worker = JobFactory(target="t:1"), DeliveryFactory(), WorkerFactory()
    action = BulkAction.objects.create(verb="resume", query="7", upto_id=1)
    rows = {"job_id": job.pk, "target": "t:1", "bulk_id": action.pk, "worker": worker.pk, "delivery": delivery.pk}
    client.force_login(make_user(is_superuser=True))
    path = endpoint.path.format(**rows, queue="default", task="tests.tasks.add")
    query = {"verb": "cancel", "q": "7"} if endpoint.required else {}
    answer = client.generic(endpoint.method, f"{ROOT}{path}?{urlencode(query | {name: 'junk'})}")
    assert answer.status_code == 400
    assert name in answer.json()["error"]["message"]


@pytest.mark.long
@few_and_many(2, 15)
@pytest.mark.parametrize("endpoint", OPERATIONS, ids=ids)
def test_without_permissions_answers_do_not_differ(attempt: Any, make_user: MakeUser, endpoint: Endpoint, examples: int) -> None:
    assert attempt(endpoint, make_user(), GenerationMode.POSITIVE, examples) == {403}
