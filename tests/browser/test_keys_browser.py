"""The keys in a browser: they move, select and open; they press no button, and are off while text is typed."""

from __future__ import annotations

from typing import Any

import pytest

from jobqueue.models import Job
from tests.browser.conftest import Open
from tests.factories import JobFactory

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

LIST = "/admin/jobqueue/job/"


def focused(page: Any) -> str:
    text: str = page.evaluate("document.activeElement.innerText || document.activeElement.value || document.activeElement.id")
    return text.strip()


def press(page: Any, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def selected(page: Any) -> list[str]:
    return [box.get_attribute("value") for box in page.locator(".action-select:checked").all()]


def test_rows_are_walked_selected_opened_and_retried(open_page: Open) -> None:
    older, newer = JobFactory(error=True), JobFactory(error=True)
    page = open_page()
    page.goto(LIST)
    press(page, "j")
    assert focused(page) == f"#{newer.pk}"
    press(page, "j", "j", "x")
    assert (focused(page), selected(page)) == (f"#{older.pk}", [str(older.pk)])
    press(page, "k", "x", "x")
    assert (focused(page), selected(page)) == (f"#{newer.pk}", [str(older.pk)])
    press(page, "r")  # for the selected row, not for that which has the focus
    assert focused(page) == "Go"
    assert Job.objects.get(pk=older.pk).status == "ERROR"
    press(page, "Enter")
    page.locator(".messagelist", has_text=f"Job {older.pk} was resumed.").wait_for()
    page.wait_for_load_state()
    press(page, "j", "Enter")
    page.wait_for_url(f"**/{newer.pk}/change/**")
    press(page, "r")
    assert focused(page) == "Retry"
    press(page, "c")
    assert focused(page) == "Cancel"
    assert Job.objects.get(pk=newer.pk).status == "ERROR"


def test_more_than_one_job_is_not_canceled_before_the_page_has_asked(open_page: Open) -> None:
    jobs = [JobFactory(error=True) for _ in range(2)]
    page = open_page()
    page.goto(LIST)
    press(page, "j", "x", "j", "x", "c", "Enter")
    page.get_by_role("heading", name="Cancel 2 jobs?").wait_for()
    assert {Job.objects.get(pk=job.pk).status for job in jobs} == {"ERROR"}


def test_every_tab_and_the_search_are_reached(open_page: Open) -> None:
    JobFactory(queue="mail")
    page = open_page()
    page.goto(LIST)
    for tab in page.locator(".jq-tabs a").all():
        key, url = tab.get_attribute("data-go"), tab.get_attribute("href")
        press(page, "g", key)
        page.wait_for_url(f"**{url}")
        page.wait_for_load_state()
    press(page, "g", "w")
    page.wait_for_url("**/worker/")
    page.wait_for_load_state()
    press(page, "/")  # this page has no search
    page.wait_for_url("**/job/#searchbar")
    page.keyboard.type("queue:mail j/x?g")
    assert page.input_value("#searchbar") == "queue:mail j/x?g"
    assert page.locator("dialog[open]").count() == 0


def test_the_keys_are_shown_and_can_be_switched_off(open_page: Open) -> None:
    JobFactory()
    page = open_page()
    page.goto(LIST)
    press(page, "?")
    page.get_by_role("dialog", name="Keyboard shortcuts").wait_for()
    press(page, "j")
    assert focused(page) == "Close"
    press(page, "Escape")
    page.get_by_role("dialog").wait_for(state="hidden")
    assert page.locator("#searchbar").get_attribute("aria-keyshortcuts") == "/"
    press(page, "Control+j", "Alt+j", "J")
    assert not focused(page).startswith("#")
    page.get_by_role("button", name="Keys").click()
    page.get_by_label("Keyboard shortcuts are on").uncheck()
    page.get_by_role("button", name="Close").click()
    page.reload()
    press(page, "j", "?", "/")
    assert not focused(page).startswith("#")
    assert page.locator("dialog[open]").count() == 0
    assert page.locator("#searchbar").get_attribute("aria-keyshortcuts") is None


def test_other_pages_of_the_admin_have_no_keys(open_page: Open) -> None:
    page = open_page()
    page.goto("/admin/auth/user/")
    assert page.locator("#jobqueue-keys, .jq-keys, script[src*='keys.js']").count() == 0


def test_a_keyboard_without_latin_letters_works_by_the_places_of_the_keys(open_page: Open) -> None:
    job = JobFactory()
    page = open_page()
    page.goto(LIST)
    page.evaluate("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'ت', code: 'KeyJ', bubbles: true}))")
    assert focused(page) == f"#{job.pk}"
