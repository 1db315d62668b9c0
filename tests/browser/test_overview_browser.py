"""The Overview in a browser: it is updated without a reload, and keeps what a user points at."""

from typing import Any

import pytest

from jobqueue.core import recent
from tests.browser.conftest import Open
from tests.factories import JobFactory, WorkerFactory

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

WAITING = ".jq-tile:first-child .jq-tile-value"


def wait_for(page: Any, selector: str) -> None:
    page.wait_for_selector(selector, timeout=20_000)


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read anew for each request, so that a test need not wait for kept results to expire."""
    monkeypatch.setattr(recent, "kept", lambda key, seconds, function: function())


def test_the_overview_is_updated_without_a_reload(open_page: Open) -> None:
    WorkerFactory()
    page = open_page()
    page.goto("/admin/jobqueue/")
    page.evaluate("window.wasReloaded = false")
    assert page.inner_text(WAITING) == "0"
    JobFactory(queue="mail")
    page.mouse.move(1, 1)
    wait_for(page, f'{WAITING}:has-text("1")')
    assert page.evaluate("window.wasReloaded") is False
    assert "mail" in page.inner_text('[data-part="queues"]')
    assert page.inner_text(".jq-live") == "Live"


def test_a_part_under_the_pointer_is_not_changed(open_page: Open) -> None:
    WorkerFactory()
    JobFactory(queue="mail")
    page = open_page()
    page.goto("/admin/jobqueue/")
    page.hover('[data-part="queues"] tbody tr')
    JobFactory(queue="index")
    wait_for(page, f'{WAITING}:has-text("2")')
    assert "index" not in page.inner_text('[data-part="queues"]')
    assert "Held" in page.inner_text(".jq-live")
    page.mouse.move(1, 1)
    wait_for(page, '[data-part="queues"] tbody tr:has-text("index")')


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_is_wider_than_the_window(open_page: Open, width: int, scheme: str) -> None:
    JobFactory(queue="a_queue_with_a_long_name_" * 4)
    page: Any = open_page(width=width, scheme=scheme)
    page.goto("/admin/jobqueue/")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.get_by_role("navigation", name="Job queue").get_by_role("link", name="Overview").get_attribute("aria-current") == "page"
