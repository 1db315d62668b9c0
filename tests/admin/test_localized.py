"""Numbers in attributes have no separators of the user's language."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
from django.test import Client

from jobqueue import clock
from jobqueue.models import BackgroundJobLease, Queue
from tests.factories import DeliveryFactory, JobFactory, ScheduleFactory, WorkerFactory

pytestmark = pytest.mark.django_db
ROOT = "/admin/jobqueue/"
BIG = 1234567
SPOKEN = ("title", "placeholder")  # text for people


class Attributes(HTMLParser):
    """Collect the attributes that have a number with separators."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[tuple[str, str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = [(tag, name, value) for name, value in attrs if value and name not in SPOKEN]
        self.wrong += [one for one in found if "1.234.567" in one[2] or "2.147.483.647" in one[2]]


@pytest.fixture
def rows(settings: Any) -> Any:
    settings.USE_THOUSAND_SEPARATOR, settings.LANGUAGE_CODE, settings.USE_I18N = True, "de", True
    job = JobFactory(id=BIG, error=True, target="t", attempt=BIG, max_attempts=BIG)
    JobFactory(waiting_for_target=True, target="t", id=BIG + 10)
    JobFactory(id=BIG + 1, running=True, started_at=clock.now())
    delivery = DeliveryFactory(id=BIG, job=job, failed=True)
    schedule = ScheduleFactory(id=BIG, last_at=clock.now(), last_job_id=BIG, cron="", interval_seconds=BIG, missed_limit=1000)
    Queue.objects.create(name="default", max_running=BIG)
    WorkerFactory(slots=BIG)
    BackgroundJobLease.objects.create(
        job_name="x", held_by_worker_id="w", lease_acquired_at=clock.now(), heartbeat_at=clock.now(), metadata={"runs": BIG}
    )
    return job, delivery, schedule


@pytest.mark.long
def test_no_attribute_of_any_page_has_a_number_with_separators(admin_client: Client, rows: Any) -> None:
    job, delivery, schedule = rows
    lists = ["job", "queue", "worker", "schedule", "webhookdelivery", "backgroundjoblease", "job/targets", "schedule/add"]
    pages = [f"{one}/" for one in lists]
    pages += [
        f"job/{job.pk}/change/",
        f"job/{BIG + 1}/change/",
        f"schedule/{schedule.pk}/change/",
        f"webhookdelivery/{delivery.pk}/change/",
    ]
    for page in pages:
        response = admin_client.get(ROOT + page)
        assert response.status_code == 200, page
        check(response.content.decode(), page)


@pytest.mark.parametrize(
    ("page", "action"), [("job", "cancel_selected"), ("job", "delete_selected"), ("webhookdelivery", "redeliver_selected")]
)
def test_no_question_before_an_action_has_one(admin_client: Client, rows: Any, page: str, action: str) -> None:
    response = admin_client.post(f"{ROOT}{page}/", {"action": action, "_selected_action": [str(BIG)]}, follow=True)
    assert response.status_code == 200
    check(response.content.decode(), action)


def check(page: str, name: str) -> None:
    found = Attributes()
    found.feed(page)
    assert found.wrong == [], name
