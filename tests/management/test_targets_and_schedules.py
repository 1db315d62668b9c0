"""``manage.py jobqueue targets``, ``clear-target``, ``run-schedule``, ``enable-schedule`` and ``disable-schedule``."""

from __future__ import annotations

import pytest
from django.core.management import CommandError

from jobqueue.models import Job, Schedule
from tests.command import run, told
from tests.factories import JobFactory, ScheduleFactory

pytestmark = pytest.mark.django_db


def test_targets_shows_those_that_wait_for_an_operator_first() -> None:
    assert run("targets") == ("Targets\n  none\n", 0)
    running = JobFactory(running=True, target="customer:8", tenant="acme")
    blocker = JobFactory(error=True, target="customer:7", task="shop.tasks.sync")
    JobFactory(target="customer:7")
    data, status = told("targets")
    assert status == 0
    assert [(one["target"], one["tenant"], one["holder_id"], one["waiting"], one["stuck"]) for one in data["targets"]] == [
        ("customer:7", "", blocker.pk, 1, True),
        ("customer:8", "acme", running.pk, 0, False),
    ]
    first, second = run("targets")[0].splitlines()[2:]
    assert first.split()[:4] == ["customer:7", "-", str(blocker.pk), "ERROR"]
    assert second.split()[:4] == ["customer:8", "acme", str(running.pk), "RUNNING"]


def test_targets_can_be_searched_and_limited() -> None:
    for number in (7, 8, 71):
        JobFactory(error=True, target=f"customer:{number}", tenant="acme" if number == 8 else "")
    assert {one["target"] for one in told("targets", "customer:7")[0]["targets"]} == {"customer:7", "customer:71"}
    assert [one["target"] for one in told("targets", "--tenant", "acme")[0]["targets"]] == ["customer:8"]
    assert told("targets", "--limit", 2)[0]["more"] is True
    assert run("targets", "--limit", 2)[0].splitlines()[-1] == "There are more than 2. Give a part of a name, or a higher --limit."
    with pytest.raises(CommandError, match="--limit is 0; it must be from 1 to 1000"):
        run("targets", "--limit", 0)


def test_a_target_is_cleared() -> None:
    blocker, other = JobFactory(error=True, target="customer:7"), JobFactory(error=True, target="customer:7", tenant="acme")
    assert run("clear-target", "customer:7") == (f"Job {blocker.pk} was canceled: it is CANCELED.\n", 0)
    assert run("clear-target", "customer:7") == ("No job holds or blocks target 'customer:7' now.\n", 0)
    assert Job.objects.get(pk=other.pk).status == "ERROR"
    assert told("clear-target", "customer:7", "--tenant", "acme") == (
        [{"job": other.pk, "verdict": "done", "status": "CANCELED", "reason": ""}],
        0,
    )
    assert run("clear-target", "customer:\ud800")[1] == 0


def test_a_schedule_is_run_now() -> None:
    nightly = ScheduleFactory(name="nightly", enabled=False)
    data, status = told("run-schedule", "nightly")
    assert (status, data["verdict"], data["id"]) == (0, "done", nightly.pk)
    assert run("run-schedule", "nightly")[0] == f"Schedule 'nightly' was run as job {Job.objects.latest('pk').pk}.\n"
    assert set(Job.objects.values_list("task", flat=True)) == {nightly.task}
    assert Job.objects.filter(pk=data["job"]).exists()


def test_a_schedule_is_disabled_and_enabled() -> None:
    ScheduleFactory(name="nightly")
    assert run("disable-schedule", "nightly") == ("Schedule 'nightly' is disabled; its existing jobs continue.\n", 0)
    assert run("disable-schedule", "nightly")[0].endswith("(no change).\n")
    assert not Schedule.objects.get(name="nightly").enabled
    data, status = told("enable-schedule", "nightly")
    assert (data["verdict"], status) == ("done", 0)
    assert data["next_at"]
    assert Schedule.objects.get(name="nightly").enabled


@pytest.mark.parametrize("verb", ["run-schedule", "enable-schedule", "disable-schedule"])
@pytest.mark.parametrize("name", ["no such", "a\0b", "\ud800"])
def test_an_unknown_schedule_is_named(verb: str, name: str) -> None:
    with pytest.raises(CommandError, match=r"(?i)no schedule"):
        run(verb, name)
