"""The live page of a job: served by uvicorn, with a real worker, under a strict content security policy."""

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
def watch(web: Web, browser: Any, admin_client: Any, complaints: list[str]) -> Iterator[Watch]:
    """Return a function that opens the page of a job; at the end, no page may have complained, and no dialog may have opened."""
    contexts = []

    def dialog(shown: Any) -> None:
        complaints.append(f"dialog: {shown.message}")
        shown.dismiss()

    def make(job: Any, width: int = 1440, height: int = 1000, scheme: str = "light") -> Any:
        size = {"width": width, "height": height}
        context = browser.new_context(viewport=size, color_scheme=scheme, base_url=web.url, timezone_id="Asia/Tokyo")
        contexts.append(context)
        context.add_cookies([{"name": "sessionid", "value": admin_client.cookies["sessionid"].value, "url": web.url}])
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", dialog)
        page.route("**/favicon.ico", lambda route: route.fulfill(status=204))
        address = f"/admin/jobqueue/job/{job.job_id}/change/"
        page.goto(address)
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
    assert len(seen) >= 4, seen  # a slow browser on a busy machine misses some
    assert {("PENDING",) * 3, ("RUNNING", "PENDING", "PENDING"), ("SUCCESS", "SUCCESS", "RUNNING")} <= statuses
    assert page.locator(".jq-badge.jq-running").count() == 1
    told = ["job.enqueued", "job.started", *["job.phase.started", "job.phase.completed"] * 2, "job.phase.started"]
    wait_until(lambda: names(page) == told, "the timeline has grown")
    assert page.evaluate(NUMBERS) == sorted(set(page.evaluate(NUMBERS)))
    wait_until(lambda: "Running" in page.inner_text("#jobqueue-told"), "the change of the status was announced to screen readers")

    picture(page, "live-running")

    # Text from outside is text, wherever the stream or the server put it.
    assert "process <script>alert(1)</script>" in page.locator("#jobqueue-phases tbody th").nth(1).text_content()
    assert pipelines.NASTY[:60] in page.inner_text("#jobqueue-timeline")
    assert page.locator("#jobqueue-job :is(script, img)").count() == 0

    # Canceled by keyboard, on this very page.
    assert page.evaluate("window.neverLoadedAgain")
    page.locator(".jq-verb-cancel").press("Enter")
    page.locator(f"text=Cancel job {job.job_id}").press("Enter")
    page.locator(".jq-badge.jq-canceled").wait_for()
    assert wait_for(job, "CANCELED").message
    assert [each.inner_text() for each in page.locator(".jq-verb").all()] == ["Delete"]
    assert names(page)[-1] == "job.canceled"


def test_the_page_of_a_plain_job_gets_its_bar_its_result_and_its_last_words_without_being_loaded_again(
    watch: Watch, workers: Workers
) -> None:
    job = tasks.count_slowly.enqueue(3.0)
    page = watch(job, 390, 800)
    connection(page, "live")
    assert progress(page) == -1
    page.locator(".jq-verb-cancel").focus()
    workers.start(TASK_MODULES=["tests.tasks"])
    wait_until(lambda: 0 < progress(page) < 100, "the bar is there, and moves")
    assert page.evaluate("document.activeElement.className").endswith("jq-verb-cancel"), "the focus has stayed"
    connection(page, "ended")
    assert page.inner_text("[data-part=result]").splitlines()[-1] == "100"
    assert "1 started, 0 failed" in page.inner_text("[data-part=report]")
    assert [each.inner_text() for each in page.locator(".jq-verb").all()] == ["Delete"]
    assert page.evaluate("document.activeElement.className") == "jq-verbs", "the button is gone: the focus is still among the other buttons"
    assert names(page) == ["job.enqueued", "job.started", "job.completed"]
    assert page.evaluate("window.neverLoadedAgain")
    assert page.evaluate(WIDER) == 0
    picture(page, "live-ended-390")


def test_the_page_reconnects_after_a_restart_of_the_server_and_misses_nothing(
    watch: Watch, web: Web, workers: Workers, complaints: list[str]
) -> None:
    job = pipelines.publish.enqueue()
    page = watch(job)
    connection(page, "live")
    web.stop()
    connection(page, "reconnecting")
    picture(page, "live-reconnecting")
    workers.start(TASK_MODULES=[pipelines.__name__])
    wait_until(lambda: Job.objects.get(pk=job.job_id).progress == 83, "the last phase is at its half, while no page showed it", 40)
    assert names(page) == ["job.enqueued"]
    web.start()
    connection(page, "live")
    wait_until(lambda: progress(page) == 83, "the bar is where the job is")
    told = ["job.enqueued", "job.started", *["job.phase.started", "job.phase.completed"] * 2, "job.phase.started"]
    wait_until(lambda: names(page) == told, "the timeline has all of it")
    page.locator(".jq-badge.jq-running").wait_for()
    assert page.evaluate("window.neverLoadedAgain")
    complaints[:] = [text for text in complaints if not AWAY.search(text)]


@pytest.mark.parametrize(("width", "scheme"), [(1440, "dark"), (390, "light"), (390, "dark")])
def test_a_page_that_moves_fits_the_screen(watch: Watch, workers: Workers, width: int, scheme: str) -> None:
    job = pipelines.publish.enqueue()
    page = watch(job, width, 800, scheme)
    workers.start(TASK_MODULES=[pipelines.__name__])
    page.evaluate(
        "window.widest = 0; new MutationObserver(() => { window.widest = Math.max(window.widest, WIDER) }).observe("
        "document.body, {subtree: true, childList: true, characterData: true})".replace("WIDER", WIDER)
    )
    wait_until(lambda: page.locator("#jobqueue-message").inner_text() == "half of it", "the last phase is at its half", 40)
    page.locator("#jobqueue-timeline > li").nth(6).wait_for()
    assert page.evaluate("window.widest") == 0, "nothing ran out of sight on the way"
    assert page.evaluate(WIDER) == 0
    picture(page, f"live-{width}-{scheme}")


def test_the_timeline_keeps_its_scroll_position(watch: Watch, workers: Workers) -> None:
    job = pipelines.publish.enqueue()
    page = watch(job, 390, 500)
    connection(page, "live")
    page.evaluate("document.querySelector('[data-part=When]').scrollIntoView()")
    top = "document.querySelector('[data-part=When] h2').getBoundingClientRect().top"
    before = page.evaluate(top)
    workers.start(TASK_MODULES=[pipelines.__name__])
    page.locator("#jobqueue-timeline > li").nth(6).wait_for(timeout=30_000)
    assert abs(page.evaluate(top) - before) < 5


def test_without_a_stream_the_page_says_so_and_stays_as_it_is(watch: Watch, web: Web, complaints: list[str]) -> None:
    """So it is where a server has no room for one more."""
    page = watch(tasks.add.enqueue(1))
    page.route("**/events/**", lambda route: route.fulfill(status=503, body="no room", content_type="application/json"))
    page.reload()
    connection(page, "off")
    assert page.inner_text("#jobqueue-live") == "Not live"
    assert page.locator(".jq-verb-cancel").is_enabled()
    page.unroute("**/events/**")
    connection(page, "live")  # the next try, some seconds later
    complaints[:] = [text for text in complaints if not AWAY.search(text)]


def test_a_hidden_tab_releases_its_connection(watch: Watch) -> None:
    """A browser without HTTP/2 has six for a site, whatever the number of tabs."""
    job = tasks.add.enqueue(1)
    page = watch(job)
    connection(page, "live")
    hide = "Object.defineProperty(document, '{0}', {{configurable: true, get: () => {1}}}); "
    change = "document.dispatchEvent(new Event('visibilitychange'))"
    page.evaluate(hide.format("hidden", "true") + change)
    page.locator("#jobqueue-live[data-mode=off]").wait_for(timeout=25_000)
    page.evaluate(hide.format("hidden", "false") + change)
    connection(page, "live")
