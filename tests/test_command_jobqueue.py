"""``manage.py jobqueue``: what each subcommand does, says, and ends with."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, ProgrammingError

from jobqueue import clock
from jobqueue.core.masking import MASK
from jobqueue.duties.run_bulk_actions import RunBulkActions
from jobqueue.insight import health, queues
from jobqueue.lifecycle.queues import limit_queue, pause_queue
from jobqueue.management.commands.jobqueue import Command
from jobqueue.models import BackgroundJobLease, BulkAction, Job, Queue, Worker
from tests.command import run, told
from tests.factories import JobFactory, ScheduleFactory, WorkerFactory

pytestmark = pytest.mark.django_db


# Search


@pytest.mark.usefixtures("small_table")
def test_jobs_are_found_by_a_search() -> None:
    JobFactory(success=True)
    job = JobFactory(error=True, args=[7], queue="mail", message="ValueError: no\nsecond line")
    lines = run("jobs", "a=7", "status:ERROR")[0].splitlines()
    assert lines[0] == "Jobs"
    assert lines[2].split()[:2] == [str(job.pk), "ERROR"]
    assert re.search(r"mail +tests.tasks.add +7 +ValueError: no$", lines[2])
    answer, status = told("jobs", "--limit", "1")
    assert ([one["id"] for one in answer["jobs"]], answer["more"], answer["scope"], status) == ([job.pk], True, "", 0)
    assert run("jobs", "queue:none") == ("Jobs\n  none\n", 0)
    with pytest.raises(CommandError, match="'sort' is no field of a search"):
        run("jobs", "sort:x")
    with pytest.raises(CommandError, match="--limit is 'x'; it must be a whole number from 1 to 1000"):
        run("jobs", "--limit", "x")


# Bulk actions


@pytest.mark.usefixtures("small_table")
def test_all_jobs_of_a_search_are_changed_by_a_bulk_action() -> None:
    jobs = [JobFactory(error=True, queue="mail", message="OSError: timed out", task="tests.tasks.fail", args=[]) for _ in range(3)]
    JobFactory(paused=True, queue="mail")
    given = ("retry", "--queue", "mail", "--error", "timed out")
    lines = run(*given, "--dry-run")[0].splitlines()
    assert lines == ["3 jobs would be resumed.", "  status: ERROR 3", "  queue: mail 3", "  task: tests.tasks.fail 3"]
    assert not BulkAction.objects.exists()
    answer, status = told(*given)
    number = answer["action"]["id"]
    assert (answer["preview"]["number"], answer["action"]["query"], status) == (
        3,
        'error:"timed out" queue:mail status:ERROR',
        0,
    )
    while RunBulkActions().run_once(clock.now()).again:
        pass
    assert told("bulk", number)[0]["done"] == 3
    assert "done   resume  3 of 3" in run("bulk")[0]
    assert {Job.objects.get(pk=job.pk).status for job in jobs} == {"QUEUED"}
    assert run("bulk", number, "--stop")[1] == 1
    told("cancel-all", "status:QUEUED")
    assert run("bulk", number + 1, "--stop")[0].splitlines()[1].split()[1] == "stopping"
    for wrong, text in ((("retry",), "at least one condition"), (("bulk", "x"), "there is no such bulk action")):
        with pytest.raises(CommandError, match=text):
            run(*wrong)


def test_a_failed_bulk_action_is_a_problem() -> None:
    BulkAction.objects.create(verb="resume", query="7", upto_id=1, state="FAILED", message="No right.", finished_at=clock.now())
    [found] = [one for one in told("health")[0]["problems"] if one["code"] == "failed_bulk_actions"]
    assert found["text"].endswith("(resume) has failed after 0 jobs: No right.")


# Queues


def test_a_queue_is_paused_and_resumed() -> None:
    JobFactory(queue="mail", success=True)
    assert run("pause", "mail") == ("Queue 'mail' is paused: workers start none of its jobs, and running jobs continue.\n", 0)
    assert Queue.objects.get(pk="mail").paused
    assert run("pause", "mail")[0].endswith(" (no change).\n")
    answer = {"name": "mail", "changed": True, "paused": False, "max_running": None, "paused_until": None, "warning": ""}
    assert told("resume", "mail") == (answer, 0)
    assert run("resume", "unused") == ("Queue 'unused' is not paused (no change).\n", 0)


def test_a_pause_ends_at_the_time_that_was_said() -> None:
    JobFactory(queue="mail", success=True)
    line = "Queue 'mail' is paused until 2100-01-01T12:00:00+00:00: workers start none of its jobs, and running jobs continue.\n"
    assert run("pause", "mail", "--until", "2100-01-01T12:00:00Z") == (line, 0)
    answer = told("pause", "mail", "--until", "60")[0]
    until = Queue.objects.values_list("paused_until", flat=True).get(pk="mail")
    assert answer["paused_until"] == until.astimezone(UTC).isoformat()
    (state,) = [one for one in told("status")[0]["queues"] if one["name"] == "mail"]
    assert state["paused_until"] == answer["paused_until"]
    with pytest.raises(CommandError, match="until is 'soon'; it must be a time in the future, such as"):
        run("pause", "mail", "--until", "soon")


@pytest.mark.long
def test_a_mistyped_queue_is_warned_of_and_can_be_forgotten() -> None:
    lines = run("pause", "mial")[0].splitlines()
    assert lines[1].startswith("Warning: No task, setting, schedule, worker or recent job has a queue 'mial'.")
    assert run("forget", "mial") == ("Queue 'mial' was forgotten: its pause, limit and webhook were removed.\n", 0)
    assert not Queue.objects.exists()
    assert run("forget", "mial") == ("Queue 'mial' has no row to remove.\n", 0)
    JobFactory(queue="busy")
    pause_queue("busy")
    with pytest.raises(CommandError, match="has jobs that are QUEUED or RUNNING"):
        run("forget", "busy")
    for known in (WorkerFactory(queues=["served"]), ScheduleFactory(queue="scheduled")):
        assert "Warning" not in run("pause", "served" if isinstance(known, Worker) else "scheduled")[0]


@pytest.mark.parametrize("name", ["", "x" * 201, "a\0b"])
def test_a_name_that_no_queue_can_have_is_refused(name: str) -> None:
    with pytest.raises(CommandError, match=r"The name of the queue is .*; it must be text of 1 to 200 characters without NUL"):
        run("pause", name)


# Schedules


def test_the_schedules_are_listed_with_their_times_and_errors() -> None:
    assert run("schedules") == ("Schedules\n  none\n", 0)
    noon = datetime(2026, 6, 1, 12, tzinfo=UTC)
    ScheduleFactory(name="mail", interval_seconds=60, cron="", next_at=noon, enabled=False)
    ScheduleFactory(
        name="nightly", cron="0 3 * * *", time_zone="Europe/Berlin", next_at=noon, last_at=noon, last_job_id=7, last_error="no", args=["x"]
    )
    text, status = run("schedules")
    assert [" ".join(line.split()) for line in text.splitlines()[2:]] == [
        "mail tests.tasks.add every 60 s disabled - - - -",
        "nightly tests.tasks.add 0 3 * * * Europe/Berlin enabled 2026-06-01 12:00:00 2026-06-01 12:00:00 7 no",
    ]
    data, _ = told("schedules")
    assert (status, data[0]["next_at"], data[1]["next_at"]) == (0, None, "2026-06-01T12:00:00+00:00")
    assert {*data[1]} == {*["name", "source", "task", "when", "time_zone", "state", "next_at", "last_at", "last_job_id", "last_error"]}


# Jobs


@pytest.mark.long
def test_jobs_are_canceled_and_a_refused_one_is_reported() -> None:
    queued, running, ended = JobFactory(), JobFactory(running=True), JobFactory(success=True)
    assert run("cancel", queued.pk, running.pk) == (
        f"Job {queued.pk} was canceled: it is CANCELED.\nJob {running.pk} runs and was asked to stop, to be canceled.\n",
        0,
    )
    assert run("cancel", ended.pk) == (f"Job {ended.pk} was not canceled: a job in state SUCCESS cannot be canceled.\n", 1)
    data, status = told("cancel", ended.pk, queued.pk + 1000)
    assert (status, [one["verdict"] for one in data], data[1]["status"]) == (1, ["refused", "refused"], None)
    assert data[1]["reason"] == f"There is no job {queued.pk + 1000}."
    assert [Job.objects.get(pk=job.pk).status for job in (queued, running, ended)] == ["CANCELED", "RUNNING", "SUCCESS"]


def test_the_others_are_still_done_where_one_is_refused() -> None:
    ended, failed = JobFactory(success=True), JobFactory(error=True)
    text, status = run("resume-job", ended.pk, failed.pk)
    assert (status, text.splitlines()[1]) == (1, f"Job {failed.pk} was resumed: it is QUEUED.")
    assert told("resume-job", JobFactory(paused=True).pk)[1] == 0


@pytest.mark.parametrize("job_id", ["x", "0", "1.5", "9" * 30, "", "²"])
@pytest.mark.parametrize("verb", ["cancel", "resume-job"])
def test_an_invalid_job_number_is_refused_before_any_change(verb: str, job_id: str) -> None:
    job = JobFactory(paused=True)
    with pytest.raises(CommandError, match=r"JOB_ID is .*; it must be a whole number from 1 to 9223372036854775807"):
        run(verb, job.pk, job_id)
    assert Job.objects.get().status == "PAUSED"


# Status


@pytest.mark.long
def test_the_status_shows_queues_workers_and_jobs() -> None:
    one = WorkerFactory(host="web-1", pid=4121, running=2, queues=["mail"], stuck=1)
    WorkerFactory(host="gone", heartbeat_at=clock.now() - timedelta(minutes=1))
    pause_queue("reports")
    limit_queue("mail", 4)
    for trait in ("queued", "running", "scheduled", "waiting_for_target", "paused", "error", "canceled", "success"):
        JobFactory(queue="mail", **{trait: True})
    Job.objects.filter(status="RUNNING").update(lease_owner=str(one.pk))
    text, status = run("status")
    assert status == 0
    words = [line.split() for line in text.splitlines()]
    assert ["mail", "-", "4", "1", "1", "0", "s"] in words
    assert ["reports", "paused", "-", "0", "0", "-"] in words
    assert ["web-1:4121", "running", "mail", "1", "8", "1", "abandoned", "thread"] in words
    assert "gone:" not in text
    assert ["PENDING", "(its", "target)", "1"] in words
    data, _ = told("status")
    assert {count["state"]: count["number"] for count in data["jobs"] if count["number"]} == dict.fromkeys(
        ("PENDING (its time)", "PENDING (its target)", "QUEUED", "RUNNING", "PAUSED", "ERROR", "CANCELED", "SUCCESS"), 1
    )
    assert [queue["name"] for queue in data["queues"]] == ["reports", "mail"]
    assert [worker["queues"] for worker in data["workers"]] == [["mail"]]


def test_the_status_of_nothing_is_shown_too() -> None:
    text, status = run("status")
    assert (text.splitlines()[:5], status) == (["Queues", "  none", "", "Workers", "  none"], 0)


def test_counts_end_at_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "MAX_COUNTED", 3)
    monkeypatch.setattr(queues, "MAX_COUNTED", 3)
    JobFactory.create_batch(5)
    JobFactory.create_batch(5, error=True)
    text, _ = run("status")
    words = [" ".join(line.split()) for line in text.splitlines()]
    assert "QUEUED 3+" in words
    assert "ERROR 3+" in words
    assert "RUNNING 0" in words
    assert [line for line in words if line.startswith("default - - 3+ 0")]
    JobFactory.create_batch(2, success=True)
    assert "SUCCESS 2 of the newest 3 that ended" in [" ".join(line.split()) for line in run("status")[0].splitlines()]


# Report


def test_a_job_is_reported_with_its_errors_and_tracebacks_only_on_demand() -> None:
    noon = clock.now().replace(microsecond=0) - timedelta(hours=1)
    times = {"started_at": noon.isoformat(), "finished_at": (noon + timedelta(seconds=75)).isoformat()}
    first = {"attempt": 1, "worker": "w-1", "outcome": "RETRY", "exception": "builtins.OSError", "message": "OSError: no\nroute", **times}
    job = JobFactory(
        error=True,
        task="shop.tasks.send",
        queue="mail",
        target="customer:7",
        args=[7],
        kwargs={"password": "hunter2"},
        attempt=2,
        failures=2,
        max_attempts=2,
        message="OSError: no route",
        history=[{**first, "traceback": "Traceback: here"}, {**first, "attempt": 2, "outcome": "ERROR"}],
    )
    text, status = run("report", job.pk)
    assert status == 0
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines[0] == f"Job {job.pk}  shop.tasks.send"
    words = [" ".join(line.split()) for line in lines]
    assert {"state ERROR", "attempts 2 runs started; 2 of at most 2 failed", "message OSError: no route", "target customer:7"} <= {*words}
    assert "ran 1 min 15 s (2 min 30 s in all)" in words
    assert f'arguments 7, password="{MASK}"' in words
    assert words[words.index("Runs that did not succeed") + 1] == f"run 1: RETRY, from {times['started_at']} to {times['finished_at']}"
    assert "    OSError: no" in lines
    assert "    route" in lines
    assert "Traceback" not in text
    assert "      Traceback: here" in run("report", job.pk, "--tracebacks")[0].splitlines()
    data, _ = told("report", job.pk)
    assert (data["id"], data["attempts"]["failures"], data["why_waiting"], "traceback" in data["runs"][0]) == (job.pk, 2, None, False)
    assert told("report", job.pk, "--tracebacks")[0]["runs"][0]["traceback"] == "Traceback: here"


def test_a_job_that_waits_is_reported_with_the_reason() -> None:
    job = JobFactory(queued=True)
    text, _ = run("report", job.pk)
    assert "waits because" in text
    assert "attempts       none started" in text
    data, _ = told("report", job.pk)
    assert data["why_waiting"]["gate"] == "no_worker"


def test_the_texts_of_a_job_cannot_control_the_terminal_and_are_bounded() -> None:
    job = JobFactory(success=True, message=f"\x1b[2Jgone\x9b\r{'x' * 5000}", result={"a": "\x07"})
    text, _ = run("report", job.pk)
    assert not {"\x1b", "\x9b", "\r", "\x07"} & {*text}
    assert "characters more: --json" in text
    assert len(text) < 4000


@pytest.mark.parametrize("job_id", ["x", "0", "²"])
def test_a_report_on_what_is_no_job_is_refused(job_id: str) -> None:
    with pytest.raises(CommandError, match=r"JOB_ID is .*; it must be a whole number from 1 to 9223372036854775807"):
        run("report", job_id)
    with pytest.raises(CommandError, match=r"There is no job 12345\."):
        run("report", 12345)


# Health


@pytest.mark.long
def test_all_is_well_with_a_worker() -> None:
    worker = WorkerFactory(services={"finisher": {"age": 500.0, "busy": 0.0, "failures": 0}})
    JobFactory.create_batch(8, running=True, lease_owner=str(worker.pk))
    JobFactory(enqueued_at=clock.now() - timedelta(hours=1))
    assert run("health") == ("No problem was found.\n", 0)
    assert told("health") == ({"healthy": True, "problems": []}, 0)


@pytest.mark.long
def test_without_a_live_worker_it_is_not() -> None:
    WorkerFactory(heartbeat_at=clock.now() - timedelta(seconds=40))
    no_worker = "[error] no_worker: No worker is alive: none sent a heartbeat in the last 30 s. Start one: manage.py runworkers."
    text, status = run("health")
    assert (text.splitlines()[0], status) == (no_worker, 1)
    assert "[warning] silent_worker: Worker localhost:" in text
    data, status = told("health")
    assert (data["healthy"], [one["code"] for one in data["problems"]], status) == (False, ["no_worker", "silent_worker"], 1)


@pytest.mark.parametrize(
    ("service", "text"),
    [
        ({"age": 30.0, "busy": 25.0, "failures": 0}, "its dispatcher has not completed its current turn for 25 s"),
        ({"age": 30.0, "busy": 0.0, "failures": 7}, "its dispatcher has failed 7 times in a row, for 30 s"),
        ({"age": 3.0, "busy": 0.0, "failures": 7}, ""),
        ({"age": 30.0, "busy": 1.0, "failures": 0}, ""),
        ({"age": "long", "busy": None}, ""),
        (["odd"], ""),
    ],
)
def test_a_stuck_service_is_named_with_its_worker(service: Any, text: str) -> None:
    worker = WorkerFactory(host="web-1", pid=4121, services={"dispatcher": service})
    said, status = run("health")
    assert status == bool(text)
    assert not text or said.startswith(f"[error] stuck_service: Worker web-1:4121 ({worker.pk}): {text}. ")


@pytest.mark.long
def test_a_job_that_has_waited_for_too_long_is_a_problem_unless_its_queue_is_paused() -> None:
    JobFactory.create_batch(8, running=True, lease_owner=str(WorkerFactory().pk))
    ago = clock.now() - timedelta(seconds=100)
    JobFactory(enqueued_at=ago)
    for name in ("paused", "closed"):
        JobFactory(queue=name, enqueued_at=ago - timedelta(hours=1))
    pause_queue("paused")
    limit_queue("closed", 0)
    assert run("health", "--max-age", 600) == ("No problem was found.\n", 0)
    text, status = run("health", "--max-age", 60)
    assert (status, text.count("\n")) == (1, 1)
    assert text.startswith("[error] long_wait: Queue 'default': the oldest QUEUED job has waited for 1")
    assert "; the limit is 60 s. " in text


@pytest.mark.parametrize("age", ["soon", "-1", "nan", "inf", "1e99", ""])
def test_an_invalid_age_is_refused(age: str) -> None:
    with pytest.raises(CommandError, match=r"--max-age is .*; it must be a number of seconds from 0 to .*For example, 600 is ten minutes"):
        run("health", f"--max-age={age}")


@pytest.mark.parametrize("number", ["many", "-1", "1.5", "nan", "1e99"])
def test_an_invalid_number_is_refused(number: str) -> None:
    with pytest.raises(
        CommandError, match=r"--max-failed-jobs is .*; it must be a whole number from 0 to 1000000, or 'off'\. For example, 0"
    ):
        run("health", f"--max-failed-jobs={number}")


@pytest.mark.long
def test_warnings_alone_end_with_three_or_with_zero_on_demand() -> None:
    WorkerFactory()
    JobFactory(error=True)
    assert run("health")[1] == 3
    text, status = run("health", "--fail-on", "error")
    assert (text.startswith("[warning] failed_jobs: 1 job ended in ERROR in the last hour. "), status) == (True, 0)
    assert run("health", "--max-failed-jobs", "off") == ("No problem was found.\n", 0)
    assert run("health", "--max-failed-jobs", 1) == ("No problem was found.\n", 0)
    Worker.objects.all().delete()
    assert run("health", "--fail-on", "error")[1] == 1


# Trouble


@pytest.mark.parametrize("args", [[], ["fly"], ["pause"], ["cancel"]])
def test_a_command_line_that_says_nothing_is_refused(args: list[str]) -> None:
    with pytest.raises(CommandError):
        call_command("jobqueue", *args)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OperationalError("connection refused"), "Cannot reach the database: connection refused"),
        (ProgrammingError('relation "jobqueue_queue" does not exist'), "run 'manage.py migrate' first"),
    ],
)
def test_trouble_with_the_database_is_a_sentence(monkeypatch: pytest.MonkeyPatch, error: Exception, text: str) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(health, "status", fail)
    with pytest.raises(CommandError, match=text):
        run("status")


# Duties


def test_leaders_are_shown_with_what_they_did_and_what_is_wrong() -> None:
    now = clock.now()
    held = {"held_by_worker_id": "7c1e", "lease_acquired_at": now - timedelta(hours=1), "heartbeat_at": now}
    fine = {
        "process": "web-1:4711",
        "interval_seconds": 1.0,
        "last_run_at": now.isoformat(),
        "runs": 7,
        "items": 3,
        "last_duration_seconds": 0.25,
    }
    BackgroundJobLease.objects.create(job_name="free")
    BackgroundJobLease.objects.create(job_name="good", metadata=fine, **held)
    BackgroundJobLease.objects.create(job_name="stuck", metadata={"interval_seconds": 1.0}, **held)
    text, status = run("leaders")
    lines = text.splitlines()
    assert status == 0
    assert lines[0].split() == ["duty", "led", "by", "led", "for", "last", "run", "took", "items", "runs", "errors", "problem"]
    assert lines[1].split()[:3] == ["free", "nobody", "-"]
    assert "web-1:4711" in lines[2]
    assert "0.250 s" in lines[2]
    assert "its leader is alive, but has completed no run for 3600 s" in lines[3]
    data, _ = told("leaders")
    assert [(one["name"], one["worker_id"], one["runs"], bool(one["problem"])) for one in data] == [
        ("free", "", 0, False),
        ("good", "7c1e", 7, False),
        ("stuck", "7c1e", 0, True),
    ]
    assert any("Duty 'stuck': its leader is alive" in problem["text"] for problem in told("health")[0]["problems"])


def test_without_a_worker_there_are_no_leaders() -> None:
    assert run("leaders") == ("  none\n", 0)


# A terminal


def test_names_do_nothing_to_a_terminal() -> None:
    JobFactory(queue="a\x1b[31mb\nc\u202e")
    pause_queue("ma\til")
    text, _ = run("status")
    assert "  a\\x1b[31mb\\nc\\u202e  -       -        1       0        " in text
    assert f"  {chr(92).join(['ma', 'til']).ljust(19)}  paused" in text
    assert all(line.isprintable() for line in text.splitlines())
    Job.objects.update(created_at=clock.now() - timedelta(days=1))
    assert all(line.isprintable() for line in run("health", "--max-age", 1)[0].splitlines())
    assert told("status")[0]["queues"][1]["name"] == "a\x1b[31mb\nc\u202e"


@pytest.mark.parametrize("words", [(), ("stat",), ("pause",), ("cancel",), ("status", "--jsn")])
def test_missing_or_unknown_arguments_exit_with_two_and_the_usage(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        Command().run_from_argv(["manage.py", "jobqueue", *words])
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith("usage: manage.py jobqueue")


def test_a_wrong_value_ends_with_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        Command().run_from_argv(["manage.py", "jobqueue", "cancel", "x"])
    assert end.value.code == 1
    assert "JOB_ID is 'x'; it must be a whole number from 1 to 9223372036854775807, the job's number, or" in capsys.readouterr().err
