"""A real browser, with a strict content security policy on every page, and real workers behind it."""

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from jobqueue.events.stream import hub
from tests.faults.harness import Workers, wait_until

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PAGES = re.compile(r"^http://[^/]+/admin/(?!jsi18n|jobqueue/job/\d+/events/)")
POLICY = "default-src 'self'; frame-ancestors 'none'"

Open = Callable[..., Any]


@pytest.fixture
def workers(transactional_db: Any, tmp_path: Path) -> Iterator[Workers]:
    """Start workers on the test's database; they end before the database is emptied."""
    made = Workers(tmp_path)
    try:
        yield made
    finally:
        made.clean_up()


@pytest.fixture
def server(live_server: Any) -> Iterator[Any]:
    """Serve the site; at the end, wait for the threads of the last requests, which hold connections to the database."""
    yield live_server
    assert hub.close(), "the reader of the streams has not ended"
    wait_until(lambda: not any("process_request" in thread.name for thread in threading.enumerate()), "all requests have ended")


@pytest.fixture
def browser(server: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Start Chromium; it is closed before the server handles its last requests."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"there is no {CHROMIUM}")
    # Playwright's event loop lives in this thread, and Django would take every query of the test for one inside a coroutine.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS])
        try:
            yield started
        finally:
            started.close()
            connection.close()  # the one of this thread inside that loop, which no other code would close


@pytest.fixture
def open_page(browser: Any, server: Any, admin_user: Any) -> Iterator[Open]:
    """Return a function that opens a page of a user who is logged in; at the end, check that no page had an error."""
    complaints: list[str] = []
    pages: list[Any] = []

    def strict(route: Any) -> None:
        response = route.fetch(max_redirects=0)
        route.fulfill(response=response, headers={**response.headers, "content-security-policy": POLICY})

    def make(width: int = 1440, height: int = 900, scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, base_url=server.url)
        page = context.new_page()
        pages.append(page)
        page.set_default_timeout(10_000)
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.route(PAGES, strict)
        page.route("**/favicon.ico", lambda route: route.fulfill(status=204))
        page.goto("/admin/login/?next=/admin/jobqueue/job/")
        page.fill("#id_username", "admin")
        page.fill("#id_password", "password")
        page.click("input[type=submit]")
        return page

    yield make
    for page in pages:
        page.unroute_all(behavior="ignoreErrors")
    assert complaints == []
