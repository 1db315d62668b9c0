"""The pages of webhooks in a browser, with text from outside, also on a phone, with light and dark colors."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobqueue import set_queue_webhook
from jobqueue.models import Job, Queue, WebhookDelivery
from tests.browser.conftest import Open
from tests.browser.test_admin_browser import CONTRAST, says
from tests.browser.test_targets_browser import picture
from tests.factories import DeliveryFactory, JobFactory

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

LIST = "/admin/jobqueue/webhookdelivery/"
FORM = "/admin/jobqueue/queue/webhook/?queue=reports"
EVIL = "<img src=x onerror=alert(1)>"
LONG = "https://hooks.a-very-long-name-of-a-host.example.com/services/" + "0123456789/" * 12 + "?token=hunter2&team=a"


def ago(**delta: float) -> Any:
    return timezone.now() - timedelta(**delta)


@pytest.fixture
def outbox(transactional_db: Any) -> Job:
    """Make deliveries of all kinds; return a job that has four of them."""
    job: Job = JobFactory(error=True, task="shop.billing.tasks.send_invoice", queue="reports", webhook_url=LONG)
    body = '{"type":"job.failed","timestamp":"2026-01-02T03:04:05+00:00","data":{"job_id":7,"message":"EVIL"}}'.replace("EVIL", EVIL)
    DeliveryFactory(
        job=job, failed=True, event="job.failed", url=LONG, body=body, error=f"The receiver returned status 500. {EVIL}", queue="reports"
    )
    DeliveryFactory(job=job, attempts=3, next_attempt_at=ago(minutes=-9), error="No response within 10 s.", url=LONG, queue="reports")
    DeliveryFactory(job=job, delivered=True, finished_at=ago(minutes=2), url="https://example.com/hook", queue="reports")
    DeliveryFactory(job=job, event="job.started", url="https://example.com/hook", queue="reports")
    for _ in range(6):
        DeliveryFactory(delivered=True, url="https://example.com/hook", finished_at=ago(hours=1))
    set_queue_webhook("reports", "https://example.com/hook?token=hunter2", ["job.failed", "job.completed"])
    return job


def addresses(job: Job) -> dict[str, str]:
    failed = WebhookDelivery.objects.filter(job=job, status="FAILED").get()
    return {
        "deliveries": LIST,
        "delivery": f"{LIST}{failed.pk}/change/",
        "job-with-deliveries": f"/admin/jobqueue/job/{job.pk}/change/",
        "queues-with-webhooks": "/admin/jobqueue/queue/",
        "queue-webhook": FORM,
    }


def test_a_message_is_sent_again_after_a_page_has_asked(open_page: Open, outbox: Job) -> None:
    page = open_page()
    page.goto(f"/admin/jobqueue/job/{outbox.pk}/change/")
    failed = WebhookDelivery.objects.filter(job=outbox, status="FAILED").get()
    page.get_by_role("link", name=f"#{failed.pk}", exact=True).press("Enter")
    page.wait_for_url(f"**{LIST}{failed.pk}/change/")
    says(page, EVIL, ".jq-message")
    page.get_by_role("button", name="Redeliver").press("Enter")
    says(page, "The same message is sent again", ".jq-lead")
    picture(page, "redeliver")
    page.get_by_role("button", name=f"Redeliver: delivery {failed.pk}").press("Enter")
    says(page, f"Delivery {failed.pk} is sent again.")
    assert WebhookDelivery.objects.get(pk=failed.pk).status == "PENDING"


def test_several_are_chosen_on_the_list(open_page: Open, outbox: Job) -> None:
    page = open_page()
    page.goto(f"{LIST}?status=FAILED")
    page.check(".action-select")
    page.select_option("select[name=action]", "redeliver_selected")
    page.click("button[name=index]")
    page.get_by_role("button", name="Redeliver: delivery").click()
    says(page, "is sent again.")
    assert WebhookDelivery.objects.filter(status="FAILED").count() == 0


def test_a_queue_gets_a_receiver(open_page: Open, outbox: Job) -> None:
    page = open_page()
    page.goto("/admin/jobqueue/queue/")
    page.get_by_label("Webhook of queue reports").press("Enter")
    page.get_by_label("URL").fill("ftp://example.com/")
    page.keyboard.press("Enter")
    says(page, "it must begin with https:// or http://", ".errorlist")
    picture(page, "queue-webhook-refused")
    page.get_by_label("URL").fill("https://example.com/other")
    page.get_by_label("job.canceled").check()
    page.get_by_role("button", name="Save").press("Enter")
    says(page, "are sent to https://example.com/")
    assert Queue.objects.get().webhook_url == "https://example.com/other"


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_runs_out_of_sight(open_page: Open, outbox: Job, width: int) -> None:
    page = open_page(width, 800)
    for name, address in addresses(outbox).items():
        page.goto(address)
        picture(page, f"{name}-{width}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        cells = page.locator(".jq-cardlist tbody td, .jq-cardlist tbody th, #result_list tbody td, .jq-field input, .jq-facts td").all()
        boxes = [box for cell in cells if (box := cell.bounding_box()) is not None]
        assert len(boxes) > 5
        assert [box for box in boxes if box["x"] < 0 or box["x"] + box["width"] > width] == [], name


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_badges_can_be_read_by_day_and_by_night(open_page: Open, outbox: Job, scheme: str) -> None:
    page = open_page(scheme=scheme)
    seen: dict[str, float] = {}
    for name, address in addresses(outbox).items():
        page.goto(address)
        picture(page, f"{name}-{scheme}")
        seen |= {each.inner_text(): each.evaluate(CONTRAST) for each in page.locator(".jq-badge").all()}
    assert {"✓ Delivered", "! Failed", "◔ Pending"} <= set(seen)
    assert {text: contrast for text, contrast in seen.items() if contrast < 4.5} == {}
