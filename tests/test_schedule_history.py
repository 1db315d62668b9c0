"""The history of a schedule: its times, their jobs, how late they were, and the times that got none; and the live preview of its form."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.management.base import CommandError
from django.db.models import Q

from jobqueue import clock
from jobqueue.models import Schedule, ScheduleTick
from jobqueue.schedules import history as histories
from jobqueue.schedules.history import history
from tests.admin.conftest import Login, login  # noqa: F401 - a fixture
from tests.command import run, told
from tests.factories import JobFactory, ScheduleFactory

pytestmark = pytest.mark.django_db


def minutes_ago(number: int) -> datetime:
    return clock.now().replace(second=0, microsecond=0) - timedelta(minutes=number)


def tick(schedule: Schedule, number: int, late: float = 0.0, **job: Any) -> Any:
    made = JobFactory(**job) if job else None
    nominal = minutes_ago(number)
    ScheduleTick.objects.create(
        schedule=schedule, nominal_at=nominal, created_at=nominal + timedelta(seconds=late), job_id=made.pk if made else 10**9
    )
    return made


@pytest.fixture
def schedule() -> Schedule:
    made: Schedule = ScheduleFactory(name="nightly/all", cron="* * * * *", changed_at=minutes_ago(60))
    return made


def test_each_time_has_its_job_its_outcome_and_its_delay_and_missed_times_are_counted(schedule: Schedule) -> None:
    first, second = tick(schedule, 9, success=True), tick(schedule, 8, late=3.5, error=True)
    tick(schedule, 4)
    found = history(None, schedule)
    assert [(one.job_id, one.status, one.missed) for one in found] == [
        (10**9, "", 0),
        (None, "", 3),
        (second.pk, "ERROR", 0),
        (first.pk, "SUCCESS", 0),
    ]
    assert [round(one.late_seconds, 1) for one in found] == [0.0, 0.0, 3.5, 0.0]
    assert found[1].nominal_at == minutes_ago(7)


def test_times_before_the_last_change_do_not_count_as_missed(schedule: Schedule) -> None:
    for number in (20, 10, 8):
        tick(schedule, number)
    schedule.changed_at = minutes_ago(12)
    assert [one.missed for one in history(None, schedule)] == [0, 1, 0, 0]


def test_the_search_for_missed_times_is_bounded(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "MAX_STEPS", 5)
    schedule.changed_at = minutes_ago(10**6)
    for number in (5000, 100, 98):
        tick(schedule, number)
    assert [one.missed for one in history(None, schedule)] == [0, 1, 0, 3, 0]


def test_a_schedule_whose_timing_cannot_be_read_has_its_ticks_only(schedule: Schedule) -> None:
    tick(schedule, 9)
    tick(schedule, 3)
    schedule.cron = "no cron"
    assert [one.missed for one in history(None, schedule)] == [0, 0]


def test_the_page_the_command_and_rest_show_it(login: Login, schedule: Schedule) -> None:  # noqa: F811
    job = tick(schedule, 9, late=2.0, error=True)
    tick(schedule, 6)
    page = login("view_schedule", "view_job").get(f"/admin/jobqueue/schedule/{schedule.pk}/change/").content.decode()
    assert f'href="/admin/jobqueue/job/{job.pk}/change/"' in page
    assert "2 times without a job" in page
    assert "jq-history" not in login("view_schedule").get(f"/admin/jobqueue/schedule/{schedule.pk}/change/").content.decode()
    text = run("schedules", "nightly/all")[0]
    for part in (str(job.pk), "ERROR", "2 missed", "2.0 s"):
        assert part in text
    shown = login("view_schedule", "view_job").get("/jobqueue/schedules/nightly%2Fall/").json()
    assert [one["missed"] for one in shown["history"]] == [one["missed"] for one in told("schedules", "nightly/all")[0]["history"]]
    assert [one["name"] for one in login("view_schedule").get("/jobqueue/schedules/").json()["schedules"]] == ["nightly/all"]
    assert login("view_schedule", "view_job").get("/jobqueue/schedules/other/").status_code == 404
    for wrong in ("other", "x\0"):
        with pytest.raises(CommandError, match="There is no schedule"):
            run("schedules", wrong)


def acme(user: Any) -> Q:
    return Q(tenant="acme")


def test_jobs_that_the_user_may_not_see_are_left_out(login: Login, schedule: Schedule, settings: Any) -> None:  # noqa: F811
    mine, hidden = tick(schedule, 9, error=True, tenant="acme"), tick(schedule, 8, error=True, tenant="other")
    tick(schedule, 7)
    settings.JOBQUEUE = {"VISIBLE_JOBS": acme}
    client = login("view_schedule", "view_job")
    shown = client.get("/jobqueue/schedules/nightly%2Fall/").json()["history"]
    assert [(one["job_id"], one["status"]) for one in shown] == [(None, ""), (None, ""), (mine.pk, "ERROR")]
    page = client.get(f"/admin/jobqueue/schedule/{schedule.pk}/change/").content.decode()
    assert f"job/{hidden.pk}/" not in page


def test_the_form_offers_the_time_zones_and_a_preview_that_its_script_reads(login: Login, schedule: Schedule) -> None:  # noqa: F811
    client = login("view_schedule", "add_schedule", "change_schedule")
    page = client.get("/admin/jobqueue/schedule/add/").content.decode()
    for part in ('list="jq-zones"', '<option value="Europe/Berlin">', "jobqueue/schedule_form.js", 'class="jq-preview"'):
        assert part in page
    given = {"cron": "0 12 1 7 *", "time_zone": "Europe/Berlin"}
    part = client.post("/admin/jobqueue/schedule/preview/", given, headers={"X-Jobqueue-Part": "1"}).content.decode()
    assert part.count("-07-01") == 10
    assert "<html" not in part
    wrong = client.post("/admin/jobqueue/schedule/preview/", {**given, "cron": "<b>"}, headers={"X-Jobqueue-Part": "1"}).content.decode()
    assert "<b>" not in wrong
    assert "errornote" in wrong
    viewer = login("view_schedule")
    assert "jq-preview" not in viewer.get(f"/admin/jobqueue/schedule/{schedule.pk}/change/").content.decode()
