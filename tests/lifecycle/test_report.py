"""The report on a job: attempts, waits, run time, outcome and errors, as JSON values without secrets."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobqueue import task
from jobqueue.core.masking import MASK
from jobqueue.db import Now
from jobqueue.insight.report import report
from jobqueue.insight.waits import in_words
from jobqueue.management.report_text import seconds
from jobqueue.models import Job
from jobqueue.testing import run_until_idle
from tests.factories import JobFactory, ahead
from tests.tasks import add, fail

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@task
def charge(customer: int, api_key: str, *rest: Any, **more: Any) -> None: ...


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def entry(attempt: int, begin: float, end: float, **more: Any) -> dict[str, Any]:
    times = {"started_at": after(begin).isoformat(), "finished_at": after(end).isoformat()}
    return {"attempt": attempt, "worker": "w", "outcome": "RETRY", "exception": "x.Y", "message": "no", "traceback": "T", **times, **more}


def told(job: Job, **options: Any) -> dict[str, Any]:
    found = report(Job.objects.annotate(now=Now()).get(pk=job.pk), **options)
    assert json.loads(json.dumps(found)) == found
    return found


def test_a_success_is_reported_with_its_times(transactional_db: None) -> None:
    made = add.using(target="t:1", priority=3).enqueue(2, b=3)
    run_until_idle()
    found = told(Job.objects.get(pk=made.job_id))
    assert (found["id"], found["task"], found["queue"], found["target"], found["priority"]) == (
        made.job_id,
        "tests.tasks.add",
        "default",
        "t:1",
        3,
    )
    assert (found["status"], found["waiting_for"], found["outcome"]) == ("SUCCESS", "", {"message": "", "result": 5})
    assert found["attempts"] == {"runs": 1, "failures": 0, "crashes": 0, "max_attempts": 1}
    assert found["arguments"] == {"args": [2], "kwargs": {"b": 3}}
    assert (found["runs"], found["progress"]) == ([], 100)
    begin, end = (datetime.fromisoformat(found["times"][name]) for name in ("started_at", "finished_at"))
    assert found["ran_seconds"] == found["ran_seconds_in_all"] == (end - begin) / timedelta(seconds=1)
    assert found["waited_seconds"] >= 0


def test_an_error_is_reported_with_what_was_raised(transactional_db: None) -> None:
    made = fail.enqueue("token=abc")
    run_until_idle()
    found = told(Job.objects.get(pk=made.job_id), tracebacks=True)
    (error,) = found["runs"]
    assert (error["attempt"], error["outcome"], error["exception"]) == (1, "ERROR", "builtins.ValueError")
    assert error["message"] == f"ValueError: token={MASK}" == found["outcome"]["message"]
    assert "Traceback" in error["traceback"]
    assert "abc" not in json.dumps(found)


def test_tracebacks_are_for_those_who_ask(db: None) -> None:
    job = JobFactory(error=True, history=[entry(1, 0, 1)])
    assert "traceback" not in told(job)["runs"][0]
    assert told(job, tracebacks=True)["runs"][0]["traceback"] == "T"


def test_all_runs_count_and_the_last_one_by_itself() -> None:
    history = [entry(1, 0, 10), entry(2, 20, 25)]
    waiting = JobFactory(waiting_for_retry=True, history=history, started_at=after(20))
    done = JobFactory(success=True, history=history, started_at=after(30), finished_at=after(33.5), enqueued_at=after(28))
    assert (told(waiting)["ran_seconds"], told(waiting)["ran_seconds_in_all"]) == (5.0, 15.0)
    assert (told(done)["ran_seconds"], told(done)["ran_seconds_in_all"], told(done)["waited_seconds"]) == (3.5, 18.5, 2.0)


def created(job: Job, seconds: float) -> Job:
    Job.objects.filter(pk=job.pk).update(created_at=after(seconds))
    return job


def waits(found: dict[str, Any]) -> list[tuple[int | None, float | None]]:
    return [(one["attempt"], one["waited_seconds"]) for one in found["waits"]]


def test_the_waits_of_all_attempts_are_reported_each_and_in_sum() -> None:
    history = [entry(1, 5, 10), entry(2, 20, 25)]
    times = {"history": history, "first_started_at": after(5), "started_at": after(32), "enqueued_at": after(30)}
    found = told(created(JobFactory(success=True, attempt=3, finished_at=after(33), **times), 1))
    assert waits(found) == [(1, 4.0), (2, 10.0), (3, 7.0)]
    assert (found["waited_seconds"], found["waited_seconds_in_all"]) == (2.0, 21.0)
    running = told(created(JobFactory(running=True, attempt=3, **times), 1))
    assert (waits(running), running["waited_seconds_in_all"]) == ([(1, 4.0), (2, 10.0), (3, 7.0)], 21.0)
    failed = told(created(JobFactory(error=True, attempt=2, **times), 1))
    assert (waits(failed), failed["waited_seconds_in_all"]) == ([(1, 4.0), (2, 10.0)], 14.0)


def test_an_attempt_that_has_not_begun_waits_until_now() -> None:
    [first] = told(created(JobFactory(queued=True), -100))["waits"]
    assert first["attempt"] == 1
    assert first["waited_seconds"] > 100
    job = JobFactory(waiting_for_retry=True, attempt=1, first_started_at=after(0), history=[entry(1, 0, 10)])
    found = told(created(job, -3))
    assert waits(found)[0] == (1, 3.0)
    assert waits(found)[1][0] == 2
    assert found["waited_seconds_in_all"] == found["waits"][1]["waited_seconds"] + 3
    assert waits(told(created(JobFactory(canceled=True, attempt=0), 0))) == []


def test_a_wait_that_the_history_has_lost_is_unknown() -> None:
    kept = [entry(1, 0, 1), *(entry(number, 10 * number, 10 * number + 1) for number in range(12, 41))]
    job = JobFactory(error=True, attempt=40, history=kept, first_started_at=after(0), started_at=after(400))
    found = told(created(job, -2))
    assert waits(found)[:3] == [(1, 2.0), (12, None), (13, 9.0)]
    assert found["waited_seconds_in_all"] == 2 + 28 * 9
    assert in_words(found["waits"], seconds).endswith(", 9.00 s before run 40 (at least 4 min 14 s in all)")


@pytest.mark.parametrize("bad", [[{}], [{"attempt": "x", "started_at": 5}], ["x"], {"a": 1}])
@pytest.mark.parametrize("state", ["success", "running", "queued", "error"])
def test_a_history_of_another_shape_leaves_waits_unknown(state: str, bad: Any) -> None:
    found = told(JobFactory(**{state: True}, history=bad))
    assert found["waited_seconds_in_all"] >= 0
    assert isinstance(in_words(found["waits"], seconds), str)


def test_later_requests_do_not_count_as_run_time() -> None:
    job = JobFactory(canceled=True, attempt=1, started_at=after(0), finished_at=after(172800), history=[entry(1, 0, 10, outcome="PAUSED")])
    assert (told(job)["ran_seconds"], told(job)["ran_seconds_in_all"]) == (10.0, 10.0)


def test_a_running_job_counts_until_now() -> None:
    found = told(JobFactory(running=True, started_at=ahead(seconds=-5), enqueued_at=ahead(seconds=-8), history=[entry(1, 0, 10)]))
    assert 5 <= found["ran_seconds"] < 15
    assert found["ran_seconds_in_all"] == pytest.approx(found["ran_seconds"] + 10)
    assert found["waited_seconds"] == pytest.approx(3, abs=0.5)


@pytest.mark.parametrize(("state", "waits"), [("queued", True), ("running", True), ("scheduled", False), ("canceled", False)])
def test_a_job_that_never_ran_waits_or_does_not(state: str, waits: bool) -> None:
    found = told(JobFactory(**{state: True}, enqueued_at=ahead(seconds=-4)))
    assert (found["waited_seconds"] is not None) == waits
    assert (found["ran_seconds"], found["ran_seconds_in_all"]) == (None, 0)


def test_secrets_are_hidden_as_in_the_admin() -> None:
    job = JobFactory(
        error=True,
        task=charge.module_path,
        args=[7, "s1", "password=s2"],
        kwargs={"db_password": "s3", "currency": "EUR"},
        result={"access_token": "s4", "n": 1},
        metadata={"nested": [{"secret": "s5"}]},
        message="login failed: password=s6",
        history=[entry(1, 0, 1, message="token=s7", traceback='connect(password="s8")')],
        unique_key="token=s9",
    )
    found = told(job, tracebacks=True)
    assert [number for number in range(1, 10) if f"s{number}" in json.dumps(found)] == []
    assert found["arguments"] == {"args": [7, MASK, f"password={MASK}"], "kwargs": {"db_password": MASK, "currency": "EUR"}}
    assert found["outcome"]["result"] == {"access_token": MASK, "n": 1}


@pytest.mark.parametrize(
    "value", [None, 7, "x", [7], {"a": 1}, [[1]], [{"attempt": "x", "started_at": 5, "finished_at": "soon", "message": {}}]]
)
def test_a_column_that_was_edited_by_hand_breaks_no_report(value: Any) -> None:
    job = JobFactory(error=True)
    for column in ("args", "kwargs", "metadata", "history"):
        setattr(job, column, value)
    found = report(job, tracebacks=True)
    assert isinstance(found["arguments"]["args"], list)
    assert isinstance(found["arguments"]["kwargs"], dict)
    assert isinstance(found["metadata"], dict)
    assert all(set(run) == {*entry(1, 0, 1), "abandoned", "release"} for run in found["runs"])


@pytest.mark.parametrize(
    "times", [("2026-01-02T12:00:00", "2026-01-02T12:00:09+00:00"), ("2026-01-02T12:00:09+00:00", "2026-01-02T12:00:00+00:00")]
)
def test_times_that_cannot_be_compared_are_no_run_time(times: tuple[str, str]) -> None:
    job = JobFactory(error=True, history=[entry(1, 0, 1, started_at=times[0], finished_at=times[1])])
    assert (told(job)["ran_seconds"], told(job)["ran_seconds_in_all"]) == (None, 0)


def test_a_stop_that_was_asked_for_shows() -> None:
    assert told(JobFactory(cancel_requested_=True))["cancel_requested"] == "CANCELED"
    assert told(JobFactory(running=True))["cancel_requested"] == ""


@pytest.mark.parametrize("target", ["", "customer:7"])
def test_a_run_that_failed_names_the_release_that_ran_it(transactional_db: None, settings: Any, target: str) -> None:
    settings.JOBQUEUE = {"RELEASE": "2026.11"}
    made = fail.using(target=target or None).enqueue()
    run_until_idle()
    job = Job.objects.get(pk=made.job_id)
    assert (job.history[0]["release"], job.report()["runs"][0]["release"]) == ("2026.11", "2026.11")
