"""One bad row never stops the rest: the row is set aside with the reason, and the other rows are moved in the same turn."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from jobqueue.core import repeats
from jobqueue.db import Lease, LeaseHolder, Scope
from jobqueue.db.aside import PREFIX
from jobqueue.duties.promote_due_jobs import PromoteDueJobs
from jobqueue.insight.problems import problems
from jobqueue.lifecycle.claim import claim
from jobqueue.lifecycle.expire import JobRecovery, expire_owner, expire_stale_running_jobs
from jobqueue.lifecycle.finish import finish, finish_with_work
from jobqueue.lifecycle.outcome import Failure, HandOver, Kind, Outcome
from jobqueue.lifecycle.promote import Promotion
from jobqueue.lifecycle.refusals import REFUSED
from jobqueue.lifecycle.release import release_parked_targets
from jobqueue.models import Job, JobEvent
from jobqueue.testing import run_until_idle
from tests.duties.asking import seconds_to_work
from tests.factories import JobFactory, WorkerFactory
from tests.unchecked import refusing_changes, unchecked, write

pytestmark = pytest.mark.django_db
DIGITS = "9" * 5000
DEEP = "[" * 3000 + "]" * 3000

# What raw SQL has written into a row of a job that runs.
BAD: dict[str, dict[str, str]] = {
    "failures at the end of its type": {"failures": "2147483647"},
    "crashes at the end of its type": {"crashes": "2147483647"},
    "attempt at the end of its type": {"attempt": "2147483647"},
    "attempt at the beginning of its type": {"attempt": "-2147483648"},
    "a flag that does not exist": {"cancel_requested": "TRUE", "cancel_outcome": "'JUNK'"},
    "an unknown task since a number of 5,000 digits": {"options": f"""'{{"unknown_since": {DIGITS}}}'"""},
    "an unknown task since junk": {"options": """'{"unknown_since": "9999-12-31T23:59:59"}'"""},
    "a history of 5,000 digits": {"history": f"'[{DIGITS}]'"},
    "a history that is too deep": {"history": f"'{DEEP}'"},
    "a history of numbers": {"history": "'[1, 2]'"},
    "workers that are too deep": {"worker_ids": f"'{DEEP}'"},
    "metadata of 5,000 digits": {"metadata": f"'[{DIGITS}]'"},
    "options that are too deep": {"options": f"'{DEEP}'"},
    "arguments that are too deep": {"args": f"'{DEEP}'"},
    "a start beyond the calendar": {"started_at": "'infinity'"},
    "a first start before the calendar": {"first_started_at": "'-infinity'"},
    "a time beyond the calendar": {"run_at": "'infinity'"},
    "a progress beyond its range": {"progress": "32767"},
    "a recovery that does not exist": {"recovery": "'junk'"},
}


if connection.vendor == "sqlite":
    BAD |= {
        f"a {name} of {value}": {name: value}
        for name in ("attempt", "failures", "crashes", "max_attempts", "progress", "priority")
        for value in ("9223372036854775807", "1.5", "x'00'", "'x'")
    }
    BAD |= {f"a {name} that is a blob": {name: "x'00'"} for name in ("cancel_outcome", "recovery", "phase", "message", "backend")}
# A run whose token has changed has lost its lease.
TOKENS = {
    f"a lease_token of {value}": {"lease_token": value}
    for value in ("9223372036854775807", *(("1.5", "x'00'", "'x'") if connection.vendor == "sqlite" else ()))
}


def spoil(job: Job, name: str) -> Job:
    with unchecked():
        for column, value in (BAD | TOKENS)[name].items():
            write(Job, job.pk, column, value)
    return job


def states_of(jobs: list[Job]) -> set[str]:
    return set(Job.objects.filter(pk__in=[job.pk for job in jobs]).values_list("status", flat=True))


def ends(jobs: list[Job], kind: Kind) -> list[Outcome]:
    now = time.monotonic()
    failure = None if kind in (Kind.SUCCESS, Kind.HANDED_BACK, Kind.INTERRUPTED) else Failure("builtins.ValueError", "ValueError: no", "")
    return [
        Outcome(Lease(job.pk, 1), kind, now - 1, now, failure=failure, target=job.tenant_target if job.target else None) for job in jobs
    ]


ENDS = ("job.completed", "job.failed")
EXPECTED = {Kind.SUCCESS: "SUCCESS", Kind.ERROR: "ERROR", Kind.RETRY: "PENDING", Kind.HANDED_BACK: "QUEUED", Kind.UNKNOWN_TASK: "PENDING"}


@pytest.mark.parametrize("kind", EXPECTED)
@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_does_not_keep_the_ends_of_other_runs_from_being_written(name: str, kind: Kind) -> None:
    good = [*JobFactory.create_batch(3, running=True), JobFactory(running=True, target="customer:7")]
    bad = [spoil(JobFactory(running=True), name), spoil(JobFactory(running=True, target="customer:8"), name)]
    settled = finish(ends([*good, *bad], kind))
    assert {one.outcome.lease.job_id for one in settled} == {job.pk for job in [*good, *bad]}
    assert states_of(good) == {EXPECTED[kind]}
    assert "RUNNING" not in states_of(bad)
    for job in Job.objects.filter(pk__in=[job.pk for job in bad], status="ERROR").exclude(message="ValueError: no"):
        assert job.message.startswith(PREFIX) or (job.message == REFUSED and job.history[-1]["message"].startswith(REFUSED))
        assert JobEvent.objects.filter(job=job, name="job.failed").exists()


@pytest.mark.parametrize("kind", [Kind.SUCCESS, Kind.ERROR])
def test_the_good_outcomes_of_a_refused_batch_are_written_before_the_bad_one_is_mended(kind: Kind) -> None:
    """The good outcomes must not wait for the several statements of a refused one; the events show the order."""
    bad, good = JobFactory(running=True), JobFactory.create_batch(3, running=True)
    with refusing_changes(f"old.id = {bad.pk} AND new.message <> '{REFUSED}'"):
        settled = finish(ends([bad, *good], kind))
    order = [job.pk for job in (*good, bad)]
    assert [one.outcome.lease.job_id for one in settled] == order
    assert list(JobEvent.objects.filter(name__in=ENDS).order_by("pk").values_list("job_id", flat=True)) == order


@pytest.mark.parametrize("name", BAD | TOKENS)
def test_a_bad_row_does_not_keep_other_jobs_from_being_recovered(name: str) -> None:
    good = JobFactory.create_batch(3, expired=True)
    bad = [spoil(JobFactory(expired=True), name), spoil(JobFactory(expired=True, target="customer:8"), name)]
    lost, batch = JobRecovery().run()
    assert {one.job_id for one in lost} == {job.pk for job in [*good, *bad]}
    assert (batch.set_aside, states_of(good)) == (0, {"QUEUED"})
    for job in Job.objects.filter(pk__in=[job.pk for job in bad]):
        assert job.status in ("QUEUED", "PENDING") or (job.status == "ERROR" and job.message)
        assert job.lease_owner == ""


@pytest.mark.parametrize(("column", "most"), [("attempt", 2**31 - 1), ("lease_token", 2**63 - 1)])
@pytest.mark.django_db(transaction=True)
def test_a_row_that_cannot_be_claimed_is_set_aside(column: str, most: int) -> None:
    bad, good = JobFactory(), JobFactory()
    write(Job, bad.pk, column, str(most))
    write(Job, bad.pk, "history", f"'[{DIGITS}]'")
    taken = claim(LeaseHolder("worker-1", 30.0), Scope(), 10).jobs
    assert good.pk in [job.id for job in taken]
    bad.refresh_from_db()
    if connection.vendor == "postgresql" or column == "lease_token":  # SQLite has larger numbers
        assert bad.status == "ERROR"
        assert bad.lease_token < 2**63 - 1, "or it could never be claimed"
    if connection.vendor == "postgresql":
        assert bad.message in [f"{PREFIX}it cannot be claimed: {kind} out of range" for kind in ("integer", "bigint")]


def test_a_job_that_waits_for_a_time_that_it_does_not_have_is_set_aside_and_hides_no_other() -> None:
    bad, due, later = JobFactory(scheduled=True), JobFactory(due=True), JobFactory(scheduled=True)
    with unchecked():
        write(Job, bad.pk, "run_at", "NULL")
        assert seconds_to_work(PromoteDueJobs()) == 0
        promotion = Promotion()
        assert (promotion.set_aside_without_time(), promotion.run().moved) == (1, 1)
    for job in (bad, due, later):
        job.refresh_from_db()
    assert (due.status, later.status, bad.status) == ("QUEUED", "PENDING", "ERROR")
    assert bad.message == f"{PREFIX}it cannot be promoted: it waits for its time, and run_at is empty"


def test_a_row_that_a_constraint_has_not_checked_is_mended_when_it_is_set_aside() -> None:
    job = spoil(JobFactory(expired=True), "crashes at the end of its type")
    with unchecked():
        for column, value in {"progress": "200", "run_at": "'-infinity'", "holds_target": "TRUE"}.items():
            write(Job, job.pk, column, value)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(
                "ALTER TABLE jobqueue_job ADD CONSTRAINT again CHECK (progress BETWEEN 0 AND 100 AND NOT holds_target) NOT VALID"
            )
    expire_stale_running_jobs()
    job.refresh_from_db()
    assert (job.progress, job.holds_target, job.lease_owner) == (0, False, "")
    assert job.status == "ERROR"


def test_a_job_that_was_set_aside_is_a_problem_with_its_reason() -> None:
    WorkerFactory()
    job = spoil(JobFactory(expired=True), "a flag that does not exist")
    expire_stale_running_jobs()
    [problem] = [one for one in problems() if one.code == "set_aside_jobs"]
    assert (problem.subject, f"Job {job.pk} was set aside: it cannot be recovered" in problem.text) == (str(job.pk), True)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"status": "'GONE'"}, "has the status 'GONE', which does not exist"),
        ({"status": "''"}, "has the status '', which does not exist"),
        ({"status": "'PENDING'", "waiting_for": "'rain'"}, "has the status PENDING and waits for 'rain', which does not exist"),
        ({"status": "'PENDING'"}, "has the status PENDING and waits for '', which does not exist"),
    ],
)
def test_a_status_that_does_not_exist_is_a_problem_that_names_the_job(values: dict[str, str], text: str) -> None:
    JobFactory()
    job = JobFactory()
    with unchecked():
        for column, value in values.items():
            write(Job, job.pk, column, value)
        found = [one for one in problems() if one.code == "unknown_states"]
    assert [(one.subject, one.text) for one in found] == [(str(job.pk), f"Job {job.pk} {text}. No worker or duty moves it.")]


def test_rows_that_workers_do_not_move_are_a_problem() -> None:
    WorkerFactory()
    long_ago = timezone.now() - timedelta(minutes=5)
    JobFactory(expired=True, lease_expires_at=long_ago)
    JobFactory(due=True, run_at=long_ago)
    assert [one.code for one in problems() if one.code == "stuck_rows"] == ["stuck_rows"] * 2


def test_a_row_that_refuses_even_that_is_left_alone_for_a_while_and_logged_once(caplog: Any) -> None:
    bad, good = JobFactory(expired=True), JobFactory(expired=True)
    with refusing_changes(f"old.id = {bad.pk}"):
        recovery = JobRecovery()
        lost, batch = recovery.run()
        assert ([one.job_id for one in lost], batch.set_aside) == ([good.pk], 1)
        assert recovery.run()[1].set_aside == 0
        assert caplog.text.count(f"Job {bad.pk} cannot be set aside") == 1
        [settled, other] = finish(ends([bad, JobFactory(running=True)], Kind.SUCCESS))
    assert {settled.status, other.status} == {"", "SUCCESS"}
    refused = {one.outcome.lease.job_id: one.refused for one in (settled, other)}
    assert "never" in refused.pop(bad.pk)
    assert [*refused.values()] == [""]


@pytest.mark.long
def test_many_rows_that_refuse_are_one_line_of_the_log_and_a_count(caplog: Any) -> None:
    bad = [JobFactory(expired=True).pk for _ in range(30)]
    with refusing_changes(f"old.id >= {bad[0]}"):
        assert JobRecovery().run()[1].set_aside == 30
    repeats.flush(0.0)
    lines = [record.getMessage() for record in caplog.records if "cannot be set aside" in record.getMessage()]
    assert (len(lines), lines[1].split(" lines")[0], "Traceback" in caplog.text) == (2, "29 more", False)


def two_lines() -> tuple[list[Job], list[Job]]:
    """Return the running jobs of two targets, and one that waits behind each."""
    running = [JobFactory(running=True, target=name) for name in ("customer:1", "customer:2")]
    return running, [JobFactory(waiting_for_target=True, target=one.target) for one in running]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("hands_over", [True, False])
@pytest.mark.parametrize("refuses", ["any change", "to run"])
@pytest.mark.parametrize("at_once", [1, 2])
def test_a_next_job_whose_row_refuses_does_not_spoil_the_end_before_it(hands_over: bool, refuses: str, at_once: int) -> None:
    running, waiting = two_lines()
    outcomes = ends(running, Kind.SUCCESS)[:at_once]
    hand_over = HandOver(LeaseHolder("worker-1", 30.0), [one.lease for one in outcomes]) if hands_over else None
    condition = f"old.id = {waiting[0].pk}" + (" AND new.status IN ('QUEUED', 'RUNNING')" if refuses == "to run" else "")
    with refusing_changes(condition):
        assert [one.status for one in finish(outcomes, hand_over)] == ["SUCCESS"] * at_once
    waiting[0].refresh_from_db()
    assert waiting[0].status == ("ERROR" if refuses == "to run" else "PENDING")
    if refuses == "to run":
        assert waiting[0].message.startswith(f"{PREFIX}it cannot be released although its target is free: ")
    assert Job.objects.get(pk=waiting[1].pk).status == ("QUEUED" if at_once == 2 else "PENDING")


@pytest.mark.django_db(transaction=True)
def test_a_next_job_whose_row_refuses_does_not_undo_a_transactional_task_before_it() -> None:
    running, waiting = two_lines()
    with refusing_changes(f"old.id = {waiting[0].pk}"), transaction.atomic():
        JobFactory(pk=10**6)  # the work of the task
        assert finish_with_work(ends(running, Kind.SUCCESS)[0]).status == "SUCCESS"
    assert Job.objects.filter(pk=10**6).exists()
    assert [Job.objects.get(pk=one.pk).status for one in (running[0], waiting[0])] == ["SUCCESS", "PENDING"]


def test_a_queued_row_that_refuses_any_change_is_a_problem_while_workers_are_free() -> None:
    worker = WorkerFactory(slots=8, running=0)
    long_ago = timezone.now() - timedelta(minutes=5)
    job = JobFactory(enqueued_at=long_ago)
    JobFactory(enqueued_at=long_ago)  # behind it
    [problem] = [one for one in problems() if one.code == "passed_over_jobs"]
    assert problem.subject == str(job.pk)
    JobFactory.create_batch(8, running=True, lease_owner=str(worker.pk))  # the row of the worker does not say so yet
    assert [one for one in problems() if one.code == "passed_over_jobs"] == [], "it only waits for a free slot"


@pytest.mark.django_db(transaction=True)
def test_a_next_job_whose_row_refuses_keeps_no_job_before_it_from_being_canceled_or_recovered() -> None:
    running, waiting = two_lines()
    Job.objects.filter(pk=running[0].pk).update(cancel_requested=True, cancel_outcome="CANCELED")
    held = JobFactory(error=True, target="customer:3", holds_target=True)
    waiting.append(JobFactory(waiting_for_target=True, target="customer:3"))
    with refusing_changes(f"old.id IN ({waiting[0].pk}, {waiting[2].pk})"):
        assert "CANCELED" in {one.status for one in expire_owner(running[0].lease_owner)}
        held.cancel()
    assert Job.objects.get(pk=held.pk).status == "CANCELED"


@pytest.mark.django_db(transaction=True)
def test_a_parked_job_whose_row_refuses_keeps_no_other_line_from_being_repaired() -> None:
    waiting = [JobFactory(waiting_for_target=True, target=f"customer:{number}") for number in range(3)]
    with refusing_changes(f"old.id = {waiting[1].pk}"):
        assert release_parked_targets() == 2
    assert [Job.objects.get(pk=one.pk).status for one in waiting] == ["QUEUED", "PENDING", "QUEUED"]


@pytest.mark.django_db(transaction=True)
def test_run_until_idle_passes_over_a_row_that_refuses_any_change() -> None:
    bad, good = JobFactory(), JobFactory()
    with refusing_changes(f"old.id = {bad.pk}"):
        assert run_until_idle() == 1
    assert set(Job.objects.values_list("pk", "status")) == {(bad.pk, "QUEUED"), (good.pk, "SUCCESS")}


@pytest.mark.long
def test_many_jobs_that_are_set_aside_are_one_line_of_the_log_and_a_count(caplog: Any) -> None:
    for _ in range(30):
        spoil(JobFactory(expired=True), "a flag that does not exist")
    expire_stale_running_jobs()
    repeats.flush(0.0)
    lines = [record.getMessage() for record in caplog.records if "is set aside as ERROR" in record.getMessage()]
    assert (len(lines), lines[1].split(" lines")[0]) == (2, "29 more")
