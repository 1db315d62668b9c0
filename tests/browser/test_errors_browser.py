"""A kind of errors in a browser: retried in four clicks, with progress that needs no reload; and the search on a phone."""

from __future__ import annotations

from typing import Any

import pytest

from jobqueue.clock import now
from jobqueue.duties.run_bulk_actions import RunBulkActions
from jobqueue.models import Job
from tests.browser.conftest import Open
from tests.factories import JobFactory, WorkerFactory, ahead

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def failures(transactional_db: Any) -> list[Job]:
    """Make the failures of two kinds; return those of the first."""
    WorkerFactory()

    def failed(key: str, exception: str) -> Job:
        entry = {"exception": exception, "message": "no", "traceback": f"{exception}: no"}
        job: Job = JobFactory(error=True, error_key=key * 16, finished_at=ahead(hours=-1), history=[entry], args=[], kwargs={"order_id": 7})
        return job

    failed("b", "shop.Other")
    return [failed("a", "shop.OutOfStock") for _ in range(3)]


def test_a_kind_of_errors_is_retried_with_progress_that_moves_by_itself(open_page: Open, failures: list[Job]) -> None:
    page = open_page()
    page.get_by_role("link", name="Errors").first.click()
    page.get_by_role("link", name="Retry all: OutOfStock").click()
    page.get_by_role("heading", name="Retry 3 jobs?").wait_for()
    page.get_by_role("button", name="Retry 3 jobs").click()
    page.get_by_text("0 of 3 jobs were resumed.").wait_for()
    RunBulkActions().run_once(now())
    page.get_by_text("3 of 3 jobs were resumed.").wait_for()
    assert page.get_by_role("button", name="Stop").count() == 0
    assert {job.status for job in Job.objects.filter(pk__in=[job.pk for job in failures])} == {"QUEUED"}


def test_every_page_of_errors_fits_on_a_phone(open_page: Open, failures: list[Job]) -> None:
    page = open_page(390, 800, "dark")
    query = "status%3AERROR"
    for address in ("errors/", f"errors/{'a' * 16}/", f"bulk/new/?verb=cancel&q={query}", "bulk/", "?q=order_id%3D7", "?q=nothing"):
        page.goto(f"/admin/jobqueue/job/{address}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, address
    page.goto("/admin/jobqueue/job/")
    page.locator(".jq-filters > summary").click()
    page.get_by_role("link", name="Error", exact=True).click()
    page.wait_for_url("**status=ERROR")
    assert page.locator(".jq-chip").inner_text().split()[:2] == ["status", "ERROR"]
