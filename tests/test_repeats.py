"""Log lines that can repeat for each row."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from jobqueue.core import repeats


def _lines(caplog: Any) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_the_first_of_a_kind_is_logged_and_the_next_says_how_many_were_left_out(caplog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for job in (1, 2, 3):
        repeats.log(logging.WARNING, "Job %d failed.", job)
    monkeypatch.setattr(repeats, "INTERVAL_SECONDS", 0.0)
    repeats.log(logging.WARNING, "Job %d failed.", 4)
    assert _lines(caplog) == ["Job 1 failed.", "Job 4 failed. (2 more like this were left out of the log)"]


def test_lines_of_another_text_kind_or_error_are_logged(caplog: Any) -> None:
    repeats.log(logging.WARNING, "Job %d failed.", 1)
    repeats.log(logging.WARNING, "Job %d stopped.", 1)
    repeats.log(logging.WARNING, "Job %d failed.", 1, kind="other")
    try:
        raise ValueError
    except ValueError:
        repeats.log(logging.ERROR, "Job %d failed.", 1, exc_info=True)
        repeats.log(logging.ERROR, "Job %d failed.", 2, exc_info=True)
    assert len(_lines(caplog)) == 4
    assert caplog.text.count("Traceback") == 1


def test_omitted_lines_are_counted_once_when_no_other_line_follows(caplog: Any) -> None:
    for job in (1, 2, 3):
        repeats.log(logging.WARNING, "Job %d failed.", job)
    repeats.flush()
    assert _lines(caplog) == ["Job 1 failed."]
    repeats.flush(0.0)
    repeats.flush(0.0)
    assert _lines(caplog)[1:] == ["2 more lines like this were left out of the log: Job 1 failed."]


def test_kinds_do_not_grow_without_end(caplog: Any) -> None:
    for number in range(repeats.MAX_KINDS + 5):
        repeats.log(logging.WARNING, "Failed.", kind=str(number))
    assert len(repeats._kinds) == 5
