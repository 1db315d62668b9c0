"""The pages of schedules in a browser: create, preview, disable and run, also on a phone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobqueue.models import Job, Schedule
from tests.browser.conftest import Open
from tests.browser.test_admin_browser import CONTRAST, says
from tests.browser.test_targets_browser import picture
from tests.factories import ScheduleFactory

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

LIST = "/admin/jobqueue/schedule/"


def fits(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


@pytest.fixture
def crowd(transactional_db: Any) -> None:
    """Make schedules of every kind."""
    now = timezone.now()
    last = datetime(2026, 6, 1, 1, tzinfo=UTC)
    code: dict[str, Any] = {"source": "code", "kwargs": {"password": "hunter2"}}
    ScheduleFactory(
        name="nightly-report", cron="0 3 * * *", time_zone="Europe/Berlin", next_at=now + timedelta(hours=9), last_at=last, **code
    )
    ScheduleFactory(name="look-for-mail", cron="", interval_seconds=300, next_at=now + timedelta(minutes=3), last_at=last, last_job_id=41)
    ScheduleFactory(name="old-report", retired_at=last, source="code")
    ScheduleFactory(name="paused", enabled=False)
    ScheduleFactory(
        name="broken", task="shop.tasks.gone", last_error="jobqueue.exceptions.InvalidOption: No registered task has this path."
    )


def test_a_schedule_is_previewed_made_run_and_disabled(crowd: None, open_page: Open) -> None:
    page = open_page()
    page.goto(f"{LIST}add/")
    page.fill("#id_name", "hourly")
    page.select_option("#id_task", "tests.tasks.add")
    page.fill("#id_args", "[1]")
    page.fill("#id_cron", "0 12 1 7 *")
    page.fill("#id_time_zone", "Mars/Base")
    page.get_by_role("button", name="Save", exact=True).click()
    page.wait_for_load_state("networkidle")
    assert page.get_by_text("is not known here").count() == 1, "the preview does not repeat the error of the form"
    page.fill("#id_time_zone", "Europe/Berlin")
    with page.context.expect_page() as opened:
        page.get_by_role("button", name="See its next five times").click()
    opened.value.get_by_text("12:00:00 CEST").first.wait_for()
    assert opened.value.get_by_text("12:00:00 CEST").count() == 5
    picture(opened.value, "preview")
    opened.value.close()
    picture(page, "add")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("link", name="hourly").first.click()
    page.get_by_role("button", name="Run now").click()
    says(page, f"Schedule hourly: Job {Job.objects.get().pk} was enqueued.")
    assert page.get_by_role("button", name="Enable").count() == 0
    page.get_by_role("button", name="Disable").click()
    says(page, "Schedule hourly: Disabled.")
    assert page.get_by_role("button", name="Disable").count() == 0
    picture(page, "change")
    assert not Schedule.objects.get(name="hourly").enabled


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), pytest.param(1440, "light", marks=pytest.mark.slow)])
def test_the_pages_fit_the_screen_and_can_be_read(crowd: None, open_page: Open, width: int, scheme: str) -> None:
    page = open_page(width, 800, scheme)
    page.goto(LIST)
    picture(page, f"list-{width}-{scheme}")
    code = Schedule.objects.get(name="nightly-report")
    assert fits(page)
    seen = {each.inner_text(): each.evaluate(CONTRAST) for each in page.locator(".jq-badge").all()}
    assert len(seen) == 4
    assert {text: contrast for text, contrast in seen.items() if contrast < 4.5} == {}
    page.goto(f"{LIST}{code.pk}/change/")
    picture(page, f"code-{width}-{scheme}")
    assert fits(page)
    assert "hunter2" not in page.content()
