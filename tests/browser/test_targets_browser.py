"""The pages of targets and queues in a browser, by keyboard and on a phone, with light and dark colors."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from jobqueue.lifecycle.queues import limit_queue, pause_queue
from jobqueue.models import Job, Queue
from tests.browser.conftest import Open
from tests.browser.test_admin_browser import CONTRAST, says
from tests.factories import JobFactory, WorkerFactory

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

TARGETS = "/admin/jobqueue/job/targets/"
QUEUES = "/admin/jobqueue/queue/"
SYNC, INVOICE = "shop.crm.tasks.sync_customer", "shop.billing.tasks.send_invoice"


def ago(**delta: float) -> Any:
    return timezone.now() - timedelta(**delta)


@pytest.fixture
def shop(transactional_db: Any) -> Job:
    """Make the lines of a shop; return the one in ERROR that other jobs wait for."""
    worker = WorkerFactory(host="web-1", pid=4121, running=1)

    def line(count: int, target: str, **values: Any) -> None:
        for number in range(count):
            JobFactory(waiting_for_target=True, target=target, task=INVOICE, enqueued_at=ago(minutes=40 - number), **values)

    failed: Job = JobFactory(
        error=True,
        holds_target=True,
        target="customer:7",
        task=SYNC,
        finished_at=ago(hours=3, minutes=12),
        message="OSError: no route to host",
    )
    line(5, "customer:7")
    history = [{"outcome": "PAUSED", "finished_at": ago(minutes=46).isoformat()}]
    JobFactory(paused=True, holds_target=True, target="warehouse:north", task="shop.stock.tasks.count", history=history)
    line(2, "warehouse:north")
    JobFactory(running=True, target="customer:12", task=SYNC, lease_owner=str(worker.pk), started_at=ago(seconds=40))
    line(12, "customer:12")
    JobFactory(
        waiting_for_retry=True, holds_target=True, target="ledger", task="shop.billing.tasks.book", tenant="acme", run_at=ago(minutes=-9)
    )
    line(1, "ledger", tenant="acme")
    JobFactory(target="device:a-very-long-name-that-somebody-has-put-together-from-serial-numbers-0000-1111-2222-3333", task=SYNC)
    JobFactory(running=True, target="customer:99", task=SYNC, lease_owner=str(worker.pk))
    JobFactory.create_batch(3, queue="mail", enqueued_at=ago(minutes=14))
    limit_queue("images", 4)
    pause_queue("mail")
    return failed


def picture(page: Any, name: str) -> None:
    """Save a screenshot if a folder for it is set."""
    if folder := os.environ.get("PICTURES"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def test_a_stuck_line_is_found_and_moved_on_by_keyboard_alone(open_page: Open, shop: Job) -> None:
    page = open_page()
    page.goto("/admin/jobqueue/job/")
    page.get_by_role("link", name="Targets").press("Enter")
    page.wait_for_url(f"**{TARGETS}")
    assert [row.inner_text() for row in page.locator(".jq-stuck > th").all()] == ["customer:7", "warehouse:north"]
    page.get_by_label("Target", exact=True).fill("CUSTOMER:7")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=CUSTOMER%3A7")
    page.get_by_role("button", name="Clear target customer:7").press("Enter")
    says(page, f"Job {shop.pk} was canceled.")
    assert page.locator(".jq-stuck").count() == 0
    says(page, "no job; the next is", ".jq-cardlist")
    page.get_by_role("link", name="customer:7", exact=True).press("Enter")
    page.get_by_role("link", name="Remove the filter: target customer:7").press("Enter")
    page.wait_for_url("**/admin/jobqueue/job/?")
    assert Job.objects.filter(target="customer:7", status="QUEUED").count() == 1


def test_the_page_of_a_waiting_job_leads_to_the_one_it_waits_for(open_page: Open, shop: Job) -> None:
    page = open_page()
    waiting = Job.objects.filter(target="customer:7", status="PENDING").earliest("pk")
    page.goto(f"/admin/jobqueue/job/{waiting.pk}/change/")
    says(page, f"Job {shop.pk} ({SYNC}) holds target 'customer:7': it is ERROR since", ".jq-why")
    picture(page, "why")
    page.click(f"text=See job {shop.pk}")
    page.click(".jq-verb-delete")
    says(page, "Deleting a job removes its arguments", ".jq-lead")
    picture(page, "delete")
    page.click(f"text=Delete job {shop.pk}")
    says(page, f"Job {shop.pk} was deleted.")
    assert Job.objects.get(pk=waiting.pk).status == "QUEUED"


def test_a_queue_is_limited_and_resumed(open_page: Open, shop: Job) -> None:
    page = open_page()
    page.goto(QUEUES)
    picture(page, "queues")
    page.get_by_label("At most running at once in queue mail").fill("2")
    page.keyboard.press("Enter")
    says(page, "Queue mail: At most 2 running at once.")
    page.get_by_role("button", name="Resume queue mail").press("Enter")
    says(page, "Queue mail: Not paused.")
    page.get_by_label("Pause a queue by name").fill("night")
    page.keyboard.press("Enter")
    says(page, "Queue night: Paused.")
    assert list(Queue.objects.order_by("pk").values_list("pk", "paused", "max_running")) == [
        ("images", False, 4),
        ("mail", False, 2),
        ("night", True, None),
    ]


@pytest.mark.parametrize("width", [390, *(pytest.param(width, marks=pytest.mark.slow) for width in (800, 1280))])
def test_nothing_runs_out_of_sight(open_page: Open, shop: Job, width: int) -> None:
    page = open_page(width, 800)
    for address in (TARGETS, QUEUES, "/admin/jobqueue/job/?target=customer:7"):
        page.goto(address)
        picture(page, f"{address.strip('/').replace('/', '-').partition('?')[0]}-{width}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        cells = page.locator(".jq-cardlist tbody td, .jq-cardlist tbody th").all()
        boxes = [box for cell in cells if (box := cell.bounding_box()) is not None]
        assert "target=" in address or len(boxes) > 15
        assert [box for box in boxes if box["x"] < 0 or box["x"] + box["width"] > width] == []


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.slow), "dark"])
def test_badges_and_filters_can_be_read_by_day_and_by_night(open_page: Open, shop: Job, scheme: str) -> None:
    page = open_page(scheme=scheme)
    seen: dict[str, float] = {}
    for address, what in (
        (TARGETS, ".jq-badge"),
        (QUEUES, ".jq-badge"),
        ("/admin/jobqueue/job/?target=customer:7&tenant=acme", ".jq-chip"),
    ):
        page.goto(address)
        picture(page, f"{address.strip('/').replace('/', '-').partition('?')[0]}-{scheme}")
        seen |= {each.inner_text(): each.evaluate(CONTRAST) for each in page.locator(what).all()}
    assert len(seen) >= 9
    assert {text: contrast for text, contrast in seen.items() if contrast < 4.5} == {}
