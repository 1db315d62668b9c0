"""The phases of a pipeline in a browser, with light and dark colors, and on a phone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobqueue.models import Job, JobPhase
from tests.admin.conftest import detail
from tests.browser.conftest import Open
from tests.browser.test_targets_browser import picture
from tests.factories import JobFactory

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture
def published(transactional_db: Any) -> Job:
    """Make a job in the third of its five phases."""
    begun = timezone.now() - timedelta(minutes=5)
    job: Job = JobFactory(running=True, task="media.tasks.publish_video", phase="find faces", progress=48, started_at=begun)
    for position, (name, status, progress, message) in enumerate(
        (
            ("download", "SUCCESS", 100, "812 MB from https://example.org/videos/2026/11/a-cat-that-plays-the-piano-in-the-rain.mp4"),
            ("cut", "SUCCESS", 100, ""),
            ("find faces", "RUNNING", 40, "frame 4,021 of 10,000 <script>alert(1)</script>"),
            ("upload", "PENDING", 0, ""),
            ("notify the subscribers", "ERROR", 0, "OSError: no route to host"),
        )
    ):
        times: dict[str, Any] = {"started_at": begun} if status != "PENDING" else {}
        if status in ("SUCCESS", "ERROR"):
            times["finished_at"] = begun + timedelta(seconds=75)
        JobPhase.objects.create(
            job=job, position=position, name=name, status=status, progress=progress, message=message, attempts=bool(times), **times
        )
    return job


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_phases_fit_on_the_page(open_page: Open, published: Job, width: int, scheme: str) -> None:
    page = open_page(width=width, scheme=scheme)
    page.goto(detail(published))
    rows = page.locator("#jobqueue-phases tbody tr")
    assert [rows.nth(number).get_attribute("data-phase") for number in range(5)][2:4] == ["find faces", "upload"]
    assert "frame 4,021 of 10,000 <script>alert(1)</script>" in rows.nth(2).inner_text()
    assert page.locator("#jobqueue-progress").evaluate("bar => bar.value") == 48
    assert page.evaluate(WIDER) == 0
    picture(page, f"phases-{width}-{scheme}")
