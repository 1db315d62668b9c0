"""The page of duties says what the code does."""

import re
from pathlib import Path

from jobqueue.duties.builtin import builtin
from jobqueue.insight.duties import STUCK_INTERVALS, STUCK_SECONDS

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "duties.md").read_text()


def test_every_duty_of_the_product_is_on_the_page_and_no_other() -> None:
    table = PAGE.partition("|---|---|---|\n")[2].partition("\n\n")[0]
    assert {*re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)} == {*builtin(lambda: None, lambda lost: None, lambda: 0.0)}


def test_the_intervals_are_the_codes() -> None:
    for name, make in builtin(lambda: None, lambda lost: None, lambda: 0.0).items():
        [every] = re.findall(rf"^\| `{name}` \| .*? \| ([^|]+) \|$", PAGE, re.MULTILINE)
        interval = make().interval_seconds
        assert f"{interval:g} s" in every or (interval == 1 and "each second" in every), name
    assert (STUCK_SECONDS, STUCK_INTERVALS) == (300.0, 10)
    assert "no run was completed for 5 minutes, or ten\nintervals" in PAGE
