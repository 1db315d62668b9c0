"""The pages of workers, activity, webhooks and schedules' history in a browser: on a phone, dark, right to left."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from jobqueue import clock
from jobqueue.access import audit
from jobqueue.lifecycle.workers import record_left
from jobqueue.models import BackgroundJobLease, Job, LeftWorker, Queue, Schedule, ScheduleTick, WebhookDelivery, Worker
from tests.browser.conftest import Open
from tests.browser.test_admin_browser import CONTRAST
from tests.browser.test_schedules_browser import fits
from tests.browser.test_targets_browser import picture
from tests.factories import DeliveryFactory, JobFactory, ScheduleFactory, WorkerFactory

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]
ADMIN = "/admin/jobqueue"
LINE = "/srv/shop/tasks.py:117, in charge_the_card_of_a_customer"


@pytest.fixture
def scene(transactional_db: Any) -> dict[str, str]:
    """Make rows for each of the pages; return their addresses."""
    now = clock.now()
    stuck = JobFactory(canceled=True, task="shop.tasks.charge")
    worker = WorkerFactory(host="web-1", pid=4121, slots=8, stuck=1, memory_mb=312, release="2026.11.30", queues=["mail", "images"])
    Worker.objects.update(stuck_runs=[{"job": stuck.pk, "task": stuck.task, "line": LINE}])
    WorkerFactory(host="web-2", pid=7, release="2026.11.29", drain_requested=True)
    for number in range(3):
        JobFactory(running=True, lease_owner=str(worker.pk), started_at=now - timedelta(minutes=number), queue="images")
    BackgroundJobLease.objects.create(
        job_name="promote_due_jobs", held_by_worker_id=str(worker.pk), lease_acquired_at=now, heartbeat_at=now
    )
    for how in LeftWorker.How:
        record_left([WorkerFactory(host=f"old-{how}", release="2026.11.28").pk], how, "it was asked to stop" if how == "stopped" else "")
    shown = {"url": "https://hooks.example/… [3f2a9c1d]", "at": now.isoformat()}
    delivery = DeliveryFactory(
        failed=True,
        history=[
            {
                **shown,
                "attempt": 1,
                "status": 500,
                "milliseconds": 87,
                "error": "The receiver returned status 500.",
                "excerpt": "<h1>Oh</h1>",
            },
            {**shown, "attempt": 2, "status": None, "milliseconds": 10000, "error": "No response within 10 s.", "excerpt": ""},
        ],
    )
    schedule = ScheduleFactory(name="every-minute", changed_at=now - timedelta(hours=2))
    for number, traits in ((20, {"success": True}), (19, {"error": True}), (12, {"running": True})):
        nominal = now.replace(second=0, microsecond=0) - timedelta(minutes=number)
        ScheduleTick.objects.create(schedule=schedule, nominal_at=nominal, job_id=JobFactory(**traits).pk)
    job = Job.objects.earliest("pk")
    for actor, verb, subject in (
        ("operator anna", "cancel", job),
        ("operator root", "pause", Queue(name="mail")),
        ("deployer", "drain", worker),
    ):
        audit.record(actor, verb, subject, audit.DONE, "192.0.2.7", text=f"{verb.capitalize()} by hand.")
    Queue.objects.update_or_create(name="mail", defaults={"webhook_url": "http://127.0.0.1:9/hook"})
    return {
        "workers": f"{ADMIN}/worker/",
        "worker": f"{ADMIN}/worker/{worker.pk}/change/",
        "activity": f"{ADMIN}/auditrecord/",
        "delivery": f"{ADMIN}/webhookdelivery/{delivery.pk}/change/",
        "webhook": f"{ADMIN}/queue/webhook/?queue=mail",
        "schedule": f"{ADMIN}/schedule/{schedule.pk}/change/",
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_the_pages_fit_and_can_be_read(scene: dict[str, str], open_page: Open, width: int, scheme: str) -> None:
    page = open_page(width=width, scheme=scheme)
    for name, address in scene.items():
        page.goto(address)
        picture(page, f"operations-{name}-{width}-{scheme}")
        assert fits(page), name
        contrasts = {badge.inner_text(): badge.evaluate(CONTRAST) for badge in page.locator(".jq-badge").all()}
        assert {text: contrast for text, contrast in contrasts.items() if contrast < 4.5} == {}, name
        page.evaluate("document.documentElement.dir = 'rtl'")
        assert fits(page), f"{name} from right to left"
        if scheme == "light":
            picture(page, f"operations-{name}-{width}-rtl")


def test_a_worker_is_drained_by_its_button(scene: dict[str, str], open_page: Open) -> None:
    page = open_page()
    page.goto(scene["worker"])
    assert page.get_by_text(LINE).is_visible()
    page.get_by_role("button", name="Drain", exact=True).click()
    page.get_by_role("button", name="Undrain").wait_for()
    assert Worker.objects.get(host="web-1").drain_requested


def test_a_test_of_a_webhook_shows_why_it_was_not_sent(scene: dict[str, str], open_page: Open) -> None:
    page = open_page()
    page.goto(scene["webhook"])
    page.get_by_role("button", name="Send a test").click()
    page.get_by_text("127.0.0.1 has an address that is not public").wait_for()
    picture(page, "operations-webhook-test")
    assert WebhookDelivery.objects.count() == 1


def test_the_next_times_follow_the_fields_of_the_form(scene: dict[str, str], open_page: Open) -> None:
    page = open_page()
    page.goto(f"{ADMIN}/schedule/add/")
    page.fill("#id_cron", "0 12 1 7 *")
    page.fill("#id_time_zone", "Europe/Berlin")
    page.get_by_text("12:00:00 CEST").first.wait_for()
    assert page.get_by_text("12:00:00 CEST").count() == 5
    picture(page, "operations-preview")
    page.fill("#id_cron", "never")
    page.get_by_text("cannot be read").wait_for()
    assert Schedule.objects.count() == 1
