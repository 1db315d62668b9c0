"""The pages can be read from right to left: names are isolated from the text around them, and styles have logical sides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest
from django.test import Client

import jobqueue
from jobqueue import clock
from jobqueue.models import BackgroundJobLease, Queue
from tests.factories import DeliveryFactory, JobFactory, ScheduleFactory, WorkerFactory

STYLES = sorted((Path(jobqueue.__file__).parent / "static" / "jobqueue").glob("*.css"))
SIDES = re.compile(
    r"(?:margin|padding|border|inset|scroll-margin|scroll-padding)-(?:left|right)\b|[;{\s](?:left|right)\s*:"
    r"|(?:text-align|float|clear)\s*:\s*(?:left|right)\b|border-(?:top|bottom)-(?:left|right)-radius"
)
ROOT = "/admin/jobqueue/"
ISOLATING = {"bdi", "pre", "code", "option", "textarea", "title", "h1"}
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
BLOCKS = {"breadcrumbs", "jq-brief", "jq-response", "jq-event-text"}  # titles, and texts with their own direction by the styles
ALONE = re.compile(r"\W*[a-z]+-x(?::\d+)?")  # the whole text of an element
NAMES = ("queue-x", "target-x", "tenant-x", "host-x", "schedule-x", "duty-x", "key-x", "release-x")


@pytest.mark.parametrize("path", STYLES, ids=lambda path: path.name)
def test_the_styles_have_logical_sides_only(path: Path) -> None:
    assert SIDES.findall(re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)) == []


class Texts(HTMLParser):
    """The texts of a page that are not isolated from their surroundings."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[bool] = []
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            classes = (dict(attrs).get("class") or "").split()
            isolates = tag in ISOLATING or "dir" in dict(attrs) or BLOCKS & {*classes}
            self.open.append(tag != "html" and bool(isolates))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID and self.open:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if not any(self.open) and data.strip() and not ALONE.fullmatch(data.strip()):
            self.found.append(data.strip())


@pytest.fixture
def pages(db: None) -> list[str]:
    now = clock.now()
    job = JobFactory(error=True, queue="queue-x", target="target-x", tenant="tenant-x", unique_key="key-x")
    JobFactory(waiting_for_target=True, queue="queue-x", target="target-x", tenant="tenant-x")
    JobFactory(queue="queue-x")
    Queue.objects.create(name="queue-x", max_running=5)
    worker = WorkerFactory(host="host-x", release="release-x", queues=["queue-x"])
    JobFactory(running=True, queue="queue-x", lease_owner=str(worker.pk), started_at=now)
    schedule = ScheduleFactory(name="schedule-x", queue="queue-x", next_at=now + timedelta(hours=1))
    delivery = DeliveryFactory(job=job, queue="queue-x", failed=True)
    BackgroundJobLease.objects.create(job_name="duty-x", held_by_worker_id="w", lease_acquired_at=now, heartbeat_at=now)
    return [
        *(
            "",
            "job/",
            "job/errors/",
            "job/tasks/",
            "job/targets/",
            "queue/",
            "worker/",
            "schedule/",
            "webhookdelivery/",
            "backgroundjoblease/",
        ),
        *(f"job/{job.pk}/change/", f"job/{job.pk}/rerun/", "queue/queue-x/change/", f"worker/{worker.pk}/change/"),
        *(f"schedule/{schedule.pk}/change/", f"webhookdelivery/{delivery.pk}/change/", "backgroundjoblease/duty-x/change/"),
        *("queue/webhook/?queue=queue-x", "job/bulk/new/?verb=resume&q=status:ERROR"),
    ]


def bare(client: Client, pages: list[str]) -> Iterator[tuple[str, str]]:
    for page in pages:
        texts = Texts()
        response = client.get(ROOT + page)
        assert response.status_code == 200, page
        texts.feed(response.content.decode())
        yield from ((page, text) for text in texts.found if any(name in text for name in NAMES))


def test_names_are_isolated_from_the_text_around_them(admin_client: Client, pages: list[str]) -> None:
    assert [*bare(admin_client, pages)] == []
