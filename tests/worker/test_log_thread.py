"""The log goes through a queue: a blocked output stops no thread, and the records are the same as without the queue."""

from __future__ import annotations

import contextvars
import io
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from jobqueue.models import Job
from jobqueue.worker.process import log_thread
from jobqueue.worker.process.log_thread import LogThread, Queued
from tests.factories import JobFactory
from tests.worker.whole import until

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")


class Keeping(logging.Handler):
    """A handler that keeps records, and can be blocked."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.threads: list[int] = []
        self.variables: list[str] = []
        self.go = threading.Event()
        self.go.set()

    def emit(self, record: logging.LogRecord) -> None:
        self.go.wait(10)
        self.records.append(record)
        self.threads.append(threading.get_ident())
        self.variables.append(variable.get())

    @property
    def texts(self) -> list[str]:
        return [record.getMessage() for record in self.records]


@pytest.fixture
def handler() -> Iterator[Keeping]:
    made = Keeping()
    log = logging.getLogger("jobqueue")
    log.addHandler(made)
    yield made
    made.go.set()
    log.removeHandler(made)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_thread, "MAX_RECORDS", 10)
    monkeypatch.setattr(log_thread, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(log_thread, "END_SECONDS", 0.2)


logger = logging.getLogger("jobqueue")


def test_a_record_is_written_by_the_thread_with_its_exception_and_in_the_context_of_the_caller(handler: Keeping) -> None:
    variable.set("mine")
    with LogThread():
        try:
            raise ValueError("no")
        except ValueError:
            logger.exception("Job %s failed", 7)
    (record,) = handler.records
    assert record.exc_info
    assert str(record.exc_info[1]) == "no"
    assert (record.msg, record.args, handler.variables) == ("Job %s failed", (7,), ["mine"])
    assert handler.threads != [threading.get_ident()]
    variable.set("none")


def test_arguments_are_written_as_they_were_when_they_were_logged(handler: Keeping) -> None:
    values: list[Any] = [1]
    named = {"one": [1]}
    handler.go.clear()
    with LogThread():
        logger.error("%s %r %d", values, values, 3)
        logger.error("%(one)s", named)
        values.append(2)
        named["one"].append(2)
        handler.go.set()
    assert handler.texts == ["[1] [1] 3", "[1]"]


def test_an_argument_without_a_text_is_reported_as_logging_does(capsys: pytest.CaptureFixture[str]) -> None:
    class Bad:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    plain = logging.StreamHandler(io.StringIO())
    logger.addHandler(plain)
    try:
        with LogThread():
            logger.error("%s", Bad())
            logger.error("behind it")
    finally:
        logger.removeHandler(plain)
    assert plain.stream.getvalue() == "behind it\n"
    assert "RuntimeError: no text" in capsys.readouterr().err


def test_filters_and_levels_of_the_handler_count_and_filters_run_where_it_is_logged(handler: Keeping) -> None:
    seen: list[int] = []
    handler.addFilter(lambda record: seen.append(threading.get_ident()) or "out" not in record.getMessage())
    handler.setLevel(logging.WARNING)
    with LogThread():
        logger.warning("in")
        logger.warning("out")
        logger.info("below")
    assert handler.texts == ["in"]
    assert seen == [threading.get_ident()] * 2


@pytest.mark.long
@pytest.mark.usefixtures("few")
def test_a_blocked_output_stops_no_thread_and_the_dropped_records_are_counted(handler: Keeping) -> None:
    handler.go.clear()
    began = time.monotonic()
    with LogThread():
        for number in range(500):
            logger.error("%d", number)
        assert time.monotonic() - began < 3
        handler.go.set()
        for _ in range(500):
            if "dropped" in str(handler.texts[-1:]):
                break
            time.sleep(0.01)
        logger.error("afterwards")
    numbers = [text for text in handler.texts if text.isdigit()]
    assert numbers == [str(number) for number in range(len(numbers))], "the first ones, in order"
    reports = [text for text in handler.texts if "dropped" in text]
    # pytest has handlers of its own, whose records count, too, and whose slowness may give more reports.
    assert sum(int(text.split()[0]) for text in reports) >= 500 - len(numbers)
    assert all(text.endswith(" log records were dropped, because the log output is blocked or too slow.") for text in reports)
    assert "afterwards" in handler.texts


@pytest.mark.long
@pytest.mark.usefixtures("few")
def test_an_output_that_is_only_slow_loses_nothing(handler: Keeping, monkeypatch: pytest.MonkeyPatch) -> None:
    # All waits together take longer than the patience; those for half of a queue take a thirtieth of it.
    monkeypatch.setattr(log_thread, "PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(log_thread, "END_SECONDS", 10.0)

    def slowly(record: logging.LogRecord) -> bool:
        time.sleep(0.006)
        return True

    target = logging.StreamHandler(io.StringIO())
    logger.addHandler(target)
    emit = target.emit
    target.emit = lambda record: (slowly(record), emit(record))[1]  # type: ignore[method-assign]
    try:
        with LogThread():
            for number in range(200):
                logger.error("%d", number)
    finally:
        logger.removeHandler(target)
    assert target.stream.getvalue().split() == [str(number) for number in range(200)]


@pytest.mark.usefixtures("few")
def test_the_end_waits_for_a_blocked_output_for_a_moment_only(handler: Keeping) -> None:
    handler.go.clear()
    began = time.monotonic()
    with LogThread() as log:
        logger.error("x")
    assert time.monotonic() - began < 2
    assert not log.is_written
    assert any(isinstance(one, Queued) for one in logger.handlers), "nothing else may block on the handler"
    logger.handlers[:] = [one.target if isinstance(one, Queued) else one for one in logger.handlers]
    for place in log_thread._loggers():
        place.handlers[:] = [one.target if isinstance(one, Queued) else one for one in place.handlers]
    logging.lastResort = getattr(logging.lastResort, "target", logging.lastResort)


def test_a_handler_that_logs_by_itself_continues(handler: Keeping) -> None:
    other = logging.getLogger("other")

    class Chatting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logger.info("said %s", record.getMessage())

    chatting = Chatting()
    other.addHandler(chatting)
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        with LogThread():
            other.error("x")
    finally:
        other.removeHandler(chatting)
        logger.setLevel(level)
    assert handler.texts == ["said x"]


@pytest.mark.django_db(transaction=True)
def test_a_handler_that_leaves_a_transaction_open_keeps_no_lock(handler: Keeping) -> None:
    states = []

    class LeavesOpen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            states.append(connection.in_atomic_block)
            transaction.atomic().__enter__()
            JobFactory()

    log = logging.getLogger("jobqueue")
    log.addHandler(leaves_open := LeavesOpen())
    try:
        with LogThread():
            for _ in range(3):
                log.warning("once more")
            until(lambda: len(states) >= 3)
            JobFactory()  # on SQLite, one open transaction would keep this one out
    finally:
        log.removeHandler(leaves_open)
    assert not any(states)
    assert Job.objects.count() == 1, "what they wrote is rolled back"
    assert [text for text in handler.texts if "left a transaction open" in text] == [
        "A log handler left a transaction open on default; what it wrote there is rolled back."
    ]


def test_everything_is_as_before_at_the_end(handler: Keeping) -> None:
    before = list(logger.handlers), list(logging.getLogger().handlers), logging.lastResort
    with LogThread():
        assert handler not in logger.handlers
    assert (list(logger.handlers), list(logging.getLogger().handlers), logging.lastResort) == before
