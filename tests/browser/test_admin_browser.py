"""The admin in a real browser, with real workers."""

from collections.abc import Callable
from typing import Any

import pytest

from jobqueue.admin import task_choices
from jobqueue.models import BackgroundJobLease, Job
from tests import tasks
from tests.browser import showcase
from tests.browser.conftest import Open
from tests.factories import DeliveryFactory, ScheduleFactory, WorkerFactory
from tests.faults.harness import Workers, wait_until

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

LIST = "/admin/jobqueue/job/"
# The least contrast between the colours of an element's text and of its own background, by WCAG's formula.
CONTRAST = """element => {
  const light = text => {
    const [r, g, b] = text.match(/[0-9.]+/g).slice(0, 3).map(value => value / 255)
      .map(value => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const style = getComputedStyle(element);
  const [one, other] = [light(style.color), light(style.backgroundColor)].sort((a, b) => b - a);
  return (one + 0.05) / (other + 0.05);
}"""

# The placeholders that are longer than their fields.
CUT_OFF = """[...document.querySelectorAll('input')].filter(field => {
  const pen = document.createElement('canvas').getContext('2d'), style = getComputedStyle(field);
  pen.font = style.font;
  const room = field.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return field.placeholder && field.offsetWidth && pen.measureText(field.placeholder).width > room;
}).map(field => field.placeholder)"""


def reload_until(page: Any, selector: str, count: int = 1) -> None:
    from playwright.sync_api import Error

    def there() -> bool:
        try:
            page.reload()
        except Error:  # a page that is still loading cannot be reloaded; the next try can
            return False
        return bool(page.locator(selector).count() >= count)

    wait_until(there, f"the page shows {count} of {selector}")


def says(page: Any, text: str, where: str = ".messagelist") -> None:
    """Wait until the page that a click led to says this."""
    page.locator(where, has_text=text).first.wait_for()


def badge(kind: str) -> str:
    return f".jq-badge.jq-{kind}"


def page_of(job: Any) -> str:
    return f"{LIST}{job.job_id}/change/"


def test_jobs_are_watched_paused_resumed_and_canceled(open_page: Open, workers: Workers) -> None:
    for number in range(3):
        tasks.add.enqueue(number, 1)
    failing, long = tasks.fail.enqueue("no paper"), tasks.count_slowly.enqueue()
    page = open_page()
    page.goto(LIST)
    assert page.locator(badge("queued")).count() == 5

    worker = workers.start().ready()
    reload_until(page, badge("success"), 3)
    reload_until(page, badge("running"))
    reload_until(page, badge("error"))
    says(page, "ValueError: no paper", "#result_list")
    page.goto("/admin/jobqueue/worker/")
    says(page, f":{worker.pid}", "#result_list")
    page.goto(page_of(failing))
    says(page, "raise ValueError(text)", ".jq-traceback")

    # Pause it from the list.
    page.goto(LIST)
    page.check(f"input.action-select[value='{long.job_id}']")
    page.select_option("select[name=action]", "pause")
    page.click("button[name=index]")
    says(page, "count_slowly", ".jq-table")
    page.click(f"text=Pause job {long.job_id}")
    says(page, f"Running job {long.job_id} was asked to stop, to be paused.")
    reload_until(page, badge("paused"))

    # Resume it, and cancel it on its own page, at the second thought.
    page.goto(page_of(long))
    page.click('button:has-text("Resume")')
    says(page, f"Job {long.job_id} was resumed.")
    reload_until(page, badge("running"))
    page.click(".jq-verb-cancel")
    page.click("text=Go back")
    page.wait_for_selector(badge("running"))
    page.click(".jq-verb-cancel")
    page.click(f"text=Cancel job {long.job_id}")
    reload_until(page, badge("canceled"))
    assert [each.inner_text() for each in page.locator(".jq-verb").all()] == ["Delete"]
    assert Job.objects.get(pk=long.job_id).status == "CANCELED"
    page.click("text=Who did what")
    says(page, "asked to stop, to be canceled", "#content")


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Job]:
    """Make the rows of a shop, whose tasks are the only ones that are known of."""
    monkeypatch.setattr(task_choices, "paths", list)
    return showcase.fill


def test_the_list_fits_on_a_laptop(open_page: Open, shop: Callable[[], Job]) -> None:
    page = open_page(1440, 1300)
    shop()
    page.goto(LIST)
    assert page.evaluate("document.querySelector('.results').scrollWidth <= document.querySelector('.results').clientWidth")


def test_nothing_runs_out_of_sight_on_a_telephone(open_page: Open, shop: Callable[[], Job]) -> None:
    page = open_page(390, 800)
    error = shop()
    for address in (LIST, f"{LIST}{error.pk}/change/"):
        page.goto(address)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.goto(LIST)
    cells = page.locator("#result_list tbody td, #result_list tbody th").all()
    boxes = [box for cell in cells if (box := cell.bounding_box()) is not None]
    assert len(boxes) > 50
    assert [box for box in boxes if box["x"] < 0 or box["x"] + box["width"] > 390] == []


def test_every_list_is_made_of_cards_on_a_telephone_and_every_placeholder_can_be_read(open_page: Open, shop: Callable[[], Job]) -> None:
    ScheduleFactory(name="nightly"), WorkerFactory(host="a-very-long-host-name-of-a-pod-7f9c5d"), DeliveryFactory(delivered=True)
    BackgroundJobLease.objects.get_or_create(pk="apply_retention")
    shop()
    page = open_page(390, 800)
    for name in ("job", "worker", "schedule", "backgroundjoblease", "webhookdelivery"):
        page.goto(f"/admin/jobqueue/{name}/")
        assert page.evaluate("getComputedStyle(document.querySelector('#result_list tbody tr')).display") == "flex", name
        assert page.evaluate("document.querySelector('.results').scrollWidth <= document.querySelector('.results').clientWidth"), name
        assert page.evaluate(CUT_OFF) == [], name


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_badge_can_be_read_by_day_and_by_night(open_page: Open, shop: Callable[[], Job], scheme: str) -> None:
    page = open_page(scheme=scheme)
    shop()
    page.goto(LIST)
    contrasts = {each.inner_text(): each.evaluate(CONTRAST) for each in page.locator(".jq-badge").all()}
    assert len(contrasts) == 9
    assert {text: contrast for text, contrast in contrasts.items() if contrast < 4.5} == {}
