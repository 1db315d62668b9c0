"""The page of events says what the code does."""

import re
from pathlib import Path

from jobqueue.core import event_names as names
from jobqueue.insight.timeline import MAX_EVENTS
from jobqueue.retention.events import BATCH

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "events.md").read_text()


def test_every_name_is_in_the_table_and_no_other() -> None:
    table = PAGE.partition("|---|---|---|\n")[2].partition("\n\n")[0]
    first = [row.split("|")[1] for row in table.splitlines()]
    assert sorted(name for cell in first for name in re.findall(r"`(job\.[a-z_.]+)`", cell)) == sorted(names.NAMES)


def test_the_endings_are_those_of_the_code() -> None:
    said = PAGE.partition("**Each run ends with exactly one of**")[2].partition(", whatever")[0]
    assert {f"job.{name}" for name in re.findall(r"`(\w+)`", said)} == set(names.ENDINGS)


def test_the_numbers_are_the_codes() -> None:
    assert f"the newest {MAX_EVENTS}," in PAGE
    assert f"{BATCH:,} rows in a transaction" in PAGE
