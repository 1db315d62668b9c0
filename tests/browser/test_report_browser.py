"""The report on a job and the slots of workers in a browser, with light and dark colors, and on a phone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobqueue.models import Job, Worker
from tests.admin.conftest import detail
from tests.browser.conftest import Open
from tests.browser.test_targets_browser import picture
from tests.factories import JobFactory, WorkerFactory

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture
def failed(transactional_db: Any) -> Job:
    """Make a job that has failed twice, and two workers, one of which has just changed its slots."""
    begun = timezone.now() - timedelta(minutes=5)
    run = {
        "attempt": 1,
        "worker": "w",
        "outcome": "RETRY",
        "exception": "builtins.OSError",
        "message": "OSError: no route to host while sending the invoice of the customer number 7 to billing.example.org",
        "traceback": "Traceback (most recent call last):\n  …",
        "started_at": begun.isoformat(),
        "finished_at": (begun + timedelta(seconds=75)).isoformat(),
    }
    told = {"age": 3.0, "before": 2, "after": 8, "running": 2, "claimable": 8, "why": "more jobs than slots"}
    WorkerFactory(host="web-1", pid=4121, running=8, slots=8, scaling=told)
    WorkerFactory(host="web-2", pid=77, running=0, slots=2)
    job: Job = JobFactory(
        error=True,
        task="shop.billing.tasks.send_invoice",
        attempt=3,
        failures=2,
        crashes=1,
        max_attempts=2,
        enqueued_at=begun - timedelta(seconds=3),
        started_at=begun,
        message=run["message"],
        history=[run, {**run, "attempt": 3, "outcome": "ERROR"}],
    )
    return job


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (1440, "dark"), (390, "light"), (390, "dark")])
def test_report_and_slots_fit_on_the_page(open_page: Open, failed: Job, width: int, scheme: str) -> None:
    page = open_page(width=width, scheme=scheme)
    page.goto(detail(failed))
    report = page.locator(".jq-report")
    assert "3 started, 2 failed of at most 2, 1 lost with a worker" in report.inner_text()
    assert "1 min 15 s in the last run, 2 min 30 s in all" in report.inner_text()
    assert page.evaluate(WIDER) == 0
    picture(page, f"report-{width}-{scheme}")
    page.goto("/admin/jobqueue/worker/")
    assert "2 → 8" in page.locator("tr", has_text="web-1").inner_text()
    picture(page, f"workers-{width}-{scheme}")
    page.goto(f"/admin/jobqueue/worker/{Worker.objects.get(host='web-1').pk}/change/")
    assert "more jobs than slots (2 running, 8 claimable)" in page.inner_text("#content")
    picture(page, f"worker-{width}-{scheme}")
