"""The log of runs: what tasks log is stored, bounded, masked, and never harms the task."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from typing import Any

import pytest

from jobqueue import task
from jobqueue.core.masking import MASK
from jobqueue.insight.log import LogEntry, log_entries, logging_runs
from jobqueue.logs import NO_JOB, JobFields, add_job_fields, job_fields
from jobqueue.models import Job, JobLog
from jobqueue.testing import run_until_idle
from jobqueue.worker.reporting import run_logs
from jobqueue.worker.reporting.reporter import Reporter
from jobqueue.worker.running.run import Run, Runs
from jobqueue.worker.running.run_log import MAX_BYTES, MAX_LINES, RunLog
from jobqueue.worker.running.run_records import MAX_LINE_BYTES
from tests.factories import JobFactory
from tests.rivals import Rival
from tests.worker.parts import run_of

pytestmark = pytest.mark.django_db
logger = logging.getLogger("tests.shop")
seen: list[Any] = []


@pytest.fixture(autouse=True)
def level(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Enable the records of the tests' logger, as a project does in LOGGING. No handler gets them, and they are stored anyway."""
    logger.setLevel(logging.DEBUG)
    monkeypatch.setattr(logger, "callHandlers", lambda record: None)
    seen.clear()
    yield
    logger.setLevel(logging.NOTSET)


@task
def speak(count: int = 1, password: str = "") -> None:
    for number in range(count):
        logger.info("line %d", number + 1)
    if password:
        logger.warning("The password is %s", password)


@task
def speak_at_all_levels() -> None:
    for named in (logging.DEBUG, logging.INFO, 25, logging.WARNING, logging.CRITICAL):
        logger.log(named, "at %d", named)


@task
async def speak_in_coroutine() -> None:
    logger.info("before")
    await asyncio.sleep(0)
    await asyncio.to_thread(logger.info, "in a thread")
    await asyncio.gather(whisper("first"), whisper("second"))


async def whisper(text: str) -> None:
    logger.info(text)


class Bad:
    """A value without a text."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __str__(self) -> str:
        raise self.error

    __repr__ = __str__


class Chatty:
    """A value that logs when it is shown."""

    def __str__(self) -> str:
        logger.info("shown: %s", self)
        return "chatty"


@task
def speak_badly() -> None:
    logger.info("bad %s", Bad(ValueError("no")))
    logger.info("worse %s", Bad(SystemExit()))
    logger.info("missing %s %s", 1)  # noqa: PLE1206
    logger.info("NUL \0 and half a pair \ud800")
    logger.info("x" * 10**6)
    logger.info("chatty %s", Chatty())
    logger.info("extra", extra={"job_id": 7, "task": 8, "queue": 9, "attempt": 1, "tenant": 2})
    logging.makeLogRecord({"msg": "made"})
    logger.log(10**9, "high")


@task
def speak_of_an_error(password: str) -> None:
    try:
        raise LookupError(f"cannot use {password}")
    except LookupError:
        logger.exception("It failed", stack_info=True)


@task
def speak_in_threads() -> None:
    threads = [
        threading.Thread(target=logger.info, args=("without a context",)),
        threading.Thread(target=contextvars.copy_context().run, args=(logger.info, "with a context")),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@task
def outlive() -> None:
    def late() -> None:
        seen[0].wait()
        logger.info("too late")
        seen.append(job_fields()["job_id"])

    seen.append(threading.Event())
    seen.append(threading.Thread(target=contextvars.copy_context().run, args=(late,)))
    seen[1].start()


@task
def tell_fields() -> None:
    record = logging.makeLogRecord({"msg": "x", "queue": "its own"})
    JobFields().filter(record)
    seen.append({name: getattr(record, name) for name in NO_JOB})
    seen.append(add_job_fields(None, "info", {"event": "x", "tenant": "its own"}))


def entries() -> list[LogEntry]:
    """Return the lines of all jobs."""
    return [entry for job in Job.objects.order_by("pk") for entry in log_entries(job)]


def texts() -> list[str]:
    return [entry.text for entry in entries()]


def test_what_a_task_logs_is_stored_with_its_run() -> None:
    job_id = int(speak.using(queue_name="mail").enqueue(2).job_id)
    run_until_idle()
    assert JobLog.objects.get().job_id == job_id
    rows = [(line.attempt, line.number, line.level, line.logger, line.text) for line in entries()]
    assert rows == [(1, 1, "INFO", "tests.shop", "line 1"), (1, 2, "INFO", "tests.shop", "line 2")]
    job = Job.objects.get()
    assert all(abs((line.at - job.finished_at).total_seconds()) < 2 for line in entries())


def test_what_a_coroutine_and_its_threads_log_is_stored() -> None:
    speak_in_coroutine.enqueue()
    run_until_idle()
    assert sorted(texts()) == ["before", "first", "in a thread", "second"]


@pytest.mark.parametrize(
    ("least", "levels"), [("info", ["INFO", "Level 25", "WARNING", "CRITICAL"]), ("warning", ["WARNING", "CRITICAL"]), ("none", [])]
)
def test_the_setting_chooses_the_levels(settings: Any, least: str, levels: list[str]) -> None:
    settings.JOBQUEUE = {"JOB_LOG": least}
    speak_at_all_levels.enqueue()
    run_until_idle()
    assert [line.level for line in entries()] == levels


def test_a_record_that_cannot_be_shown_harms_no_task() -> None:
    speak_badly.enqueue()
    run_until_idle()
    assert Job.objects.get().status == "SUCCESS"
    bad, worse, missing, nul, huge, chatty, extra, high = texts()
    assert bad == "'bad %s' (it could not be shown: builtins.ValueError)"
    assert worse == "'worse %s' (it could not be shown: builtins.SystemExit)"
    assert missing == "'missing %s %s' (it could not be shown: builtins.TypeError)"
    assert nul == "NUL � and half a pair �"
    assert len(huge.encode()) <= MAX_LINE_BYTES
    assert (chatty, extra, high) == ("chatty chatty", "extra", "high")
    assert JobLog.objects.get().level == 2**15 - 1


def test_secrets_are_masked() -> None:
    speak.enqueue(0, password="abcd-1234")
    speak_of_an_error.enqueue(password="abcd-1234")
    run_until_idle()
    text = "\n".join(texts())
    assert "abcd-1234" not in text
    assert f"The password is {MASK}" in text
    assert f"LookupError: cannot use {MASK}" in text


def test_an_exception_is_stored_with_its_traceback() -> None:
    speak_of_an_error.enqueue(password="")
    run_until_idle()
    [text] = texts()
    assert text.startswith("It failed\nTraceback (most recent call last):\n")
    assert "in speak_of_an_error" in text
    assert "Stack (most recent call last):" in text


def test_a_thread_has_the_job_of_the_context_that_it_was_given() -> None:
    speak_in_threads.enqueue()
    run_until_idle()
    assert texts() == ["with a context"]


def test_a_thread_that_outlives_the_run_stores_nothing_more() -> None:
    job_id = int(outlive.enqueue().job_id)
    run_until_idle()
    seen[0].set()
    seen[1].join()
    assert seen[2] == job_id
    assert not texts()
    assert job_fields() == NO_JOB


def test_the_log_of_a_storm_is_the_end_of_it() -> None:
    speak.enqueue(10_000)
    run_until_idle()
    assert texts() == [f"line {number}" for number in range(10_001 - MAX_LINES, 10_001)]
    assert entries()[0].number == 10_001 - MAX_LINES


def test_each_run_has_its_own_log() -> None:
    job_id = int(tests_fail.enqueue().job_id)
    run_until_idle(scheduled=True)
    assert [(line.attempt, line.number, line.text) for line in entries()] == [(1, 1, "run 1"), (2, 1, "run 2")]
    job = Job.objects.get(pk=job_id)
    assert logging_runs(job) == [1, 2]
    assert [line.text for line in log_entries(job, attempt=2)] == ["run 2"]


@task(takes_context=True, retry_on=[ValueError], max_attempts=2)
def tests_fail(context: Any) -> None:
    logger.info("run %d", context.attempt)
    raise ValueError("no")


def test_a_log_is_deleted_with_its_job() -> None:
    job = Job.objects.get(pk=int(speak.enqueue().job_id))
    run_until_idle()
    job.refresh_from_db()
    assert job.delete()
    assert not JobLog.objects.exists()


def test_the_fields_of_a_record_are_those_of_its_job_unless_it_has_its_own() -> None:
    job_id = int(tell_fields.using(queue_name="mail", tenant="acme").enqueue().job_id)
    run_until_idle()
    expected = {"job_id": job_id, "task": f"{__name__}.tell_fields", "queue": "mail", "attempt": 1, "tenant": "acme"}
    assert seen == [{**expected, "queue": "its own"}, {**expected, "event": "x", "tenant": "its own"}]


def test_outside_of_tasks_the_fields_are_none() -> None:
    record = logging.makeLogRecord({"msg": "x"})
    assert JobFields().filter(record)
    assert logging.Formatter("%(job_id)s %(message)s").format(record) == "None x"
    assert add_job_fields(None, "info", {"event": "x"}) == {"event": "x"}


# The ring


def test_the_oldest_lines_are_dropped_by_their_number_and_by_their_size() -> None:
    log = RunLog()
    for number in range(MAX_LINES + 5):
        log.add(20, "x", str(number))
    taken = log.take()
    assert (len(taken.lines), taken.first, taken.kept_from) == (MAX_LINES, 6, 0)  # nothing of them was taken before
    log.add(20, "x", "é" * (MAX_BYTES // 4 - 5))
    taken = log.take()
    assert (len(taken.lines), taken.first) == (1, MAX_LINES + 6)
    assert 6 < taken.kept_from <= MAX_LINES + 6
    assert not log.take().lines


def test_lines_that_are_put_back_are_taken_again() -> None:
    log = RunLog()
    log.add(20, "x", "a")
    taken = log.take()
    log.add(20, "x", "b")
    log.put_back(taken)
    assert [line[3] for line in log.take().lines] == ["a", "b"]


def test_threads_log_into_one_run() -> None:
    log = RunLog()
    threads = [threading.Thread(target=lambda: [log.add(20, "x", "y") for _ in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = log.take()
    assert (taken.first, len(taken.lines)) == (2001 - MAX_LINES, MAX_LINES)


# Writing while the task runs


def running() -> Run:
    job = JobFactory(running=True)
    run = run_of(lambda: None, number=job.pk, lease_token=1)
    run.log = RunLog()
    run.began = time.monotonic()
    return run


def test_the_lines_of_a_running_job_are_written_with_each_heartbeat() -> None:
    runs, run = Runs(), running()
    reporter = Reporter(runs, lambda *_: None, log_seconds=3600.0)
    runs.add([run])
    log: Any = run.log
    log.add(20, "x", "first")
    reporter.turn()
    assert not texts()
    log.taken_at -= 3600
    reporter.turn()
    log.add(20, "x", "second")
    reporter.turn()
    assert texts() == ["first"]


def test_the_rows_of_a_storm_stay_bounded_while_it_lasts() -> None:
    run = running()
    log: Any = run.log
    for number in range(5 * MAX_LINES):
        log.add(20, "x", str(number))
        if number % 70 == 0:
            run_logs.write([run])
            assert len(entries()) <= 2 * MAX_LINES
    run_logs.write([run])
    assert texts()[-MAX_LINES:] == [str(number) for number in range(4 * MAX_LINES, 5 * MAX_LINES)]


def test_lines_that_the_database_refuses_are_dropped_and_the_rest_goes_on(caplog: Any) -> None:
    run, other = running(), running()
    log: Any = run.log
    log.add(None, "x", "a")
    other.log.add(20, "x", "other")  # type: ignore[union-attr]
    run_logs.write([run, other])
    assert "What 1 runs have logged could not be stored, and is dropped" in caplog.text
    log.add(20, "x", "next")
    run_logs.write([run])
    assert texts() == ["next", "other"]


@pytest.mark.postgresql
@pytest.mark.session
def test_a_locked_table_delays_no_outcome(rival: Rival) -> None:
    speak.enqueue()
    with rival.transaction():
        rival.do(lambda: Job.objects.database.rows("LOCK TABLE jobqueue_joblog IN ACCESS EXCLUSIVE MODE"))
        began = time.monotonic()
        run_until_idle()
        assert time.monotonic() - began < 2.0
        assert Job.objects.get().status == "SUCCESS"
    assert not texts()
