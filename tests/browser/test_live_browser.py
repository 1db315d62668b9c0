"""The page of a job that moves while somebody looks at it: served by uvicorn, run by a real worker, under a strict policy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobqueue.models import Job
from tests import tasks
from tests.browser import pipelines
from tests.browser.test_targets_browser import picture
from tests.browser.web import Web
from tests.faults.harness import Workers, wait_for, wait_until

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

# What a browser itself says of a server that is not there for a moment.
AWAY = re.compile(r"net::ERR_(CONNECTION_REFUSED|CONNECTION_RESET|EMPTY_RESPONSE|INCOMPLETE_CHUNKED_ENCODING)|status of 503")
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
NUMBERS = "[...document.querySelectorAll('#jobqueue-timeline > li')].map(item => Number(item.dataset.eventId))"

Watch = Callable[..., Any]


@pytest.fixture
def web(transactional_db: Any, tmp_path: Path) -> Iterator[Web]:
    """Serve the site."""
    made = Web(tmp_path)
    try:
        yield made.start()
    finally:
        made.clean_up()


@pytest.fixture
def complaints() -> list[str]:
    """Collect what pages complain of, and every dialog that opens."""
    return []


@pytest.fixture
def watch(web: Web, browser: Any, admin_user: Any, complaints: list[str]) -> Iterator[Watch]:
    """Return a function that opens the page of a job; at the end, no page may have complained, and no dialog may have opened."""
    contexts = []

    def dialog(shown: Any) -> None:
        complaints.append(f"dialog: {shown.message}")
        shown.dismiss()

    def make(job: Any, width: int = 1440, height: int = 1000, scheme: str = "light") -> Any:
        size = {"width": width, "height": height}
        context = browser.new_context(viewport=size, color_scheme=scheme, base_url=web.url, timezone_id="Asia/Tokyo")
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", dialog)
        page.route("**/favicon.ico", lambda route: route.fulfill(status=204))
        address = f"/admin/jobqueue/job/{job.id}/change/"
        page.goto(f"/admin/login/?next={address}")
        page.fill("#id_username", "admin")
        page.fill("#id_password", "password")
        page.click("input[type=submit]")
        page.wait_for_url(f"**{address}")
        page.evaluate("window.neverLoadedAgain = true")
        return page

    yield make
    for context in contexts:
        context.close()
    assert complaints == [], complaints


def connection(page: Any, mode: str) -> None:
    """Wait until the page says how it is connected."""
    page.locator(f"#jobqueue-live[data-mode={mode}]").wait_for(state="attached")


def progress(page: Any) -> int:
    """Return how far the bar is; -1 where there is none."""
    return int(page.evaluate("document.getElementById('jobqueue-progress')?.value ?? -1"))


def names(page: Any) -> list[str]:
    """Return the events of the timeline."""
    return [str(item.get_attribute("data-name")) for item in page.locator("#jobqueue-timeline > li").all()]


def test_a_pipeline_moves_before_ones_eyes_until_it_is_canceled_on_its_page(watch: Watch, workers: Workers) -> None:
    job = pipelines.publish.enqueue()
    page = watch(job)
    connection(page, "live")
    assert progress(page) == 0
    assert names(page) == ["job.enqueued"]

    workers.start(TASK_MODULES=[pipelines.__name__])
    seen: list[int] = []
    statuses: set[tuple[str, ...]] = set()
    rows = page.locator("#jobqueue-phases tbody tr")

    def is_uploading() -> bool:
        if (now := progress(page)) not in seen:
            seen.append(now)
        statuses.add(tuple(rows.evaluate_all("rows => rows.map(row => row.dataset.status)")))
        return page.locator("#jobqueue-message").inner_text() == "half of it" and now == 83

    wait_until(is_uploading, "the last phase is at its half", 40)
    assert seen == sorted(seen), "the bar goes forward only"
    assert len(seen) >= 6, seen
    assert {("PENDING",) * 3, ("RUNNING", "PENDING", "PENDING"), ("SUCCESS", "SUCCESS", "RUNNING")} <= statuses
    assert page.locator(".jq-badge.jq-running").count() == 1
    told = ["job.enqueued", "job.started", *["job.phase.started", "job.phase.completed"] * 2, "job.phase.started"]
    wait_until(lambda: names(page) == told, "the timeline has grown")
    assert page.evaluate(NUMBERS) == sorted(set(page.evaluate(NUMBERS)))
    wait_until(lambda: "Running" in page.inner_text("#jobqueue-told"), "the change of the status was told to who does not see it")

    # Text from outside is text, wherever the stream or the server put it.
    assert "process <script>alert(1)</script>" in page.locator("#jobqueue-phases tbody th").nth(1).text_content()
    assert pipelines.NASTY[:60] in page.inner_text("#jobqueue-timeline")
    assert page.locator("#jobqueue-job :is(script, img)").count() == 0

    # Canceled by keyboard, on this very page.
    assert page.evaluate("window.neverLoadedAgain")
    page.locator(".jq-verb-cancel").press("Enter")
    page.locator(f"text=Cancel job {job.id}").press("Enter")
    page.locator(".jq-badge.jq-canceled").wait_for()
    assert wait_for(job, "CANCELED").message
    assert [each.inner_text() for each in page.locator(".jq-verb").all()] == ["Delete"]
    assert names(page)[-1] == "job.canceled"
