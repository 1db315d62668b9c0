"""The page about logs says what the code does."""

import logging.config
import re
from pathlib import Path
from typing import Any

from jobqueue import conf
from jobqueue.logs import FIELDS, JobFields
from jobqueue.management.commands.jobqueue import SUBCOMMANDS
from jobqueue.worker.running.run_log import MAX_BYTES, MAX_LINES
from jobqueue.worker.running.run_records import LEVELS, MAX_LINE_BYTES

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "logs.md").read_text()


def test_the_numbers_are_the_codes() -> None:
    for text in (
        f"its last {MAX_LINES} lines, and at most {MAX_BYTES // 1000} kB of text",
        f"at most {MAX_LINE_BYTES // 1000} kB;",
        f"{conf.Settings().heartbeat_seconds} s)",
        "30 days by default",
    ):
        assert text in PAGE


def test_the_settings_and_the_fields_are_on_the_page() -> None:
    assert {*re.findall(r'`"(\w+)"`', PAGE)} == {*LEVELS, "none"}
    assert ", ".join(f"`{name}`" for name in FIELDS[:-1]) in PAGE
    assert "log" in SUBCOMMANDS


def test_the_configurations_of_the_page_work() -> None:
    found = re.findall(r"```python\n(LOGGING = .*?)```", PAGE, re.DOTALL)
    for block in found:
        names: dict[str, Any] = {}
        exec(block, names)  # noqa: S102 - a page of this repository
        logging.config.DictConfigurator(names["LOGGING"])
    filters = logging.config.DictConfigurator(names["LOGGING"]).configure_filter(names["LOGGING"]["filters"]["job"])
    assert isinstance(filters, JobFields)
    assert len(found) == 2
