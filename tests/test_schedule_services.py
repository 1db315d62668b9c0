"""Several projects or services in one database: each handles only its own schedules and duties, and conflicts are reported."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import jobqueue
from jobqueue.duties import registry
from jobqueue.duties.builtin import builtin
from jobqueue.duties.enqueue_scheduled_jobs import EnqueueScheduledJobs
from jobqueue.insight.problems import problems
from jobqueue.models import Schedule
from jobqueue.schedules import declarations
from tests.factories import ScheduleFactory
from tests.tasks import add

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def declared() -> Iterator[None]:
    before = dict(declarations._declared)
    declarations._declared.clear()
    yield
    declarations._declared.clear()
    declarations._declared.update(before)


def start(settings: Any, service: str | None, *names: str, cron: str = "0 3 * * *") -> int:
    """Run the startup steps of a worker of a service."""
    settings.JOBQUEUE = {"SERVICE": service}
    declarations._declared.clear()
    for name in names:
        jobqueue.schedule(name, add, args=[1], cron=cron)
    return jobqueue.sync_schedules()


def rows() -> dict[str, tuple[str, bool]]:
    return {one.name: (one.service, one.active) for one in Schedule.objects.all()}


def codes() -> list[str]:
    return [one.code for one in problems() if "schedule" in one.code]


def test_the_start_of_one_service_retires_and_changes_nothing_of_another(settings: Any) -> None:
    start(settings, "shop", "reports")
    start(settings, "mail", "digest")
    assert rows() == {"reports": ("shop", True), "digest": ("mail", True)}
    assert start(settings, "mail") == 1
    assert rows() == {"reports": ("shop", True), "digest": ("mail", False)}
    assert codes() == []


def test_without_names_a_start_retires_only_what_its_own_modules_declared(settings: Any) -> None:
    start(settings, None, "ours")
    theirs = ScheduleFactory(name="theirs", source="code", task="billing.tasks.charge", declared_in="billing.tasks")
    older = ScheduleFactory(name="older", source="code", task="billing.tasks.charge")  # of a release that did not write the module
    start(settings, None)
    assert rows() == {"ours": ("", False), "theirs": ("", True), "older": ("", True)}
    assert {theirs.pk, older.pk} == set(Schedule.objects.active().values_list("pk", flat=True))


def test_a_schedule_goes_to_the_service_that_gets_a_name(settings: Any) -> None:
    start(settings, None, "reports")
    start(settings, "shop", "reports")
    assert rows() == {"reports": ("shop", True)}
    start(settings, "shop")
    assert rows() == {"reports": ("shop", False)}


def test_one_name_in_two_services_is_a_problem_until_one_is_renamed(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    start(settings, "shop", "nightly")
    assert start(settings, "mail", "nightly", cron="0 4 * * *") == 1
    assert (rows(), Schedule.objects.get().cron) == ({"nightly": ("shop", True)}, "0 3 * * *")
    assert "Schedule nightly belongs to service 'shop': Service 'mail' declares it, too, in tests.test_schedule_services" in caplog.text
    assert codes() == ["schedule_conflicts"]
    caplog.clear()
    assert start(settings, "mail", "nightly", cron="0 4 * * *") == 0
    assert start(settings, "shop", "nightly") == 0
    assert (caplog.text, codes()) == ("", ["schedule_conflicts"])
    start(settings, "mail", "nightly-mail")
    assert codes() == []
    assert rows() == {"nightly": ("shop", True), "nightly-mail": ("mail", True)}


def test_one_name_in_two_projects_without_names_is_a_problem_too(settings: Any) -> None:
    ScheduleFactory(name="nightly", source="code", task="billing.tasks.charge", declared_in="billing.tasks", cron="0 5 * * *")
    start(settings, None, "nightly")
    assert (Schedule.objects.get().cron, codes()) == ("0 5 * * *", ["schedule_conflicts"])
    start(settings, None)
    assert codes() == []


def test_the_leader_of_one_service_leaves_the_schedules_of_others_alone(settings: Any) -> None:
    theirs = ScheduleFactory(task="billing.tasks.charge", service="billing", next_at=NOON)
    settings.JOBQUEUE = {"SERVICE": "shop"}
    ours = ScheduleFactory(service="shop", next_at=NOON)
    report = EnqueueScheduledJobs().run_once(NOON)
    assert (report.items, report.set_aside) == (1, 0)
    assert ours.ticks.count() == 1
    assert (Schedule.objects.get(pk=theirs.pk).last_error, Schedule.objects.get(pk=theirs.pk).next_at) == ("", NOON)


def test_duties_that_need_the_code_of_a_project_have_a_leader_in_each_service(settings: Any) -> None:
    settings.JOBQUEUE = {"SERVICE": "shop", "DUTIES": {"enqueue_scheduled_jobs": {"rotate_after_seconds": 60}}}
    factories = builtin(lambda: None, lambda lost: None, lambda: 0.0)
    assert {name for name in factories if "@" in name} == {"enqueue_scheduled_jobs@shop"}
    assert all(make().name == name for name, make in factories.items())
    assert factories["enqueue_scheduled_jobs@shop"]().rotate_after_seconds == 60


def test_a_duty_of_the_project_has_the_name_of_the_service_too(settings: Any) -> None:
    before = dict(registry._factories)
    registry.duty(name="test.sweep", interval=60)(_sweep)
    try:
        settings.JOBQUEUE = {"SERVICE": "shop"}
        made = registry.discover()["test.sweep@shop"]
        assert made().name == "test.sweep@shop"
        settings.JOBQUEUE = {}
        assert registry.discover()["test.sweep"]().name == "test.sweep"
    finally:
        registry._factories.clear()
        registry._factories.update(before)
        registry._places.pop("test.sweep", None)


def _sweep() -> None:
    """Do nothing."""
