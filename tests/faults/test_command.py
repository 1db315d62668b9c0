"""The output and the end of `runworkers`."""

from __future__ import annotations

import re
import signal
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection

from jobqueue import pause
from jobqueue.lifecycle.queues import limit_queue, pause_queue
from jobqueue.models import Job
from tests.faults import tasks
from tests.faults.harness import Workers, database_entry, job_id, row, state, wait_until
from tests.faults.together import at_once

pytestmark = [pytest.mark.faults, pytest.mark.django_db]


@at_once
def test_once_exits_with_0_if_only_jobs_are_left_for_which_it_does_not_wait(workers: Workers) -> None:
    ended = [
        workers.enqueue(tasks.work, 0.1),
        workers.enqueue(tasks.awork, 0.1),
        workers.enqueue(tasks.fail_once),
        workers.enqueue(tasks.fatal),
    ]
    other_queue = tasks.work.using(queue_name="other").enqueue()
    later = workers.enqueue(tasks.work, run_after=timedelta(hours=1))
    paused = workers.enqueue(tasks.work)
    pause(job_id(paused))
    plain = workers.start("--once")
    assert plain.wait() == 0
    assert [state(job) for job in ended] == ["SUCCESS", "SUCCESS", "SUCCESS", "ERROR"]
    assert row(ended[2]).attempt == 2, "a retry is waited for"
    assert [state(job) for job in (other_queue, later, paused)] == ["QUEUED", "PENDING", "PAUSED"]
    assert re.search(r"Job \d+ tests.faults.tasks.work SUCCESS in 0.1\d\d s", plain.text)
    assert "Job 4" not in plain.text or "ERROR Job" in plain.text


@at_once
def test_fail_on_error_ends_with_1_only_when_a_job_of_this_run_ended_in_error(workers: Workers) -> None:
    tasks.fatal.using(queue_name="bad").enqueue()
    tasks.work.using(queue_name="good").enqueue()
    Job.objects.create(task="tests.faults.tasks.work", queue="good", status="ERROR", message="of yesterday")
    bad = workers.start("--once", "--fail-on-error", "--queues", "bad")
    good = workers.start("--once", "--fail-on-error", "--queues", "good")
    unknown = workers.start("--once", "--fail-on-error", "--queues", "empty")
    assert (bad.wait(), good.wait(), unknown.wait()) == (1, 0, 0)


def test_once_waits_for_no_queue_that_is_paused_or_limited_to_none(workers: Workers) -> None:
    left = [tasks.work.using(queue_name=name).enqueue() for name in ("paused", "none")]
    taken = tasks.work.using(queue_name="open").enqueue(0.1)
    pause_queue("paused")
    limit_queue("none", 0)
    assert workers.start("--once", "--queues", "paused,none,open").wait() == 0
    assert [state(job) for job in (*left, taken)] == ["QUEUED", "QUEUED", "SUCCESS"]
    assert workers.start("--once", "--queues", "open,paused", MAX_RUNNING=0).wait() == 0


def test_the_startup_lines_show_the_settings_of_the_worker(workers: Workers) -> None:
    wide = workers.start("--queues", "mail,reports", "--min-workers", "1", "--max-workers", "3", "--lease-seconds", "20").ready()
    narrow = workers.start("--max-workers", "1", "--heartbeat-seconds", "0.5", "--shutdown-grace-period-seconds", "7").ready()
    text = wide.text
    assert re.search(rf"jobqueue worker [0-9a-f-]{{36}} \(pid {wide.pid} on \S+\)", text)
    assert re.search(r"queues +mail, reports\n", text)
    assert re.search(r"slots +1 to 3\n", text)
    assert re.search(rf"database +{connection.vendor} .*{connection.settings_dict['NAME']}", text)
    assert re.search(r"lease +20 s, renewed every 1 s\n", text)
    assert re.search(r"queues +all\n", narrow.text)
    assert re.search(r"slots +1\n", narrow.text)
    assert "running jobs get 7 s" in narrow.text
    assert (wide.stop(), narrow.stop()) == (0, 0)


@at_once
def test_verbosity_0_is_silent_but_for_what_is_wrong(workers: Workers) -> None:
    good = tasks.work.using(queue_name="quiet").enqueue()
    tasks.fatal.using(queue_name="loud").enqueue()
    quiet = workers.start("--once", "-v", "0", "--queues", "quiet")
    loud = workers.start("--once", "-v", "0", "--queues", "loud")
    assert (quiet.wait(), loud.wait()) == (0, 0)
    assert quiet.text == ""
    assert "token limit exceeded" in loud.text
    assert state(good) == "SUCCESS"


WRONG = {
    "--lease-seconds=0": "LEASE_SECONDS is 0.0",
    "--heartbeat-seconds=2": "HEARTBEAT_SECONDS is 2.0, and LEASE_SECONDS is 3",
    "--min-workers=5 --max-workers=2": "MIN_WORKERS is 5, which is above MAX_WORKERS (2)",
    "--max-workers=0": "MAX_WORKERS is 0",
    "--poll-seconds=nan": "POLL_SECONDS is nan",
    "--lease-second=x": "lease-second",
    "--fail-on-error": "--fail-on-error needs --once",
}


@at_once
def test_wrong_options_end_the_command_with_one_clear_line(workers: Workers) -> None:
    started = {options: workers.start(*options.split()) for options in WRONG}
    for options, worker in started.items():
        assert worker.wait() not in (0, None), options
        assert WRONG[options] in worker.text, options
        assert "Traceback" not in worker.text_without_failures, options


def test_before_the_first_migrate_one_line_says_what_to_do(workers: Workers, tmp_path: Path) -> None:
    entry = database_entry()
    if connection.vendor == "postgresql":
        empty = f"{entry['NAME']}_empty"
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {empty}")
            cursor.execute(f"CREATE DATABASE {empty}")
        entry["NAME"] = empty
    else:
        entry["NAME"] = str(tmp_path / "empty.sqlite3")
        sqlite3.connect(entry["NAME"]).close()
    try:
        worker = workers.start(database=entry)
        assert worker.wait() == 1
        assert worker.text.strip().splitlines() == [
            "CommandError: The tables of jobqueue are missing or out of date: run 'manage.py migrate' first."
        ]
        checks = [workers.start(database=entry, command="check"), workers.start("--check", database=entry, command="makemigrations")]
        assert [check.wait() for check in checks] == [0, 0]
    finally:
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(f"DROP DATABASE {empty} WITH (FORCE)")


@pytest.mark.postgresql
def test_a_database_that_is_not_there_is_reported_as_it_is(workers: Workers) -> None:
    worker = workers.start(database={**database_entry(), "NAME": "nowhere_at_all"})
    wait_until(lambda: 'database "nowhere_at_all" does not exist' in worker.text, "the server's own sentence is there")
    assert "migrate" not in worker.text
    worker.stop()


@pytest.mark.postgresql
def test_a_user_who_may_not_read_the_tables_gets_one_line_of_error(workers: Workers) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DROP ROLE IF EXISTS stranger")
        cursor.execute("CREATE ROLE stranger LOGIN")
    try:
        worker = workers.start(database={**database_entry(), "USER": "stranger"})
        assert worker.wait() == 1
        assert worker.text.startswith("CommandError: The tables of jobqueue cannot be read: permission denied for table jobqueue_job")
        assert "Traceback" not in worker.text_without_failures
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP ROLE stranger")


def test_a_column_that_is_missing_is_reported_like_a_missing_table(workers: Workers) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE jobqueue_job RENAME COLUMN message TO message_of_old")
    try:
        worker = workers.start()
        assert worker.wait() == 1
        assert "run 'manage.py migrate' first" in worker.text
        assert "Traceback" not in worker.text_without_failures
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE jobqueue_job RENAME COLUMN message_of_old TO message")


def test_nothing_but_runworkers_starts_threads_or_workers(workers: Workers) -> None:
    from jobqueue.models import Worker

    code = "import threading, jobqueue, jobqueue.models, jobqueue.backends; print(threading.active_count())"
    shell = workers.start("-c", code, command="shell")
    assert shell.wait() == 0
    assert shell.text.split()[-1] == "1"
    assert not Worker.objects.exists()


@at_once
def test_all_kinds_of_work_raise_no_warning_in_the_strictest_mode(workers: Workers) -> None:
    jobs = [
        workers.enqueue(tasks.work, 0.3),
        workers.enqueue(tasks.awork, 0.3),
        workers.enqueue(tasks.fail_once),
        workers.enqueue(tasks.count_rows),
        workers.enqueue(tasks.write, "w"),
    ]
    jobs += [workers.enqueue(tasks.throw, "exit"), workers.enqueue(tasks.fatal), workers.enqueue(tasks.leave_tasks_pending)]
    warned = workers.enqueue(tasks.warn)
    canceled = workers.enqueue(tasks.wait, 60)
    worker = workers.start(
        python=("-W", "error", "-X", "dev"), environment={"PYTHONASYNCIODEBUG": "1"}, MIN_WORKERS=1, MAX_WORKERS=4, SCALE_SECONDS=0.2
    ).ready()
    wait_until(lambda: workers.witness.count("start", job_id(canceled)) == 1, "the job to cancel runs")
    pause(job_id(canceled))
    wait_until(lambda: not workers.jobs.filter(status__in=["QUEUED", "PENDING", "RUNNING"]).exists(), "all are settled")
    assert worker.stop() == 0
    assert state(warned) == "ERROR"
    assert "UserWarning: x" in row(warned).message
    said = worker.text_without_failures
    assert "Warning" not in said, said
    assert "Traceback" not in said, said


STREAMS = {"closed": 'exec "$@" >&-', "all closed": 'exec "$@" <&- >&- 2>&-', "without a reader": 'exec "$@" > >(true)'}


@at_once
def test_a_worker_runs_although_its_output_has_no_reader(workers: Workers) -> None:
    jobs = {how: tasks.work.using(queue_name=how.replace(" ", "-")).enqueue(0.1) for how in STREAMS}
    for how, job in jobs.items():
        worker = workers.start("--once", "--queues", how.replace(" ", "-"), prefix=["bash", "-c", STREAMS[how], "bash"])
        assert worker.wait(60) == 0, worker.text
        assert state(job) == "SUCCESS"
        assert "Error" not in worker.text


@at_once
def test_a_hang_up_ends_a_worker_in_order_unless_it_is_ignored(workers: Workers) -> None:
    for prefix in (["bash", "-c", """trap "" HUP; exec "$@" """, "bash"], []):
        job = workers.enqueue(tasks.work, 2)
        worker = workers.start(prefix=prefix).ready()
        wait_until(lambda job=job: state(job) == "RUNNING", "the job runs")  # type: ignore[misc]
        worker.send(signal.SIGHUP)
        if prefix:
            wait_until(lambda job=job: state(job) == "SUCCESS", "the job ends")  # type: ignore[misc]
            assert "Stopping" not in worker.text
            worker.terminate()
        assert worker.wait() == 0
        assert (state(job), row(job).attempt) == ("SUCCESS", 1)


def test_patterns_serve_a_line_that_spans_queues_in_order_and_leave_what_they_exclude(workers: Workers) -> None:
    line = [tasks.work.using(queue_name=name, target="customer:7").enqueue() for name in ("mail-a", "mail-b", "mail-bulk", "mail-a")]
    other, new = tasks.work.using(queue_name="sms").enqueue(), tasks.work.using(queue_name="mail-new").enqueue()
    most = workers.start("--once", "--queues", "mail-*,!mail-bulk")
    assert most.wait() == 0
    assert re.search(r"queues +mail-\*, !mail-bulk\n", most.text)
    assert [state(job) for job in (*line[:3], other, new)] == ["SUCCESS", "SUCCESS", "QUEUED", "QUEUED", "SUCCESS"]
    assert state(line[3]) != "SUCCESS"
    assert workers.start("--once", "--queues", "!sms").wait() == 0
    assert [state(job) for job in (*line, other)] == ["SUCCESS"] * 4 + ["QUEUED"]
    ended = [row(job).finished_at for job in line]
    assert ended == sorted(ended)
