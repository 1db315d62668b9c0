"""The lists of the admin reject filters that they do not offer: a filter on a part of a masked value would reveal it letter by letter."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import JSONField, Model
from django.http import HttpRequest
from django.test import RequestFactory
from django.utils import timezone

from jobqueue.admin import WorkerAdmin
from jobqueue.admin.base import DATE_LOOKUPS
from jobqueue.duties.base import Duty
from jobqueue.models import BackgroundJobLease, Worker
from jobqueue.worker.duties.runner import DutyRunner
from tests.admin.conftest import Login
from tests.factories import DeliveryFactory, JobFactory, ScheduleFactory, WorkerFactory

pytestmark = pytest.mark.django_db
OURS = sorted((model for model in admin.site._registry if model._meta.app_label == "jobqueue"), key=lambda model: model.__name__)
COMPARISONS = ("exact", "startswith", "contains", "iregex", "gt", "lte", "in", "isnull", "range")
# The page of queues is not Django's list: it reads no filter at all.
WITHOUT_FILTERS = ("Queue",)


def lookups(model: type[Model]) -> list[str]:
    """Return lookups of every column, of paths into JSON, and of columns of related models."""
    found = []
    for field in model._meta.get_fields():
        if field.is_relation:
            related = [one.name for one in field.related_model._meta.concrete_fields]
            found += [f"{field.name}__{name}__{comparison}" for name in related for comparison in ("startswith", "gt")]
            continue
        paths = [field.name]
        if isinstance(field, JSONField):
            paths += [f"{field.name}__password", f"{field.name}__0", f"{field.name}__a__token"]
        found += [f"{path}__{comparison}" for path in paths for comparison in COMPARISONS]
        found += paths
    return found


def offered(model: type[Model]) -> set[Any]:
    found = set()
    for one in admin.site._registry[model].list_filter:
        if isinstance(one, tuple):  # Django's filter of a time compares with a choice's begin and end
            found |= {one[0], *(f"{one[0]}__{lookup}" for lookup in DATE_LOOKUPS)}
        else:
            found.add(one.parameter_name)
    return found


def request() -> HttpRequest:
    found = RequestFactory().get("/")
    found.user = User(is_superuser=True, is_staff=True)
    return found


def test_all_of_our_admins_are_walked() -> None:
    assert [model.__name__ for model in OURS] == [
        "AuditRecord",
        "BackgroundJobLease",
        "Job",
        "Queue",
        "Schedule",
        "WebhookDelivery",
        "Worker",
    ]


@pytest.mark.parametrize("model", OURS)
def test_an_admin_allows_the_lookups_that_it_offers_and_no_other(model: type[Model]) -> None:
    ours, asking = admin.site._registry[model], request()
    allowed = {one for one in lookups(model) if ours.lookup_allowed(one, "x", asking)}
    assert allowed == {one for one in lookups(model) if one in offered(model)}
    assert all(ours.lookup_allowed(str(one), "x", asking) for one in offered(model))


@pytest.mark.long
@pytest.mark.parametrize("model", OURS)
def test_a_list_answers_a_lookup_that_it_does_not_offer_with_400(model: type[Model], login: Login) -> None:
    JobFactory(kwargs={"password": "abc"}), ScheduleFactory(kwargs={"password": "abc"}), DeliveryFactory(), WorkerFactory()
    client = login("view_" + model._meta.model_name)
    address = f"/admin/jobqueue/{model._meta.model_name}/"
    plain = client.get(address)
    assert plain.status_code == 200
    for lookup in [one for one in lookups(model) if one not in offered(model)][::7]:
        answer = client.get(address, {lookup: "a"})
        if model.__name__ in WITHOUT_FILTERS:
            assert answer.status_code == 200, lookup
            assert len(answer.context["queues"]) == len(plain.context["queues"])
        else:
            assert answer.status_code == 400, lookup


def test_a_project_that_offers_a_field_gets_its_exact_lookups_only() -> None:
    class Offering(WorkerAdmin):
        list_filter = ("host", "started_at", ("state", admin.ChoicesFieldListFilter))

    ours, asking = Offering(Worker, admin.site), request()
    allowed = {one for one in lookups(Worker) if ours.lookup_allowed(one, "x", asking)}
    exact = {f"{name}{more}" for name in ("host", "started_at", "state") for more in ("", "__exact", "__in", "__isnull")}
    assert allowed == exact
    assert ours.lookup_allowed("started_at__gte", "x", asking)
    assert not ours.lookup_allowed("host__gte", "x", asking)


def test_a_search_for_targets_compares_what_is_shown(login: Login) -> None:
    JobFactory(running=True, target="password=abcdef")
    client = login("view_job")

    def lines(search: str) -> int:
        return len(client.get("/admin/jobqueue/job/targets/", {"q": search}).context["targets"])

    assert lines("password") == 1
    assert lines("password=a") == lines("abc") == 0


def test_the_last_error_of_a_duty_is_stored_with_its_secrets_hidden() -> None:
    duty = Duty()
    duty.name = "mine"
    runner = DutyRunner(duty, None, "host:1", lambda: None)
    runner._record_error(ConnectionError("cannot log in to postgres://app:hunter2@db/x"), timezone.now())
    BackgroundJobLease.objects.create(job_name="mine", metadata=runner.metadata)
    assert "hunter2" not in str(BackgroundJobLease.objects.get().metadata)
