"""The page of a job follows the job: progress, phases, the timeline, the buttons; text from outside stays text."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model

from jobqueue.models import Job, JobEvent, JobPhase
from tests.admin.conftest import detail
from tests.browser.conftest import Open
from tests.browser.test_targets_browser import picture
from tests.factories import JobFactory
from tests.faults.harness import row, wait_until

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]
EVIL = """<script>document.title = "owned"</script> "quoted" & 'single' <img src=x onerror=alert(1)>"""
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def shows(page: Any, condition: str) -> None:
    """Wait until a condition holds in the page; the page's own policy forbids to hand it over as text."""
    wait_until(lambda: page.evaluate(condition), condition)


@pytest.fixture
def job(transactional_db: Any) -> Job:
    made: Job = JobFactory(
        running=True, task="shop.billing.tasks.publish_report", queue="reports", message="Starting", progress=5, phase="collect"
    )
    for position, (name, status) in enumerate([("collect", "RUNNING"), ("print", "PENDING")]):
        JobPhase.objects.create(job=made, position=position, name=name, status=status)
    JobEvent.objects.create(job=made, name="job.enqueued")
    return made


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (1440, "dark"), (390, "light"), (390, "dark")])
def test_the_page_moves_without_being_loaded_again(open_page: Open, job: Job, width: int, scheme: str) -> None:
    page = open_page(width=width, scheme=scheme)
    page.goto(detail(job))
    page.evaluate("window.mark = 'the same page'")
    Job.objects.current.filter(pk=job.pk).update(progress=42, message=EVIL)
    JobPhase.objects.filter(job=job, name="collect").update(progress=84, message=EVIL)
    shows(page, "document.getElementById('jobqueue-progress').value === 42")
    shows(page, "document.querySelector('#jobqueue-phases tr [data-cell=progress]').textContent === '84 %'")
    shows(page, "document.getElementById('jobqueue-message').textContent.includes('<script>')")
    JobEvent.objects.create(job=job, name="job.phase.completed", attempt=1, data={"phase": EVIL, "message": EVIL})
    page.wait_for_selector("#jobqueue-timeline li[data-name='job.phase.completed']")
    assert EVIL[:40] in page.inner_text("#jobqueue-timeline li[data-name='job.phase.completed']")
    assert page.locator("#content-main script, #content-main img").count() == 0
    assert page.title() != "owned"
    assert page.evaluate(WIDER) == 0
    picture(page, f"live-{width}-{scheme}")
    page.locator(".jq-verb-cancel").focus()
    page.keyboard.press("Enter")
    page.locator("#content form button, #content form input[type=submit]").first.click()  # a running job is stopped after a question
    shows(page, "document.getElementById('jobqueue-status')?.textContent.includes('Stopping')")
    assert row(job).cancel_outcome == "CANCELED"
    page.evaluate("window.mark = 'the same page'")
    Job.objects.current.filter(pk=job.pk).update(
        status="CANCELED",
        lease_owner="",
        lease_expires_at=None,
        heartbeat_at=None,
        cancel_requested=False,
        cancel_outcome="",
        holds_target=False,
    )
    JobEvent.objects.create(job=job, name="job.canceled", attempt=1)
    shows(page, "document.getElementById('jobqueue-status').textContent.includes('Canceled')")
    page.wait_for_selector("#jobqueue-timeline li[data-name='job.canceled']")
    shows(page, "!document.querySelector('.jq-verb-cancel')")
    assert page.evaluate("window.mark") == "the same page"
    picture(page, f"live-canceled-{width}-{scheme}")


def test_a_page_without_a_stream_is_still(open_page: Open, job: Job, settings: Any) -> None:
    settings.JOBQUEUE = {"EVENT_LOG": "none"}
    page = open_page()
    page.goto(detail(job))
    assert page.locator("script[src*='job_page']").count() == 0
    assert page.locator("#jobqueue-progress").get_attribute("value") == "5"
    assert get_user_model().objects.count() == 1
