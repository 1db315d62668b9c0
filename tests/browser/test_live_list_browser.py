"""The list of jobs and the kinds of errors in a browser: cells change without a reload, rows stay where they are."""

from __future__ import annotations

from typing import Any

import pytest

from jobqueue.models import Job
from tests.browser.conftest import Open
from tests.factories import JobFactory

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

LIST = "/admin/jobqueue/job/"
WAIT_MS = 40_000


def numbers(page: Any) -> list[str]:
    return [cell.inner_text() for cell in page.locator("#result_list .field-number").all()]


def test_the_rows_of_jobs_change_in_place_and_new_ones_are_counted(open_page: Open) -> None:
    jobs = [JobFactory(queue="mail") for _ in range(3)]
    page = open_page()
    page.goto(f"{LIST}?status=QUEUED")
    shown = numbers(page)
    page.locator(f"input.action-select[value='{jobs[0].pk}']").check()
    page.mouse.move(1, 1)
    JobFactory(queue="mail")
    Job.objects.filter(pk=jobs[1].pk).update(status="PAUSED")
    Job.objects.filter(pk=jobs[2].pk).update(priority=7)
    page.locator("#result_list tr", has_text=f"#{jobs[2].pk}").locator(".field-priority", has_text="7").wait_for(timeout=WAIT_MS)
    assert numbers(page) == shown
    assert page.locator(".jq-change").inner_text() == "New rows: 1, no longer on this page: 1. Show"
    assert page.locator("tr.jq-gone").count() == 1
    assert page.locator(".action-select:checked").get_attribute("value") == str(jobs[0].pk)
    with page.expect_navigation():
        page.locator(".jq-change a").click()
    assert page.locator(".jq-change").is_hidden()
    assert page.locator("#result_list .field-number").count() == 3


def test_nothing_changes_under_the_pointer(open_page: Open) -> None:
    job = JobFactory(error=True, error_key="a" * 16, history=[{"exception": "shop.Declined", "message": "no"}])
    page = open_page()
    page.goto(f"{LIST}errors/")
    page.hover(".jq-table tbody tr")
    JobFactory(error=True, error_key="a" * 16, history=job.history)
    JobFactory(error=True, error_key="b" * 16, history=job.history)
    page.locator(".jq-change", has_text="New rows: 1").wait_for(timeout=WAIT_MS)
    assert "Held" in page.locator(".jq-fresh .jq-live").inner_text()
    assert page.locator("td[data-label='jobs']").all_inner_texts() == ["1"]
    page.mouse.move(1, 1)
    page.locator("td[data-label='jobs']", has_text="2").wait_for(timeout=WAIT_MS)
    assert page.locator(".jq-table tbody tr").count() == 1
