"""The page of commands and admin pages says what the code does."""

import re
from pathlib import Path

import pytest

from jobqueue.admin import listing
from jobqueue.admin.queues import PERMISSIONS
from jobqueue.admin.verbs import VERBS
from jobqueue.insight import targets, why
from jobqueue.insight.health import MAX_COUNTED
from jobqueue.insight.problems import CHECKS
from jobqueue.insight.problems.base import THRESHOLDS
from jobqueue.insight.workers import HANG_SECONDS, HEARD_SECONDS
from jobqueue.management.commands.jobqueue import SUBCOMMANDS

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "commands.md").read_text()


def test_every_subcommand_is_on_the_page_and_no_other() -> None:
    assert re.findall(r"^\| `([a-z-]+) ?[^`]*` \|", PAGE.split("## Health")[0].partition("---|\n")[2], re.MULTILINE) == list(SUBCOMMANDS)


def test_every_problem_and_each_of_its_options_is_on_the_page_and_no_other() -> None:
    health = PAGE.split("## Health")[1].split("## In the admin")[0]
    assert re.findall(r"^\| `(\w+)` \|", health, re.MULTILINE) == [*(check.__name__ for check in CHECKS), "check_failed"]
    options = {f"--{name.replace('_', '-')}" for name in THRESHOLDS}
    assert {*re.findall(r"`(--(?:max|since)[a-z-]*) ", health)} == options


def test_every_gate_is_on_the_page_and_no_other() -> None:
    in_code = {*re.findall(r'Why\(\s*"(\w+)"', Path(why.__file__).read_text())}
    assert {*re.findall(r"^\| `(\w+)` \|", PAGE.split("## In code")[1].partition("---|\n")[2], re.MULTILINE)} == in_code


@pytest.mark.parametrize("name", [*(f"{verb}_job" for verb in VERBS), *PERMISSIONS.values()])
def test_every_permission_is_on_the_page(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_the_numbers_are_the_codes() -> None:
    numbers = {*re.findall(r"\d[\d,]*", PAGE)}
    assert {
        f"{value:,.0f}"
        for value in (
            listing.WINDOW,
            listing.MAX_CHECKED,
            MAX_COUNTED,
            targets.MAX_TARGETS - 1,
            targets.MAX_SEARCHED,
            HANG_SECONDS,
            HEARD_SECONDS,
        )
    } <= numbers
