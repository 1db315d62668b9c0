"""The live page of a job, without a browser: what its scripts must not contain, and the part of the page that they fetch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.test import Client

import jobqueue
from jobqueue.core import event_names
from tests.admin.conftest import button, detail
from tests.factories import JobFactory

PACKAGE = Path(jobqueue.__file__).parent
SCRIPTS = sorted((PACKAGE / "static").rglob("*.js"))
TEMPLATES = sorted((PACKAGE / "templates").rglob("*.html"))
# What makes markup or code of a text, or writes a handler or a style into the page.
SINKS = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|setHTML|srcdoc|\beval\b|new Function"
SINKS += r"|javascript:"
SINKS += r"|setTimeout\(\s*[\"'`]|setInterval\(\s*[\"'`]|cssText|setAttribute\(\s*[\"'`](on|style)|import\("
INLINE = r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+\s*=|javascript:"
PART = {"X-Jobqueue-Part": "job"}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_script_makes_markup_or_code_of_a_text(path: Path) -> None:
    assert re.findall(SINKS, path.read_text()) == []


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_template_has_a_script_a_style_or_a_handler_in_it(path: Path) -> None:
    assert re.findall(INLINE, path.read_text()) == []


def test_the_client_listens_to_every_event() -> None:
    text = (PACKAGE / "static" / "jobqueue" / "events.js").read_text()
    named = re.findall(r'"(job\.[a-z_.]+)"', text[text.index("const NAMES") : text.index("];")])
    assert sorted(named) == sorted(event_names.NAMES)


def test_there_are_scripts_and_templates_to_check() -> None:
    assert [path.name for path in SCRIPTS] == [
        "bulk_page.js",
        "events.js",
        "job_page.js",
        "keys.js",
        "live_list.js",
        "overview.js",
        "schedule_form.js",
    ]
    assert len(TEMPLATES) > 5


def test_the_part_is_the_same_as_in_the_page(operator: Client) -> None:
    job = JobFactory(error=True, message="no <b>paper</b>")
    part = operator.get(detail(job), headers=PART)
    page = operator.get(detail(job))
    assert part.headers["Vary"].split(", ").count("X-Jobqueue-Part") == 1

    def without_tokens(text: str) -> str:
        return re.sub(r'value="\w{64}"|[0-9.]+ m?s ago', "", text).strip()

    assert "<html" not in part.text
    assert without_tokens(part.text) in without_tokens(page.text)
    assert part.text.count("csrfmiddlewaretoken") == page.text.count("csrfmiddlewaretoken") - 1  # that of the log-out


def test_the_part_leaves_what_there_is_to_say_for_the_next_page(operator: Client) -> None:
    job = JobFactory()
    operator.post(button(job, "pause"))
    part = operator.get(detail(job), headers=PART)
    assert "was paused" not in part.text
    assert "Paused" in part.text
    page = operator.get(detail(job))
    assert "was paused" in page.text


def test_the_part_of_a_deleted_job_is_not_found_and_leaves_no_message(operator: Client) -> None:
    job = JobFactory()
    address = detail(job)
    job.delete()
    assert operator.get(address, headers=PART).status_code == 404
    assert "There is no job" not in operator.get("/admin/jobqueue/job/").text
    assert operator.get(address).status_code == 302


def test_the_part_asks_for_the_permission_of_the_page(login: object, client: Client) -> None:
    job = JobFactory()
    assert login().get(detail(job), headers=PART).status_code == 403  # type: ignore[operator]
    assert client.get(detail(job), headers=PART).status_code == 302


@pytest.mark.parametrize(("trait", "scripts"), [("running", 2), ("error", 2), ("success", 0)])
def test_only_the_page_of_a_job_that_may_still_change_follows_it(operator: Client, trait: str, scripts: int) -> None:
    page = operator.get(detail(JobFactory(**{trait: True}))).text
    assert len(re.findall(r"<script src=\"[^\"]*/jobqueue/(?:events|job_page)\.js\" defer></script>", page)) == scripts
    assert ("data-events=" in page) == bool(scripts)
