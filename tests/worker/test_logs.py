"""The format of the log records of `runworkers`."""

from __future__ import annotations

import logging
import re
import sys
import time
from typing import Any

import pytest

from jobqueue.worker.process.logs import Formatter


def formatted(message: str, error: BaseException | None = None) -> str:
    info = (type(error), error, error.__traceback__) if error else None
    record = logging.LogRecord("jobqueue", logging.ERROR, __file__, 1, "%s", (message,), info)
    return Formatter("%(levelname)s %(message)s").format(record)


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001
        return caught


FORGED = "x\n2026-01-01 00:00:00,000 ERROR forged\r\x1b[2J\x1b]0;title\x07\u202e\u2028"
ESCAPED = r"x\n2026-01-01 00:00:00,000 ERROR forged\r\x1b[2J\x1b]0;title\x07\u202e\u2028"


def test_a_message_is_one_line_whatever_is_in_it() -> None:
    assert formatted(FORGED) == f"ERROR {ESCAPED}"
    assert formatted("Grüße, 日本") == "ERROR Grüße, 日本"


def test_the_text_of_an_exception_is_one_line_and_the_traceback_keeps_its_own() -> None:
    lines = formatted("m", raised(ValueError(FORGED))).split("\n")
    assert lines[:2] == ["ERROR m", "Traceback (most recent call last):"]
    assert lines[2].startswith("  File ")
    assert lines[3] == "    raise error"
    assert lines[-1] == f"ValueError: {ESCAPED}"
    assert len(lines) == 5


@pytest.mark.parametrize("kind", ["chain", "group", "notes", "class"])
def test_chains_groups_notes_and_names_forge_nothing(kind: str) -> None:
    error: BaseException = ValueError(FORGED)
    if kind == "chain":
        error.__cause__ = raised(OSError(FORGED))
    elif kind == "group":
        error = ExceptionGroup(FORGED, [raised(OSError(FORGED)), ExceptionGroup("inner", [KeyError(FORGED)])])
    elif kind == "notes":
        error.add_note(FORGED)
    else:
        error = type(FORGED, (Exception,), {})("x")
    text = formatted("m", raised(error))
    assert all(line.isprintable() for line in text.split("\n"))
    assert not re.search(r"^[\s|+-]*2026", text, re.MULTILINE)


def test_a_traceback_that_another_handler_has_made_is_not_taken_over() -> None:
    error = raised(ValueError(FORGED))
    record = logging.LogRecord("jobqueue", logging.ERROR, __file__, 1, "m", (), (type(error), error, error.__traceback__))
    logging.Formatter().format(record)
    assert "forged\r" not in Formatter().format(record)


def test_no_exception_adds_no_line() -> None:
    record = logging.LogRecord("jobqueue", logging.ERROR, __file__, 1, "m", (), sys.exc_info())
    assert Formatter().format(record) == "m"


def test_secrets_are_hidden_in_messages_and_tracebacks() -> None:
    error = raised(ValueError("cannot reach https://bob:hunter2@example.com/"))
    error.add_note("--password=hunter2")
    error.__cause__ = raised(KeyError("Bearer hunter2"))
    assert "hunter2" not in formatted("Job 7 failed (token=hunter2)", error)


def test_the_secrets_of_a_job_are_hidden_in_the_traceback_of_its_run() -> None:
    from jobqueue.core.masking import Mask
    from jobqueue.failure_log import RunError, while_handling

    error = raised(ValueError("the server refused hunter2"))
    lines: list[str] = []
    while_handling(RunError(error, mask=Mask(values=["hunter2"])), lambda: lines.append(formatted("m", error)))
    assert "the server refused ********" in lines[0]
    assert "hunter2" not in lines[0]


class Hostile(type):
    """A class of exceptions without names."""

    def __getattribute__(cls, name: str) -> Any:
        if name in ("__module__", "__name__", "__qualname__"):
            raise RuntimeError(name)
        return type.__getattribute__(cls, name)


def test_an_exception_whose_class_raises_is_still_logged() -> None:
    error = Hostile("Broken", (ValueError,), {})("token=abcd1234")
    assert "unknown.unknown: token=********" in formatted("m", error)


def test_of_a_huge_text_a_note_or_a_long_chain_only_a_part_is_logged() -> None:
    error = ValueError("text = value; key: 5\n" * 500_000)
    error.add_note("note = value; key: 5\n" * 500_000)
    began = time.monotonic()
    shown = formatted("m", error)
    assert time.monotonic() - began < 2
    assert len(shown) < 200_000
    assert "[cut, 10500000 bytes]" in shown
    last: Exception | None = None
    for number in range(2000):
        error = ValueError(f"number {number}")
        error.__cause__, last = last, error
    shown = formatted("m", error)
    assert "number 0\n" in shown
    assert shown.rstrip().endswith("number 1999")
    assert "parts left out]" in shown
    assert len(shown.splitlines()) < 1000
