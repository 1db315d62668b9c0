"""The format of the log records of `runworkers`."""

from __future__ import annotations

import logging
import re
import sys

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
