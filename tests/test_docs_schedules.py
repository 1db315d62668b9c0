"""The page of schedules says what the code does."""

import inspect
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import jobqueue
from jobqueue.admin.schedules import VERBS
from jobqueue.core import cron
from jobqueue.declared import registry
from jobqueue.duties.enqueue_scheduled_jobs import BUDGET_SECONDS, MAX_PAUSE_SECONDS
from jobqueue.models import Schedule
from jobqueue.schedules import declarations
from jobqueue.schedules import ticks as verbs

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "schedules.md").read_text()


def table(heading: str) -> list[str]:
    """Return the names in the first column of the first table behind a heading."""
    rows = PAGE.split(f"## {heading}\n")[1].split("---|\n")[1].split("\n\n")[0].splitlines()
    return [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]


def test_every_option_is_on_the_page_and_no_other() -> None:
    options = [name for name, one in inspect.signature(jobqueue.schedule).parameters.items() if one.kind is one.KEYWORD_ONLY]
    assert sorted(table("Declare one in code")) == sorted(options)


def test_every_policy_and_permission_is_on_the_page() -> None:
    assert table("Missed times") == ["once", "skip", "all"]
    assert {*table("Missed times")} == {*cron.MISSED}
    own = [f"{name}_schedule" for name in ("view", "add", "change", "delete")]
    assert sorted(table("Make one in the admin")) == sorted([*own, *(f"{verb}_schedule" for verb in VERBS)])


def test_the_numbers_are_the_codes() -> None:
    assert f"tried again every {verbs.RETRY_SECONDS:.0f} s" in PAGE
    assert f"at most {MAX_PAUSE_SECONDS:.0f} s" in PAGE
    assert f"each run ends after about {BUDGET_SECONDS:.0f} s" in PAGE
    assert f"until they are {verbs.KEEP_TICKS.days} days older" in PAGE
    assert (timedelta(days=3), 60) == (verbs.KEEP_TICKS, cron.ON_TIME_SECONDS)
    assert f"({Schedule().missed_limit}; {cron.MAX_MISSED} at most)" in PAGE
    assert Schedule().missed == "once"
    assert timedelta(days=366).total_seconds() == cron.MAX_INTERVAL


def test_the_example_can_be_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declarations, "_declared", {})
    monkeypatch.setattr(registry, "_tasks", dict(registry._tasks))
    names: dict[str, Any] = {"__name__": "tests.shop"}
    exec(PAGE.split("```python\n")[1].split("```")[0], names)  # noqa: S102 - a page of this project
    assert declarations.declared() == ["look-for-mail", "nightly-report"]
